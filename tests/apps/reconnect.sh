#!/bin/bash
# What a connection, or an attempt at one, leaves on its socket for the next: every order, up to
# length 4, of connect(AF_UNSPEC), attempts that are refused, impossible, pending or timed out,
# connections that talk and perhaps are upgraded, the three shutdown()s in every state, and
# listen(); then a dialogue, during which the connection is upgraded. Each step, and the dialogue,
# gives what it gives without the library.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
policy 'earn_bytes 0' 'earn_rounds 0'
# Letters, length, rounds. Those with a second of the kernel's own in them (t), the less common
# ones, and those with a long dialogue, are shorter.
ORDERS=("urpcRWBl 4 30" "urnpcfRWBl 3 30" "turcRWBl 2 200" "urpcfRWBl 2 1500")

job() {
	local port orders
	free_port port
	server "$B/apps/reconnect" server "$port"
	wait_port "$port"
	for orders in "${ORDERS[@]}"; do
		# shellcheck disable=SC2086
		client timeout 100 "$B/apps/reconnect" client "$port" $orders >>"$OUT" ||
			fail "$orders: status $?"
	done
	stop "$SRV"
	say "$(wc -l <"$OUT") orders"
}
MODES=${MODES/ client server/}
for_modes job 100000
# Nobody has claimed a connection of others, though many were closed while they were looked for.
[[ -z $SHIM || ${REASONS-} != *identity* ]] || fail "taken for a lie: $REASONS"
