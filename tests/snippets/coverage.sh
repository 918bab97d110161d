#!/bin/bash
# coverage.sh: every row of shim/libc/calls.def is named by a snippet, and used in the source
# where it is named. Environment: B build directory, CC.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
. tests/unit/calls_names.sh
bad=0
named=$(for c in tests/snippets/*.c; do
	p=${c##*/}
	"$B/snippets/${p%.c}" list | sed 's/^[^:]*: //' | tr ' ' '\n' | sed "s,\$, $c,"
done | LC_ALL=C sort -u) || exit 1
n=0
while read -r row; do
	n=$((n + 1))
	files=$(awk -v r="$row" '$1 == r { print $2 }' <<<"$named")
	# shellcheck disable=SC2154
	# this machine's libc may lack it: apps/newer-libc
	if [ -z "$files" ] && [[ " $newer " == *" $row "* ]]; then
		continue
	fi
	if [ -z "$files" ]; then
		echo "FAIL: no snippet names $row"
		bad=1
		continue
	fi
	# Beside the naming, and the list in the head, the call itself: outside of comments and of
	# the head of a snippet.
	# shellcheck disable=SC2086
	sed -e '/^SNIPPET(/d; /^\t"[_a-zA-Z0-9 ]*")$/d; /^ \*/d' $files | grep -qw -- "$row" ||
		{ echo "FAIL: $row is named but not called in" $files; bad=1; }
done < <(rows CALL VCALL OWN ALIAS NONE | uniq)
[ "$n" -gt 150 ] || { echo "FAIL: only $n rows found"; bad=1; }
snippets=$(for c in tests/snippets/*.c; do p=${c##*/}; "$B/snippets/${p%.c}" list; done | wc -l)
echo "$n rows of the call table, $snippets snippets"
exit $bad
