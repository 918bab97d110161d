#!/bin/bash
# Connections between network namespaces of one host: over a bridge, and by NAT as containers have
# it. All are upgraded, and every byte is right.
# TIMEOUT: 300
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
networks_for "$(dirname "$0")/../hostile/across.py"

apart=()
# bench NAME SERVER CLIENT ADDRESS PORT [WHERE THE SERVER LISTENS]
bench() {
	local server
	begin_mode "$1"
	across 'earn_share off'
	port=23001
	start shim "$TMP/server.log" nsenter -t "$2" -n "${apart[@]}" \
		"$B/bench/sockbench" -s "$port" ${6:+-b "$6"}
	server=$PID
	within 15 listens "$2" || fail "nobody listens"
	run_with shim nsenter -t "$3" -n "${apart[@]}" "$B/bench/sockbench" -c "$4" "$5" -q -v \
		>"$TMP/client.log" 2>&1 || fail "client: $(cat "$TMP/client.log")"
	finish "$server" 15 || fail "server: $(cat "$TMP/server.log")"
	grep -qx 'bad_blocks 0 blocks' "$TMP/client.log" || fail "bad blocks"
	collect
	say "$FAST of $TX_ALL+$RX_ALL bytes on a fast path, on TCP because: $REASONS;" \
		"$(grep -E '^(rtt_64|stream_16384) ' "$TMP/client.log" | tr '\n' ' ')"
	((FAST * 100 > (TX_ALL + RX_ALL) * 95)) || fail "not upgraded"
	((${#apart[@]})) || balanced "$1"	# else both are process 1, and have one file
	[[ -z $(ls -A "$DIR") ]] || fail "left in the directory: $(ls -A "$DIR")"
}
bench bridge "$N_B" "$N_A" 10.77.0.3 23001
bench dnat "$N_B" "$N_A" 10.96.0.1 23080
bench masquerade "$N_B" "$N_A" 10.96.0.1 23081
bench hairpin "$N_A" "$N_A" 10.96.0.1 23082
bench published "$N_B" "$N_R" 10.77.0.1 23084
bench ipv6 "$N_B" "$N_A" fd77::3 23001 fd77::3
bench ipv6-dnat "$N_B" "$N_A" fd96::1 23080 fd77::3
# Neither knows the other's process id.
apart=(unshare --pid --fork --mount-proc --ipc --uts)
bench processes "$N_B" "$N_A" 10.96.0.1 23081

# One end is killed while bytes are under way: the other hears of it as of any end, and soon.
apart=()
killed() {
	local server t
	rm -f "$TMP/go"
	begin_mode "killed-$1"
	across 'earn_share off'
	port=23001
	serves shim python3 "$TMP/across.py" server 0.0.0.0 "$port"
	start shim "$TMP/client.log" nsenter -t "$N_A" -n python3 "$TMP/across.py" client \
		10.96.0.1 23081 word "$TMP/go"
	within 15 grep -qs 'send cut over' "$TMP/shim.killed-$1" || fail "not joined"
	t=$SECONDS
	if [[ $1 == server ]]; then
		kill -KILL "$server"
		touch "$TMP/go"		# it goes on
		finish "$PID" 5 && fail "the client has not heard of it"
		grep -qE 'the end|Reset|reset|Broken' "$TMP/client.log" ||
			fail "$(cat "$TMP/client.log")"
	else
		kill -KILL "$PID"
		within 5 grep -qs 'ended: ' "$TMP/shim.killed-$1" || fail "the server's link lives"
		kill -KILL "$server"
	fi
	say "heard within $((SECONDS - t)) s"
}
killed server
killed client

# Later connections of the same two processes ride one link: 50 clients of one program.
if command -v redis-server redis-benchmark >/dev/null; then
	begin_mode redis
	across
	port=23001
	start shim "$TMP/server.log" nsenter -t "$N_B" -n redis-server --port "$port" \
		--bind 0.0.0.0 --save "" --protected-mode no
	server=$PID
	within 15 listens "$N_B" || fail "no redis"
	run_with shim nsenter -t "$N_A" -n redis-benchmark -h 10.96.0.1 -p 23081 -t set,get \
		-n 200000 -c 50 -q >"$TMP/client.log" 2>&1 || fail "$(cat "$TMP/client.log")"
	run_with shim nsenter -t "$N_A" -n redis-cli -h 10.96.0.1 -p 23081 set k v >/dev/null
	[[ $(run_with shim nsenter -t "$N_C" -n redis-cli -h 10.77.0.3 get k) == v ]] || true
	stop "$server"
	collect
	say "$FAST of $TX_ALL+$RX_ALL bytes on a fast path, on TCP because: $REASONS;" \
		"$(tr '\r\n' '  ' <"$TMP/client.log" | grep -oE '(SET|GET): [0-9.]+ requests' |
		tr '\n' ' ')"
	((FAST * 100 > (TX_ALL + RX_ALL) * 50)) || fail "not upgraded"
	links=$(grep -hc 'bound to slot' "$TMP/shim.redis")
	made=$(grep -h 'bound to slot' "$TMP/shim.redis" | grep -oE 'link [0-9]+ \(pid [0-9]+' |
		sort -u | wc -l)
	say "$links streams on $made ends of links"
	((made * 8 < links)) || fail "later connections do not ride the same link"
fi

# Off by default: no directory, no key.
bench_tcp() {
	local server
	begin_mode "$1"
	shift
	policy 'earn_share off' 'log_level 3' "$@"
	port=23001
	start shim "$TMP/server.log" nsenter -t "$N_B" -n "$B/bench/sockbench" -s "$port"
	server=$PID
	within 15 listens "$N_B" || fail "nobody listens"
	# without CAP_NET_RAW, which has headers in any case
	run_with shim nsenter -t "$N_A" -n setpriv --bounding-set -net_raw \
		"$B/bench/sockbench" -c 10.77.0.3 "$port" -q -v -t 1 -f rtt_64 \
		>"$TMP/client.log" 2>&1 || fail "client: $(cat "$TMP/client.log")"
	finish "$server" 15 || fail "server: $(cat "$TMP/server.log")"
	collect
	say "$FAST bytes on a fast path, on TCP because: $REASONS"
	((FAST == 0)) || fail "upgraded"
	[[ $REASONS == *"$WHY"* ]] || fail "no reason $WHY"
}
WHY=other-namespace bench_tcp default
WHY=no-trust bench_tcp keyless "cross_ns_dir $DIR"
in_net "$N_A" sysctl -qw net.core.tstamp_allow_data=0
WHY=no-header bench_tcp headerless "cross_ns_dir $DIR" "key_file $TMP/key" 'discovery 300ms'
exit 0
