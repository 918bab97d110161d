#!/bin/bash
# sanitizers.sh: the tests that a sanitizer's runtime can bear, under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer,
# one after the other. Ends as run-tests.sh does, with the sum of the three. Run by `make check-san`.
# Environment: SAN only these, TESTS only those tests, MAKE.
set -u
cd "$(dirname "$0")/../.." || exit 1
QUICK="unit/* hostile/peer apps/short apps/lateadd apps/self apps/bigfirst apps/epoll-modes apps/signals apps/spawn"
passed=0 failed=0 skipped=0

# What of it is not run, and why, is in docs/testing.md.
tests_for() {
	case $1 in
	address) echo "$QUICK apps/forktest snippets/*" ;;
	undefined) echo "$QUICK apps/forktest apps/badpointer snippets/*" ;;
	thread) echo "unit/* hostile/peer apps/short apps/lateadd apps/self apps/bigfirst" ;;
	esac
}

for san in ${SAN:-address undefined thread}; do
	echo "--- $san"
	while IFS= read -r line; do
		case $line in
		*" passed, "*" failed, "*" skipped")
			read -r p _ f _ s _ <<<"$line"
			passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
			sum=1
			continue
			;;
		esac
		echo "$line"
	done < <(sum=; env -u MAKELEVEL "${MAKE:-make}" --no-print-directory SAN="$san" TESTS="${TESTS:-$(tests_for "$san")}" check 2>&1)
	((${sum:-0})) || { echo "FAIL $san: no tests ran"; failed=$((failed + 1)); }
	sum=
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
