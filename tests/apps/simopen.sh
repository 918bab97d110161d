#!/bin/bash
# Both ends connect to each other's port: there is no end that accepted. They find each other all
# the same, whichever of them has the lower port.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"

pair() {
	server "$B/apps/simopen" server "$1" "$2"
	within 15 grep -qs ready "$TMP/server.log" || fail "server: $(cat "$TMP/server.log")"
	client timeout 60 "$B/apps/simopen" client "$2" "$1" 1000 >>"$OUT" 2>"$TMP/client.log" ||
		fail "status $?: $(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
}
job() {
	local a b
	free_port a
	free_port b
	((a < b)) || { local c=$a; a=$b; b=$c; }
	pair "$a" "$b"
	pair "$b" "$a"
}
for_modes job 1000000
