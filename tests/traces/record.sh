#!/bin/bash
# record.sh MECHANISM LINES COMMAND...: runs a program with a library that records (record.h), and
# prints the first LINES of what one waiter, connection or place of MECHANISM saw and decided, the
# one with the most, and how often each came in a row. The traces in this folder are made so.
set -euo pipefail
(($# >= 3)) || { sed -n '2,4s/^# //p' "$0"; exit 2; }
cd "$(dirname "$0")/../.."
mechanism=$1 lines=$2
shift 2
make -s -j2 B=build/record CFLAGS="-include $PWD/tests/traces/record.h" \
	build/record/librdmashim.so >&2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
printf 'earn_bytes 0\nearn_rounds 0\n' >"$tmp/conf"
mkdir -m 700 "$tmp/stat"
LD_PRELOAD=$PWD/build/record/librdmashim.so RDMASHIM_CONF=$tmp/conf RDMASHIM_STAT_DIR=$tmp/stat \
	"$@" 200>>"$tmp/all" >&2
who=$(awk -v m="$mechanism" '$1 == m { n[$2]++ } END { for (w in n) print n[w], w }' "$tmp/all" |
	sort -rn | awk 'NR == 1 { print $2 }')
echo "# $mechanism, of: ${*##*/}"
awk -v m="$mechanism" -v w="${who:-none}" \
	'$1 == m && $2 == w { $1 = $2 = ""; print substr($0, 3) }' \
	"$tmp/all" | uniq -c | sed 's/^ *//' | head -n "$lines" || true
