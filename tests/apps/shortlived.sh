#!/bin/bash
# Connections that end soon after they were upgraded: after some of them the next ones stay on
# TCP, those that live on are upgraded still, and after some of these all are at once, as at
# first. With earn_lifetime off all are.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"

# connections that were upgraded, both ends together
fast() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all |
		python3 -c \
		'import json, sys; print(json.load(sys.stdin)["total"]["counters"]["conns_fast"])'
}
DONE=0
port=
told() { grep -qs "^done $DONE$" "$TMP/client.log" || gone "$CLIENT"; }
# ask CONNECTIONS TURNS NAPS_FROM [MS]: and how many of their ends were upgraded is added to FAST
ask() {
	echo "$1 $2 $3 ${4:-2}" >"$TMP/fifo"
	((DONE += $1))
	within 60 told
	gone "$CLIENT" && fail "the client has ended: $(cat "$TMP/client.log")"
	FAST=$(fast)
}
serve() {
	server python3 "$TOP/tests/apps/shortlived.py" serve "$port"
	wait_port "$port"
}
begin() {
	rm -f "$TMP/fifo"
	mkfifo "$TMP/fifo"
	DONE=0
	start client "$TMP/client.log" python3 "$TOP/tests/apps/shortlived.py" ask "$port" \
		"$TMP/fifo"
	CLIENT=$PID
}
end() {
	echo quit >"$TMP/fifo"
	finish "$CLIENT" 20 || fail "client: $(cat "$TMP/client.log")"
}
# slow WHAT: of an end that knows of the short ones and one that does not, the one has given up
# its search long before the other begins.
slow() {
	local before
	fast >"$TMP/dead"		# shown a last time
	before=$(fast)
	ask 1 420 10 8
	say "$1: $((FAST - before)) ends of a slow connection that lives on are upgraded"
	((FAST - before == 2)) || fail "$1: a slow connection that lives on is not upgraded"
}

# short_ones WHAT: 40 of them, FIRST ends of which are upgraded, and 20 more, in all FAST.
short_ones() {
	ask 40 40 20
	FIRST=$FAST
	ask 20 40 20
	say "$1: upgraded ends of 40 connections of 40 turns: $FIRST; of 20 more: $((FAST - FIRST))"
}

begin_mode both
policy 'discovery 100ms'
free_port port
serve
begin
short_ones "earn_lifetime on"
((FIRST > 0)) || fail "none at all was upgraded"
((FAST == FIRST)) || fail "connections that end soon are upgraded again and again"
grep -q '"short-lived"' <<<"$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all)" ||
	fail "nothing says short-lived"
for ((i = 0; i < 20 && FAST == FIRST; i++)); do ask 1 400 270; done
((FAST > FIRST)) || fail "a connection that lives on is not upgraded"
ask 8 400 399
last=$FAST
for ((i = 0; i < 10 && FAST == last; i++)); do ask 1 40 20; done
say "then one of 400 turns is, and after some of these one of 40"
((FAST > last)) || fail "one of 40 turns is not, though those before it lived on"

ask 40 40 39
end
begin
slow "a client that is new"
ask 40 40 39
stop "$SRV"
serve
slow "a server that is new"
end
stop "$SRV"

policy 'earn_lifetime off'
rm -f "$STAT"/*
free_port port
serve
begin
short_ones "earn_lifetime off"
((FAST > FIRST)) || fail "earn_lifetime off learns"
end
stop "$SRV"
