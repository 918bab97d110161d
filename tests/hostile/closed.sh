#!/bin/bash
# One user has 9,000 connections to another user's process at one time. When they are closed, the
# library's memory for them is given back, that of the counter file and of an epoll
# instance with it, but for what is bounded.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "only root can become another user"
[[ -z ${SAN-} ]] || skip "a sanitizer keeps memory of its own"
N=9000 MOST=4096
(($(ulimit -Hn) > N + 100)) || skip "no $N descriptors here"
cp "$TOP/tests/hostile/closed.py" "$TMP"
for how in plain epoll fork; do
	begin_mode both
	[[ $how == fork ]] && N=2000	# which takes a while
	free_port port
	start shim "$TMP/server.log" python3 -S -E "$TMP/closed.py" server "$port" "$N" $how
	server=$PID
	wait_port "$port"
	timeout 90 python3 -S -E "$TMP/closed.py" client "$port" "$N" ||
		fail "$(cat "$TMP/server.log")"
	finish "$server" 20 || fail "$(cat "$TMP/server.log")"
	read -r open closed counters <"$TMP/server.log"
	say "$how: $N connections: $open KiB while they were open, $closed KiB after it"
	[[ $how == fork ]] || ((open > 2 * MOST)) || fail "the library has not followed them"
	((counters)) || fail "there is no counter file"
	((closed <= MOST)) || fail "more than $MOST KiB are kept"
done
exit 0
