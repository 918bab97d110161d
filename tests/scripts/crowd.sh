#!/bin/bash
# crowd.sh [SECS [CONNECTIONS]]: 10,000 connections to redis and nginx, half to each, from
# PROCS=50 processes that look at every byte of every answer. Every second a peer is killed and
# made again: one of the processes, every tenth time a worker of nginx; one more is stopped for
# ever in the middle of its requests. Nobody else may see a wrong byte, a lost connection or a
# stall of two minutes. A line every 10 s. BARE=1: without the library. FORCE=10ms: each
# connection is cut over and rewound that often besides. LOG=4: what the library logs, kept if
# something is wrong.
SECS=${1:-300} CONNECTIONS=${2:-10000} PROCS=${PROCS:-50}
[[ $SECS =~ ^[1-9][0-9]*$ && $CONNECTIONS =~ ^[1-9][0-9]*$ ]] ||
	{ echo "usage: crowd.sh [SECS [CONNECTIONS]]" >&2; exit 2; }
. "$(dirname "$0")/../apps/lib.sh"
C=$B/hostile/crowd
[[ -x $C ]] || fail "no $C"
[[ -n $SHIM ]] || BARE=1
role=shim
[[ -n ${BARE-} ]] && role=none
MODE=both
begin_mode both
ulimit -n "$((CONNECTIONS * 3 / 2 + 4096))" 2>/dev/null || skip "too few descriptors: $(ulimit -n)"
each=$((CONNECTIONS / PROCS))
free_port redis
free_port web
mkdir "$TMP/www"
i=0
for n in 1 100 700 1500 4096 9000 30000 65536 200000 1000000; do
	make_file "$TMP/www/f$((i++))" "$n"
done
cat >"$TMP/nginx.conf" <<-END
	worker_processes 2;
	worker_rlimit_nofile $((CONNECTIONS * 3 / 2 + 4096));
	daemon off;
	user root;
	pid $TMP/nginx.pid;
	error_log $TMP/nginx-error.log crit;
	events { worker_connections $CONNECTIONS; }
	http {
		access_log off;
		client_body_temp_path $TMP/body; proxy_temp_path $TMP/proxy;
		fastcgi_temp_path $TMP/f; uwsgi_temp_path $TMP/u; scgi_temp_path $TMP/s;
		keepalive_requests 1000000000;
		keepalive_timeout 1d;
		server { listen 127.0.0.1:$web backlog=4096; root $TMP/www; }
	}
END
policy "earn_bytes 0" "earn_rounds 0" "log_level ${LOG:-1}" ${FORCE:+"force_cut_every $FORCE"}

