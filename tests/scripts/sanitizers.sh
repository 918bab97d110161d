#!/bin/bash
# sanitizers.sh: what a sanitizer's runtime can bear of the tests, under AddressSanitizer,
# UndefinedBehaviorSanitizer and ThreadSanitizer, one after the other. Ends as run-tests.sh does,
# with the sum of the three. Run by `make check-san`. Programs that it cannot bear get the library
# as it is (lib.sh), so that is made first. Environment: SAN only these, TESTS only those tests,
# MODES of tests/apps, MAKE.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0 skipped=0
QUICK="unit/* hostile/peer apps/short apps/lateadd apps/self apps/bigfirst apps/epoll-modes \
apps/signals apps/spawn apps/forktest"
REAL="apps/redis apps/replica apps/nginx apps/haproxy apps/memcached apps/postgres
	apps/python-http apps/asyncio apps/node apps/grpc
	apps/nc apps/socat apps/ssh apps/rsync apps/openssl apps/iperf3 apps/sockperf apps/kill
	apps/restart"
# With one end preloaded there is no fast path to look at.
export MODES=${MODES-bare both}

# What of it is not run, and why, is in docs/testing.md.
tests_for() {
	case $1 in
	address) echo "$QUICK snippets/* hostile/faults $REAL" ;;
	undefined) echo "$QUICK apps/badpointer snippets/* hostile/faults $REAL" ;;
	thread) echo "$QUICK ${REAL/apps\/grpc}" ;;
	esac
}

# made SAN TARGET TESTS
made() {
	env -u MAKELEVEL -u MAKEFLAGS -u MAKEOVERRIDES "${MAKE:-make}" --no-print-directory \
		SAN="$1" TESTS="$3" "$2"
}

# What a sanitizer looks at in another way than make check does.
more_for() {
	[[ $1 != thread ]] || made thread check-races "${TESTS-}"
}

made "" all "" >/dev/null || exit 1
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
	done < <(made "$san" check "${TESTS:-$(tests_for "$san")}" 2>&1; more_for "$san" 2>&1)
	((${sum:-0})) || { echo "FAIL $san: no tests ran"; failed=$((failed + 1)); }
	sum=
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
