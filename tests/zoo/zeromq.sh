#!/bin/bash
# ZeroMQ: requests, a pipeline and subscriptions between two processes with two threads of input and
# output each.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
version=$(/usr/bin/python3 -c 'import zmq; print(zmq.zmq_version())' 2>/dev/null) ||
	skip "no python3-zmq"

free_ports3() {
	while :; do
		free_port port
		[[ -z $(ss -Htan "sport >= :$port and sport <= :$((port + 2))") ]] && return
	done
}

job() {
	local port
	free_ports3
	server /usr/bin/python3 "$TOP/tests/zoo/zeromq.py" server "$port"
	wait_port $((port + 2))
	client timeout 40 /usr/bin/python3 "$TOP/tests/zoo/zeromq.py" client "$port" \
		>>"$OUT" 2>"$TMP/client.log" ||
		fail "client, status $?: $(cat "$TMP/client.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
}
BALANCED=1
zoo job "$version" "request and answer, pipeline, subscription"
