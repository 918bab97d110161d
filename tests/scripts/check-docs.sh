#!/bin/bash
# The pages that are generated from tables (tools/gen-NAME-doc.sh prints docs/NAME.md) are what the tables say.
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
bad=0 n=0
for g in tools/gen-*-doc.sh; do
	[[ -e $g ]] || { echo "nothing is generated"; exit 77; }
	d=docs/$(basename "$g" -doc.sh)
	d=${d/gen-/}.md
	if ! diff -u "$d" <($g) >/tmp/docs-diff.$$; then
		echo "$d is stale: run make docs"
		head -n 20 /tmp/docs-diff.$$
		bad=1
	fi
	rm -f /tmp/docs-diff.$$
	((n++))
done
echo "$n pages compared"
exit $bad
