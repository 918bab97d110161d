#!/bin/bash
# kill -9 of either end in mid-transfer: the survivor ends with an error or an end of file, at
# once, and all that it got is right. If nothing was unread at the killed sender, a clean end of
# file says that every byte that its send() accepted has arrived. (With unread input the kernel
# resets, which may discard bytes and which one thread sees as an error.)
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"

connected() { [[ -n $(ss -Htn state established "sport = :$1") ]]; }

# Whoever sends has sent more than any buffers on the way hold: a machine with other work may need
# a while for that.
flows() {
	(($(cat "$TMP"/sent.* 2>/dev/null | od -An -v -w8 -tu8 | sort -n | tail -n 1) > 16000000))
}

# one VICTIM(server|client) DIRECTION HOW
one() {
	local port victim survivor rc log accepted got
	free_port port
	rm -f "$TMP"/sent.*
	server "$B/apps/pattern" listen -p "$TMP/sent.server" -d "$2" -w "$3" -n 1000000000000 \
		"$port"
	wait_port "$port"
	start client "$TMP/client.log" "$B/apps/pattern" connect -p "$TMP/sent.client" -d "$2" \
		-w "$3" -n 1000000000000 127.0.0.1 "$port"
	victim=$PID survivor=$SRV log=$TMP/server.log
	[[ $1 == server ]] && victim=$SRV survivor=$PID log=$TMP/client.log
	within 15 connected "$port" || fail "$1 $2 $3: no connection: $(cat "$TMP"/*.log)"
	within 15 flows || fail "$1 $2 $3: nothing flows"
	sleep 0.3
	gone "$victim" && fail "$1 $2 $3: ended too early: $(cat "$TMP"/*.log)"
	kill -KILL "$victim"
	finish "$survivor" 10
	rc=$?
	accepted=$(od -An -N8 -tu8 "$TMP/sent.$1" | tr -d ' ')
	got=$(awk '{ print $5 }' "$log")
	say "$1 killed ($2, $3) after $accepted bytes; survivor: $(cat "$log")"
	((rc == 3)) || fail "survivor's status $rc"
	[[ $2 == both || $(awk '{ print $3 + $5 }' "$log") -gt 100000 ]] ||
		fail "hardly anything was transferred"
	if [[ $2 != both ]] && grep -q 'end of file' "$log"; then
		((got >= accepted)) ||
			fail "end of file, but $((accepted - got)) accepted bytes are missing"
	fi
	wait "$victim" 2>/dev/null
	echo "$1 $2 $3 lost" >>"$OUT"
}

job() {
	local v d h
	for v in server client; do
		for d in up down both; do
			for h in ${HOW:-block epoll edge}; do
				one "$v" "$d" "$h"
			done
		done
	done
}
for_modes job 1000000
