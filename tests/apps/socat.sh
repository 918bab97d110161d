#!/bin/bash
# socat: files one way, an echo by a forked child, a child program that gets the socket itself, a
# relay of two connections.
. "$(dirname "$0")/lib.sh"
make_file "$TMP/file" 40000000

job() {
	local port port2
	free_port port
	server socat -u "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr" "OPEN:$TMP/got,creat,trunc"
	wait_port "$port"
	client timeout 60 socat -u "OPEN:$TMP/file" "TCP:127.0.0.1:$port" || fail "sender"
	finish "$SRV" 20 || fail "receiver: $(cat "$TMP/server.log")"
	sum "$TMP/got" >>"$OUT"

	# Echo: socat forks for each connection; then cat holds the socket itself as 0 and 1.
	local how
	for how in EXEC:cat EXEC:cat,nofork; do
		free_port port
		server socat -t 10 "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork" "$how"
		wait_port "$port"
		client timeout 60 socat -t 10 - "TCP:127.0.0.1:$port" <"$TMP/file" |
			sha256sum >>"$OUT"
		client timeout 60 socat -t 10 - "TCP:127.0.0.1:$port" <<<"a line" >>"$OUT" ||
			fail "$how"
		stop "$SRV"
	done

	# A relay in the middle: the same process reads one connection and writes another.
	free_port port
	free_port port2
	server socat -u "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr" "OPEN:$TMP/got,creat,trunc"
	last=$SRV
	wait_port "$port"
	start client "$TMP/relay.log" socat "TCP-LISTEN:$port2,bind=127.0.0.1,reuseaddr" \
		"TCP:127.0.0.1:$port"
	wait_port "$port2"
	client timeout 60 socat -u "OPEN:$TMP/file" "TCP:127.0.0.1:$port2" ||
		fail "sender to the relay"
	finish "$PID" 20 || fail "relay: $(cat "$TMP/relay.log")"
	finish "$last" 20 || fail "receiver behind the relay"
	sum "$TMP/got" >>"$OUT"
}

# The relay is a client's program: with only clients preloaded, sender and relay are two libraries
# that may meet.
for m in $MODES; do
	case $m in
	client) MODES=$m for_modes job none ;;
	*) MODES=$m for_modes job 1000000 ;;
	esac
done
