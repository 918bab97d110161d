#!/bin/bash
# stress-ng's stressors of sockets and descriptors with --verify, preloaded: at ease, and with a
# cut and rewind every 5 ms. What does not run on the kernel alone is not held against the
# library. Not sigio: its writer fills the pipe before the reader asks for signals, now and then,
# and it hangs without the library, too. Part of `make check-suites`.
#	stress.sh [STRESSOR...]
# TIMEOUT: 400
. "$(dirname "$0")/../apps/lib.sh"
command -v stress-ng >/dev/null || skip "no stress-ng"
[[ -n $SHIM ]] || skip "no library"

# Stressor, operations, options; after the bar: its bytes must take a fast path.
JOBS=(
	'sock 300 --sock-opts send|fast' 'sock 300 --sock-opts sendmsg|fast' \
		'sock 300 --sock-opts sendmmsg|fast'
	'sock 300 --sock-opts random --sock-nodelay|fast' 'sock 300 --sock-domain ipv6|fast'
	'sock 100 --sock-zerocopy|' 'sock 300 --sock-domain unix|'
	'epoll 3000 --epoll-domain ipv4|' 'epoll 3000 --epoll-domain ipv6|' 'sockmany 3000|' \
		'sockfd 300|' 'sockpair 3000|'
	'poll 3000|' 'dup 200|' 'close 3000|' 'fork 500|' 'sendfile 200|' 'splice 500|'
)

# stress ROLE JOB
stress() {
	local name ops rest
	read -r name ops rest <<<"${2%|*}"
	free_port port
	[[ $name == sock || $name == epoll || $name == sockmany ]] && rest+=" --$name-port $port"
	# shellcheck disable=SC2086
	run_with "$1" timeout -k 5 90 stress-ng --temp-path "$TMP" --"$name" 2 --"$name-ops" \
		"$ops" $rest --verify >"$TMP/client.log" 2>&1
}

begin_mode both
for forced in '' 'force_cut_every 5ms'; do
	policy 'earn_bytes 0' 'earn_rounds 0' ${forced:+"$forced"}
	for job in "${JOBS[@]}"; do
		(($#)) && [[ " $* " != *" ${job%% *} "* ]] && continue
		stress none "$job" ||
			{ say "${job%|*}: not on the kernel alone:" \
			"$(tail -n 1 "$TMP/client.log")"; continue; }
		stress shim "$job" ||
			fail "${job%|*}${forced:+, $forced}: status $?:" \
			"$(grep -m 3 -E 'fail|error' "$TMP/client.log")"
		collect
		say "${job%|*}${forced:+, $forced}: $CONNS ends of connections, $FAST bytes on a" \
			"fast path, $CUTS cuts; on TCP because: $REASONS"
		[[ $job != *fast || $FAST -gt 0 ]] || fail "no byte on a fast path"
	done
done
