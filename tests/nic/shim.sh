#!/bin/bash
# TIMEOUT: 180
# The library's RDMA path between two processes on two simulated nodes: checked streams, and that
# they went by RDMA; then what a device may do to them, while they run. Every byte must be right.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0'
P=$B/apps/pattern

start() {
	free_port PORT
	preloaded a "$P" listen "$@" "$PORT" >"$TMP/server" 2>&1 &
	SERVER=$!
	PIDS+=("$SERVER")
	within 20 listening "$PORT" || fail "server: $(cat "$TMP/server")"
}

# streams OPTIONS: to their end.
streams() {
	start "$@"
	preloaded b "$P" connect "$@" 127.0.0.1 "$PORT" >"$TMP/client" 2>&1 ||
		fail "$*: $(cat "$TMP/client" "$TMP/server" "$TMP/log")"
	wait "$SERVER" || fail "server of $*: $(cat "$TMP/server" "$TMP/log")"
}

figures() { od -An -tu8 -N16 "$TMP/bytes"; }
moved() { [[ $(figures) != "$1" ]]; }
# Both directions of all streams go on.
goes_on() {
	for _ in 1 2 3; do
		within 30 moved "$(figures)" ||
			fail "after $1 the streams stand still: $(tail -n 5 "$TMP/log")"
	done
	kill -0 "$SERVER" "$CLIENT" || fail "after $1: $(cat "$TMP/client" "$TMP/server")"
}

again() { (($(paths_up) > $1)); }
# fault NAME COMMAND...: and the path comes back.
fault() {
	local n c
	n=$(paths_up)
	for c in "${@:2}"; do
		# shellcheck disable=SC2086
		ctl $c || fail "ctl $c"
		goes_on "$c"
	done
	[[ $1 == same ]] || within 30 again "$n" || fail "after ${*:2} the path did not come back"
	goes_on "$*"
	say "${*:2}: goes on"
}

for profile in mlx5 iwarp; do
	reads=16
	[[ $profile == mlx5 ]] || reads=3
	device "profile=$profile" "max_rd_atom=$reads"
	streams -w epoll -d both -k 3 -n 20000000
	bytes=$(by_rdma)
	((bytes > 60000000)) || fail "$profile: only $bytes bytes by RDMA: $(cat "$TMP/log")"
	[[ $(grep -c "RDMA path up.*, $reads reads" "$TMP/log") == "$(paths_up)" ]] ||
		fail "$profile: not $reads READs under way: $(grep 'path up' "$TMP/log")"
	say "$profile: $bytes bytes by RDMA"
	: >"$TMP/log"
	no_device
done

device profile=mlx5
start -w block -d both -k 2 -n 1000000000000 -s 4000
SIMNIC_NODE=b LD_LIBRARY_PATH=$NIC LD_PRELOAD=$PRELOAD "$P" connect -p "$TMP/bytes" -w poll \
	-d both -k 2 -n 1000000000000 -s 4000 127.0.0.1 "$PORT" >"$TMP/client" 2>&1 &
CLIENT=$!
PIDS+=("$CLIENT")
within 20 test -s "$TMP/bytes" || fail "no streams: $(cat "$TMP/client")"
within 30 again 0 || fail "no path: $(cat "$TMP/log")"
goes_on "the start"
fault same "set loss_ppm=2000" "set loss_ppm=0"
fault same "set delay_ns=50000" "set delay_ns=1000"
fault same "stall a 200"
fault back "fail a"
fault back "fail b"
fault same "down a" "up a"
fault back "remove b" "add b"
disown "$CLIENT" # nobody wants to hear of its end
kill -KILL "$CLIENT"
wait "$SERVER"
rc=$?
((rc == 3)) || fail "server after the client's death: status $rc, $(cat "$TMP/server")"
exit 0
