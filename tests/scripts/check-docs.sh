#!/bin/bash
# The pages that are generated from tables (tools/gen-NAME-doc.sh prints docs/NAME.md,
# tools/gen-parts.sh pages of which parts are) are what the tables say; the versions that
# docs/protocol.md names are those of the headers, and that of docs/CHANGELOG.md is the product's;
# what else the pages say of the tree is so (claims.py).
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
bad=0 n=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
same() {	# PAGE COMMAND...: which prints it
	local d=$1
	shift
	if ! "$@" >"$tmp/page" || [[ ! -s $tmp/page ]]; then
		echo "$* fails"
		bad=1
	elif ! diff -u "$d" "$tmp/page" >"$tmp/diff"; then
		echo "$d is stale: run make docs"
		head -n 20 "$tmp/diff"
		bad=1
	fi
	((n++))
}
for g in tools/gen-*-doc.sh; do
	[[ -e $g ]] || { echo "nothing is generated"; exit 77; }
	d=docs/$(basename "$g" -doc.sh)
	same "${d/gen-/}.md" "$g"
done
for d in $(tools/gen-parts.sh); do
	same "$d" tools/gen-parts.sh "$d"
done
version() {	# HEADER NAME SENTENCE: protocol.md says it with the number in the place of #
	local v
	v=$(sed -n "s/^#define $2[ \t]*\([0-9]*\).*/\1/p" "$1")
	tr -s ' \n' '  ' <docs/protocol.md | grep -qF -- "${3/\#/$v}" && return
	echo "docs/protocol.md does not say '${3/\#/$v}', as $1 has $2"
	bad=1
}
version shim/link/link.h CTL_VERSION 'always 64 bytes, version #,'
version rdma/shm/segment.h SEGMENT_VERSION 'magic 8, version #, slots'
version shim/discovery/net_msg.h NET_VERSION \
	'(`struct net_msg`, shim/discovery/net_msg.h), version #:'
version policy/stat.h STAT_VERSION '`policy/stat.h` is the description, version #.'
grep -m1 '^## ' docs/CHANGELOG.md | grep -q "^## $(<VERSION)\b" || {
	echo "docs/CHANGELOG.md does not begin with version $(<VERSION)"
	bad=1
}
python3 tests/scripts/claims.py "${B:-build}" || bad=1
echo "$n pages compared"
exit $bad
