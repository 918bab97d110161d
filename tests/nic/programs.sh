#!/bin/bash
# TIMEOUT: 180
# Programs that others wrote for cards run on the simulated device as they are: perftest and rping.
. "$(dirname "$0")/lib.sh"
for p in ib_send_lat ib_write_bw ib_read_bw rping; do
	command -v $p >/dev/null || skip "no $p (Debian: perftest, rdmacm-utils)"
done

listens() { ctl listens "$1" 2>/dev/null; }

# ends SERVER... -- CLIENT...: two processes on two nodes.
ends() {
	local server=() pid
	while [[ $1 != -- ]]; do server+=("$1"); shift; done
	shift
	on a timeout 60 "${server[@]}" >"$TMP/server" 2>&1 &
	pid=$!
	PIDS+=("$pid")
	within 20 listens "$PORT" || fail "${server[*]}: does not listen: $(cat "$TMP/server")"
	on b timeout 60 "$@" >"$TMP/client" 2>&1 && wait "$pid" && return
	kill -KILL "$pid" 2>/dev/null
	wait "$pid"
	return 1
}

ping() {
	((PORT++))
	ends rping -s -a "$1" -p $PORT -V -C 20 -S 1000 -- \
		rping -c -a "$1" -p $PORT -V -C 20 -S 1000 ||
		fail "rping $1: $(tail -n 20 "$TMP/client" "$TMP/server")"
	say "rping $1: 20 round trips of 1000 bytes are right"
}

# perf PROGRAM OPTIONS: connected by librdmacm (-R). Its server listens twice, and its client gives
# up, or crashes, when it comes between.
perf() {
	local tries
	for tries in 1 2 3 4 5 6; do
		((PORT++))
		ends "$@" -F -R -p "$PORT" -- "$@" -F -R -p "$PORT" 127.0.0.1 && break
		((tries < 6)) || fail "$*: $(tail -n 20 "$TMP/client" "$TMP/server")"
	done 2>/dev/null
	grep -E '^ *[0-9]+ +[0-9]+ ' "$TMP/client" >"$TMP/figures" ||
		fail "$*: $(cat "$TMP/client")"
	say "$*: $(tr -s ' \t' ' ' <"$TMP/figures")"
}

free_port PORT
for profile in mlx5 iwarp; do
	device "profile=$profile"
	ping 127.0.0.1
	ping ::1
	perf ib_send_lat -e -s 64 -n 200
	perf ib_write_bw -s 65536 -n 200
	perf ib_read_bw -s 65536 -n 200
	no_device
done
