#!/bin/bash
# inside.sh: in a root, where this tree is built: its unit tests, a fixed set of snippets, the
# tools, and the demo. The last line says how many tests passed, and what the demo won.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MAKELEVEL
export B=build SHIM=build/librdmashim.so LANES=1 WANTED="cut forced"
tests=()
for t in build/unit/test_*; do
	[[ ! -x $t || -d $t ]] || tests+=("unit/${t##*/}@300=$t")
done
for s in recv send poll epoll life; do
	tests+=("snippets/$s@300=tests/snippets/run.sh $s")
done
tests+=("tools@60=build/rdmarun --version && build/rdmastat --version && build/rdmastat reasons")
tests/scripts/run-tests.sh "${tests[@]}" | tee build/said || exit 1
last=$(tail -n 1 build/said)
if ! command -v redis-benchmark >/dev/null; then
	echo "$last; no redis here for the demo"
	exit 0
fi
ROUNDS=1 SECS=1 tools/demo.sh | tee build/demo || exit 1
echo "$last; demo: GET x $(awk '$1 == "GET" && NF == 4 { print $4 }' build/demo)"
