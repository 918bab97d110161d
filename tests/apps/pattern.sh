#!/bin/bash
# Verified streams, every way of waiting, several connections at once, both directions and one at
# a time.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"
P=$B/apps/pattern

job() {
	local how dir port
	for how in block poll select epoll oneshot edge short; do
		for dir in both up down; do
			free_port port
			server "$P" listen -w $how -d $dir -k 3 -n 6000000 "$port"
			wait_port "$port"
			client "$P" connect -w $how -d $dir -k 3 -n 6000000 127.0.0.1 \
				"$port" >"$TMP/client.log" ||
				fail "client $how $dir: $(cat "$TMP/client.log")"
			finish "$SRV" 20 || fail "server $how $dir: $(cat "$TMP/server.log")"
			{ echo "$how $dir"; sort "$TMP/client.log" "$TMP/server.log"; } >>"$OUT"
		done
	done
}
# how much of a stream of 4 ms goes before its path is there is the machine's business
for_modes job 10000000
