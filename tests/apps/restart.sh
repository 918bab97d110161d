#!/bin/bash
# One end is killed in mid-transfer and started again on the same port; the other, still running,
# connects again and transfers everything. Both ways round: a client that survives several
# servers, a server that survives several clients.
. "$(dirname "$0")/lib.sh"
N=300000000

# A moment of transfer: a killed process must have had a connection.
while_it_runs() {
	within 20 talks "$1" || fail "no connection"
	sleep 0.15
}
talks() { [[ -n $(ss -Htn state established "sport = :$1") ]]; }

job() {
	local port i c
	free_port port
	server "$B/apps/pattern" listen -w epoll -n $N "$port"
	wait_port "$port"
	start client "$TMP/client.log" "$B/apps/pattern" connect -w epoll -n $N -r 100 127.0.0.1 \
		"$port"
	c=$PID
	for i in 1 2; do
		while_it_runs "$port"
		kill -KILL "$SRV"
		wait "$SRV" 2>/dev/null
		server "$B/apps/pattern" listen -w epoll -n $N "$port"
	done
	finish "$c" 60 || fail "client: $(cat "$TMP/client.log")"
	finish "$SRV" 10 || fail "server: $(cat "$TMP/server.log")"
	grep -q lost "$TMP/client.log" || fail "no transfer was interrupted"
	say "client:" \
		"$(grep -c lost "$TMP/client.log") connections lost, then $(tail -n 1 \
		"$TMP/client.log")"
	tail -n 1 "$TMP/client.log" >>"$OUT"

	free_port port
	server "$B/apps/pattern" listen -w edge -n $N -k 3 "$port"
	wait_port "$port"
	for i in 1 2; do
		start client "$TMP/client.log" "$B/apps/pattern" connect -w block -n $N 127.0.0.1 \
			"$port"
		while_it_runs "$port"
		kill -KILL "$PID"
		wait "$PID" 2>/dev/null
	done
	client "$B/apps/pattern" connect -w block -n $N 127.0.0.1 "$port" >"$TMP/client.log" ||
		fail "last client: $(cat "$TMP/client.log")"
	finish "$SRV" 20
	(($? == 3)) || fail "server: $(cat "$TMP/server.log")"
	{
		cat "$TMP/client.log"
		grep -c lost "$TMP/server.log"
		grep "ok$" "$TMP/server.log"
	} >>"$OUT"
}
for_modes job 1000000
