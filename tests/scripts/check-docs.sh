#!/bin/bash
# The pages that are generated from tables (tools/gen-NAME-doc.sh prints docs/NAME.md) are what the tables say.
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
bad=0 n=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for g in tools/gen-*-doc.sh; do
	[[ -e $g ]] || { echo "nothing is generated"; exit 77; }
	d=docs/$(basename "$g" -doc.sh)
	d=${d/gen-/}.md
	if ! $g >"$tmp/page" || [[ ! -s $tmp/page ]]; then
		echo "$g fails"
		bad=1
	elif ! diff -u "$d" "$tmp/page" >"$tmp/diff"; then
		echo "$d is stale: run make docs"
		head -n 20 "$tmp/diff"
		bad=1
	fi
	((n++))
done
echo "$n pages compared"
exit $bad
