#!/bin/bash
# Every fuzz target: its seeds, and new inputs for some seconds, two targets at a time. make fuzz
# runs one for longer.
#	fuzz.sh [TARGET...]		SECS= for each
# TIMEOUT: 300
[[ -z ${SAN-} ]] || { echo "the fuzz targets have sanitizers of their own" >&3; exit 77; }
here=$(dirname "$0")/../fuzz
B=${B:-build} SECS=${SECS:-10}
export B
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# shellcheck disable=SC2046  # names
(($#)) || set -- $(cd "$here" && printf '%s\n' *.c | sed 's/\.c$//')
for t in "$@"; do
	[[ -x $B/fuzz/$t ]] || { echo "no $B/fuzz/$t"; exit 1; }
done
printf '%s\n' "$@" | xargs -P 2 -I '{}' env NEW="$tmp/{}" "$here/run" '{}' "$SECS"