bad() {
	local kept
	kept=$(mktemp -d /tmp/rdmashim-crowd-failed.XXXXXX)
	tail -qc 200M "$TMP"/shim.* >"$kept/shim.log" 2>/dev/null
	cp "$TMP"/*.log "$TMP"/*.state "$CONF" "$kept" 2>/dev/null
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all >"$kept/counters" 2>/dev/null
	fail "$* (kept: $kept)"
}

# crowd NUMBER: that process, (again).
crowd() {
	start $role "$TMP/crowd$1.log" "$C" "$redis" "$web" "$each" "$TMP/www" \
		"$TMP/crowd$1.state" mortal
	member[$1]=$PID
	PIDS=("$redis_pid" "$nginx_pid" ${stopped:+"$stopped"} "${member[@]}")
}
# Words of a state file: requests, bytes, lost, open now, slowest request. Of all of them
# together, with those of the killed.
word() { od -An -v -w40 -tu8 "$@" 2>/dev/null; }
sums() {
	word "$TMP"/crowd[0-9]*.state |
		awk -v r="${dead[0]}" -v b="${dead[1]}" -v l="${dead[2]}" -v s="$slowest" \
		'NF == 5 { r += $1; b += $2; l += $3; o += $4; if ($5 > s) s = $5 } END {
			printf "%.0f %.0f %.0f %.0f %.0f\n", r, b, l, o, s }'
}
all_open() { read -r _ _ _ open _ < <(sums); ((open >= each * PROCS)); }
# As gone(), without a process for each.
ended() { local s; ! read -r _ _ s _ <"/proc/$1/stat" || [[ $s == Z ]]; } 2>/dev/null
well() {
	local i
	ended "$redis_pid" && bad "redis ended: $(tail -n 3 "$TMP/redis.log")"
	ended "$nginx_pid" && bad "nginx ended"
	for ((i = 0; i < PROCS; i++)); do
		ended "${member[$i]}" &&
			bad "process $i ended: $(grep -v '^Killed' "$TMP/crowd$i.log")"
	done
}
counted() {
	[[ $role == none ]] && { echo 0 0 0 0 0 0; return; }
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all 2>/dev/null | tee "$TMP/counters" |
		python3 -S -E -c 'import json, sys
t = json.load(sys.stdin)["total"]
print(t["bytes"]["shm"] + t["bytes"]["rdma"], t["bytes"]["tcp"], t["counters"]["cuts"],
    t["counters"]["bad_peer"], t["connections"], t["connections_fast"])'
}
line() {
	local s
	read -ra s < <(sums)
	printf '%5d s: %d requests, %d MB, %d connections open, %d lost to killed workers; '\
'killed %d processes, %d workers; slowest request %d ms\n' \
		"$((SECONDS - begin))" "${s[0]}" "$((s[1] / 1000000))" "${s[3]}" "${s[2]}" \
		"$kills" "$workers" "${s[4]}"
}

start $role "$TMP/redis.log" redis-server --port "$redis" --bind 127.0.0.1 --save "" --dir "$TMP" \
	--maxclients "$CONNECTIONS" --tcp-backlog 4096 --client-output-buffer-limit "normal 0 0 0"
redis_pid=$PID
start $role "$TMP/nginx.log" nginx -c "$TMP/nginx.conf" -e "$TMP/nginx-error.log"
nginx_pid=$PID
wait_port "$redis"
wait_port "$web"
declare -A member=()
dead=(0 0 0) kills=0 workers=0 stopped='' slowest=0
for ((i = 0; i < PROCS; i++)); do crowd "$i"; done
within 600 all_open || bad "only $open connections after ten minutes"
say "$open connections"
start $role "$TMP/stopped.log" "$C" "$redis" "$web" "$each" "$TMP/www" "$TMP/crowdS.state" mortal
stopped=$PID
asked() { read -ra w < <(word "$TMP/crowdS.state"); ((${w[0]-0} > 100)); } 2>/dev/null
within 600 asked || bad "the process that is to be stopped does not get going"
kill -STOP "$stopped"
begin=$SECONDS told=$SECONDS turn=0
while ((SECONDS - begin < SECS)); do
	turn=$((turn + 1))
	if ((turn % 10 == 0)); then
		p=$(pgrep -P "$nginx_pid" | shuf -n 1)
		[[ -n $p ]] && kill -KILL "$p" && workers=$((workers + 1))
	else
		i=$((RANDOM % PROCS))
		{ kill -KILL "${member[$i]}"; wait "${member[$i]}"; } 2>/dev/null
		kills=$((kills + 1))
		read -ra w < <(word "$TMP/crowd$i.state")
		for k in 0 1 2; do dead[k]=$((dead[k] + w[k])); done
		((w[4] > slowest)) && slowest=${w[4]}
		rm -f "$TMP/crowd$i.state"
		crowd "$i"
	fi
	sleep 1
	well
	((SECONDS - told >= 10)) && { line; told=$SECONDS; }
done
within 600 all_open || bad "only $open connections at the end"
line
read -r fast tcp cuts liars ends found < <(counted)
for ((i = 0; i < PROCS; i++)); do kill -TERM "${member[$i]}"; done
for ((i = 0; i < PROCS; i++)); do
	finish "${member[$i]}" 120 || bad "process $i: $(tail -n 3 "$TMP/crowd$i.log")"
done
kill -KILL "$stopped"
stop "$redis_pid"
stop "$nginx_pid"
echo "fast path ${fast:-?} bytes, TCP ${tcp:-?}, ${found:-?} of ${ends:-?} ends found the other" \
	"one, ${cuts:-?} cuts, taken for liars ${liars:-?}"
[[ $role == none || (${fast:-0} -gt 0 && ${cuts:-0} -ge $CONNECTIONS) ]] ||
	fail "most were never cut over"
((${liars:-0} == 0)) || fail "somebody was taken for a liar"
echo "crowd: $SECS s, $CONNECTIONS connections, $kills processes and $workers workers killed," \
	"nothing wrong"
