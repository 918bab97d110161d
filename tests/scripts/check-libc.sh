#!/bin/bash
# check-libc.sh: what the libc of newer Debians has, and shim/libc/calls.def lacks, that takes or
# makes descriptors or processes: the next libc is seen here before it is at users'. Debian 13's
# is the one that must be known; sid's is looked at where it can be had.
# TIMEOUT: 300
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/unit/calls_names.sh
rows CALL VCALL OWN ALIAS NONE | uniq >"$work/rows"
[[ $(wc -l <"$work/rows") -gt 200 ]] ||
	{ echo "only $(wc -l <"$work/rows") rows in shim/libc/calls.def"; exit 1; }
rc=0 seen=0 why=
for suite in trixie sid; do
	said=$(tests/scripts/newer-libc.sh "$suite" "$B/libc-$suite") || { why=$said; continue; }
	nm -D --defined-only "$B/libc-$suite/root/usr/lib/x86_64-linux-gnu/libc.so.6" |
		awk '$2 ~ /^[TWi]$/ && !/GLIBC_PRIVATE/ { print $3 }' |
		sed 's/@.*//' | LC_ALL=C sort -u >"$work/libc"
	[[ $(wc -l <"$work/libc") -gt 2000 ]] ||
		{ echo "only $(wc -l <"$work/libc") names in the libc of $suite"; exit 1; }
	grep -E "$want" "$work/libc" | grep -vE "$other" |
		LC_ALL=C comm -23 - "$work/rows" >"$work/unknown"
	if [[ -s $work/unknown ]]; then
		# shellcheck disable=SC2046  # lines become one
		echo "in the libc of $suite, but neither wrapped nor explained in" \
			"shim/libc/calls.def:" $(<"$work/unknown")
		rc=1
	fi
	for n in $newer; do	# a row for what no libc has is a mistake
		grep -qx "$n" "$work/libc" || { echo "$n is no function of the libc of $suite"; \
			rc=1; }
	done
	seen=$((seen + 1))
	echo "$suite: $(wc -l <"$work/libc") functions looked at"
done
((seen)) || { echo "$why"; exit 77; }
exit $rc
