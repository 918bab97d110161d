#!/bin/bash
# Go's own tests of net, os/exec and os/signal, with `go on`, by default and under forced cuts: each
# has the result that it has without the library, and connections take a fast path. (TestSplice is
# left out: newer ones demand that splice() was used, which is refused for a stream so that Go
# copies over the fast path.)
# TIMEOUT: 600
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/golang.bash"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
src=$(go env GOROOT)/src
[[ -e $src/net/net_test.go ]] || skip "no sources of Go's tests (package golang-src)"

# results FILE: a line for each test
results() { sed -nE '/TestSplice/!s/^ *--- ([A-Z]+): ([^ ]+) .*/\2 \1/p' "$1" | sort; }
# suite PACKAGE FLAGS...: as the mode and the policy say, in $TMP/PACKAGE.$1
suite() {	# AS PACKAGE FLAGS...
	local as=$1 name=${2//\//-} pkg=$2
	shift 2
	(cd "$src/$pkg" && run_with shim timeout -s KILL 200 "$TMP/$name.test" -test.v \
		-test.short "$@") >"$TMP/$name.$as" 2>&1
	results "$TMP/$name.$as" >"$TMP/$name.$as.results"
	[[ -s $TMP/$name.$as.results ]] || fail "$pkg, $as: $(tail -n 5 "$TMP/$name.$as")"
}
# bare PACKAGE FLAGS...: without the library, in $TMP/PACKAGE.bare.results
bare() {
	local name=${1//\//-} pkg=$1
	shift
	(cd "$src/$pkg" && run_with none timeout -s KILL 200 "$TMP/$name.test" -test.v \
		-test.short "$@") >"$TMP/$name.bare" 2>&1
	results "$TMP/$name.bare" >"$TMP/$name.bare.results"
}
# by_chance PACKAGE AS: some tests have deadlines that a busy machine misses, with and without the
# library: those that differ are run three times more, both ways, and differ once at most.
by_chance() {
	local name=${1//\//-} which differ=0
	which=$(sed -nE 's,^[<>] ([^ /]*).*,\1,p' "$TMP/diff" | sort -u | paste -sd'|')
	cp "$TMP/$name.bare.results" "$TMP/$name.first"
	for _ in 1 2 3; do
		bare "$1" -test.run "^($which)\$"
		suite "$2" "$1" -test.run "^($which)\$"
		diff "$TMP/$name.bare.results" "$TMP/$name.$2.results" >>"$TMP/diff" ||
			differ=$((differ + 1))
	done
	cp "$TMP/$name.first" "$TMP/$name.bare.results"
	say "$1: $which: not the same once, $differ of three times more"
	((differ < 2))
}
for pkg in net os/exec os/signal; do
	name=${pkg//\//-}
	nice go test -c -o "$TMP/$name.test" "$pkg" >"$TMP/go.log" 2>&1 ||
		fail "go test -c $pkg: $(tail -n 5 "$TMP/go.log")"
	begin_mode bare
	policy
	bare "$pkg"
	n=$(grep -c ' PASS$' "$TMP/$name.bare.results")
	((n > 5)) || fail "$pkg: only $n pass without the library"
	for cuts in 0 1ms; do
		begin_mode both
		policy 'go on' 'log_level 3' 'earn_bytes 0' 'earn_rounds 0' "force_cut_every $cuts"
		rm -f "$TMP/shim.both"
		suite "cuts-$cuts" "$pkg"
		grep -q 'a Go program, .* stubs' "$TMP/shim.both" || fail "$pkg was not patched"
		cp "$TMP/shim.both" "$TMP/shim.once"
		diff "$TMP/$name.bare.results" "$TMP/$name.cuts-$cuts.results" >"$TMP/diff" ||
			by_chance "$pkg" "cuts-$cuts" ||
			fail "$pkg, forced cuts $cuts: $(cat "$TMP/diff")"
		say "$pkg, forced cuts $cuts: $n pass," \
			"$(grep -c ' SKIP$' "$TMP/$name.bare.results") skip," \
			"$(grep -c ' FAIL$' "$TMP/$name.bare.results") fail, as without;" \
			"$(grep -c 'cut over' "$TMP/shim.once") cuts"
		[[ $pkg != net ]] || (($(grep -c 'cut over' "$TMP/shim.once") > 10)) ||
			fail "no connection left TCP"
	done
done
