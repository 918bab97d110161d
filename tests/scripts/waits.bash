# shellcheck shell=bash
# waits.bash - sourced by the lib.sh of tests/apps and of tests/nic: waits, and ports.

# within SECS CMD...: until it succeeds, for so many seconds (SECONDS would be up to one less) and
# then so many tries: where the machine stands still, so does what is waited for.
within() {
	local end=$((${EPOCHREALTIME//[.,]/} + $1 * 1000000)) tries=$1 nap=0.01
	shift
	until "$@"; do
		((${EPOCHREALTIME//[.,]/} < end || --tries > 0)) || return 1
		sleep $nap
		nap=0.05
	done
}

# State 0A in /proc/net/tcp; not by ss, which a machine for benchmarks may lack.
listening() {
	grep -qsE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F]+:0000 0A " /proc/net/tcp \
		/proc/net/tcp6
}

# lane_port VAR: a port below the ephemeral ones, in use or not. Another lane's test, which runs at
# the same time, has other ones (TEST_LANE, of run-tests.sh).
lane_port() {
	local lane=${TEST_LANE:-0/1} most
	most=$((12000 / ${lane#*/}))
	printf -v "$1" %s $((20000 + ${lane%/*} * most + (RANDOM * 32768 + RANDOM) % most))
}
