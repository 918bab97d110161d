#!/bin/bash
# A connection changes hands in mid-stream: fork, exec, posix_spawn, a descriptor passed to
# another process, dup, stdio, raw system calls. Each scenario at the connecting and at the
# accepting end.
# TIMEOUT: 300
. "$(dirname "$0")/lib.sh"
F=$B/apps/forktest P=$B/apps/pattern
N=8388608

one() {
	local port
	free_port port
	if [[ $2 == client ]]; then
		server "$P" listen -w poll -n $N "$port"
		wait_port "$port"
		client "$F" "$1" -n $N connect 127.0.0.1 "$port" >"$TMP/client.log" 2>&1 ||
			fail "$1 at the client, status $?:" \
			"$(cat "$TMP"/client.log "$TMP"/server.log)"
		finish "$SRV" 15 || fail "$1 at the client; peer: $(cat "$TMP/server.log")"
	else
		server "$F" "$1" -n $N listen "$port"
		wait_port "$port"
		client "$P" connect -w edge -n $N 127.0.0.1 "$port" >"$TMP/client.log" 2>&1 ||
			fail "$1 at the server; peer: $(cat "$TMP"/client.log "$TMP"/server.log)"
		finish "$SRV" 15 || fail "$1 at the server, status $?: $(cat "$TMP/server.log")"
	fi
	{ echo "$1 at the $2"; cat "$TMP/client.log" "$TMP/server.log"; } >>"$OUT"
}

job() {
	local s
	for s in ${SCENARIOS:-$("$F" list)}; do
		one "$s" client
		one "$s" server
	done
}
for_modes job 1000000
