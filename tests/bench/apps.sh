#!/bin/bash
# apps.sh [N] [APP...]: real programs with both ends preloaded, with one, and with none: N rounds
# (default 3), all four ways in turn, medians, as ratios to TCP of the same rounds; above 1 is
# better. Bytes are compared where the client can do it. SECS (default 2) per figure. Exit status
# 1 if a program failed; a slow one is only marked. What is copied goes to memory: a disk would be
# what is measured.
[[ -z ${TMPDIR-} && -d /dev/shm && $(df --output=avail -k /dev/shm | tail -n 1) -gt 2000000 ]] &&
	export TMPDIR=/dev/shm
. "$(dirname "$0")/../apps/lib.sh"
policy "peer_users any"	# clients are root's, PostgreSQL is not
HERE=$(dirname "${BASH_SOURCE[0]}")
ALL=(redis replica memcached nginx haproxy postgres iperf3 sockperf rsync scp openssl node grpc \
	short many)
N=${1:-3}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: apps.sh [N] [APP...]; apps: ${ALL[*]}" >&2; exit 2; }
shift || true
APPS=("$@")
((${#APPS[@]})) || APPS=("${ALL[@]}")
SECS=${SECS:-2}
[[ -n $SHIM ]] || skip "no library (SHIM=)"
: >"$TMP/figures"
LOG=$TMP/client.log
mkdir "$TMP/www"
make_file "$TMP/www/1k" 1024
make_file "$TMP/www/1m" 1048576
make_file "$TMP/www/256m" 268435456
SUM=$(sum "$TMP/www/256m")
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout "$TMP/key.pem" \
	-out "$TMP/cert.pem" 2>/dev/null ||
	fail "openssl req"
figure() {
	[[ $2 =~ ^[0-9.]+$ ]] && echo "$MODE $1 $2 $3" >>"$TMP/figures" ||
		fail "$1: no figure in: $(cat "$LOG")"
}
per_second() { awk -v a="$1" -v b="$2" -v n="$3" 'BEGIN { printf "%.2f", n / (b - a) }'; }

bench_redis() {
	local port i subs=()
	free_port port
	server redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$TMP"
	wait_port "$port"
	rb() {
		client redis-benchmark -p "$port" --csv -q "$@" >"$LOG" 2>&1 ||
			fail "redis-benchmark: $(cat "$LOG")"
	}
	rb -t set,get -n 100000 -c 50
	figure redis_SET "$(tr -d '"' <"$LOG" | awk -F, '$1 == "SET" { print $2 }')" /s
	figure redis_GET "$(tr -d '"' <"$LOG" | awk -F, '$1 == "GET" { print $2 }')" /s
	rb -t get -n 400000 -c 50 -P 16
	figure redis_GET_P16 "$(tr -d '"' <"$LOG" | awk -F, '$1 == "GET" { print $2 }')" /s
	for i in 1 2 3 4; do
		start client /dev/null redis-cli -p "$port" subscribe news
		subs+=("$PID")
	done
	within 10 subscribed "$port" 4 || fail "no subscribers"
	rb -n 20000 -c 10 publish news 0123456789abcdef0123456789abcdef
	figure redis_publish "$(tr -d '"' <"$LOG" | awk -F, 'END { print $2 }')" /s
	kill "${subs[@]}"
	stop "$SRV"
}
subscribed() { [[ $(redis-cli -p "$1" pubsub numsub news | tail -n 1) == "$2" ]]; }

bench_memcached() {
	local port t
	free_port port
	server memcached -u root -l 127.0.0.1 -p "$port" -t 2 -m 256
	wait_port "$port"
	for t in set get; do
		client memcslap -s "127.0.0.1:$port" -t $t -c 4 -e 20000 >"$LOG" 2>&1 ||
			fail "memcslap: $(cat "$LOG")"
		figure memcached_$t \
			"$(awk -v n=80000 \
			'/^Time to (set|get) / { s = $(NF - 1) } END { if (s) print n / s }' \
			"$LOG")" /s
	done
	stop "$SRV"
}

web_server() {
	start_nginx "$port" 2 <<-END
	sendfile on;
	keepalive_requests 10000000;
	server {
		listen 127.0.0.1:$port reuseport;
		listen 127.0.0.1:$tls ssl reuseport;
		ssl_certificate $TMP/cert.pem;
		ssl_certificate_key $TMP/key.pem;
		root $TMP/www;
	}
	END
}

# wrk_figure NAME CONNECTIONS URL
wrk_figure() {
	client wrk -t 1 -c "$2" -d "$SECS" "$3" >"$LOG" 2>&1 || fail "wrk: $(cat "$LOG")"
	grep -e 'Socket errors' -e 'Non-2xx' "$LOG" && fail "wrk saw errors"
	figure "$1" "$(awk '/Requests\/sec/ { print $2 }' "$LOG")" /s
}

bench_nginx() {
	local port tls
	free_port port
	free_port tls
	web_server
	wrk_figure nginx_1k 40 "http://127.0.0.1:$port/1k"
	wrk_figure nginx_1m 10 "http://127.0.0.1:$port/1m"
	wrk_figure nginx_https_1k 40 "https://127.0.0.1:$tls/1k"
	stop "$SRV"
}

bench_haproxy() {
	local port tls front back
	free_port port
	free_port tls
	free_port front
	web_server
	back=$SRV
	cat >"$TMP/haproxy.cfg" <<-END
	global
		nbthread 1
		maxconn 1000
	defaults
		mode http
		timeout client 30s
		timeout server 30s
		timeout connect 5s
		http-reuse always
	listen front
		bind 127.0.0.1:$front
		server one 127.0.0.1:$port
	END
	start server "$TMP/haproxy.log" haproxy -db -f "$TMP/haproxy.cfg"
	SRV=$PID
	wait_port "$front"
	wrk_figure haproxy_1k 40 "http://127.0.0.1:$front/1k"
	kill "$SRV"
	wait "$SRV" 2>/dev/null
	stop "$back"
}

bench_postgres() {
	local port bin how dir=$TMP/pg/stat.$MODE as=() env=()
	bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
	((EUID)) || as=(runuser -u postgres --)
	if [[ ! -d $TMP/pg ]]; then
		mkdir -m 700 "$TMP/pg"
		((EUID)) || chown postgres "$TMP/pg"
		"${as[@]}" "$bin/initdb" -D "$TMP/pg/data" -A trust -U postgres \
			--no-sync >"$TMP/initdb.log" 2>&1 || fail "initdb"
	fi
	free_port port
	"${as[@]}" mkdir -p -m 700 "$dir"
	if preloaded server; then
		shim_env
		env=(env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$dir" \
			RDMASHIM_LOG_FILE="$TMP/pg/shim.log")
	fi
	start none "$TMP/server.log" "${as[@]}" "${env[@]}" "$bin/postgres" -D "$TMP/pg/data" \
		-p "$port" -h 127.0.0.1 -k '' -c fsync=off
	SRV=$PID
	wait_port "$port"
	within 15 "$bin/pg_isready" -U postgres -q -h 127.0.0.1 -p "$port" || fail "not ready"
	[[ -e $TMP/pgbench.made ]] || "$bin/pgbench" -h 127.0.0.1 -p "$port" -U postgres \
		-i -q postgres >"$LOG" 2>&1 || fail "pgbench -i"
	touch "$TMP/pgbench.made"
	for how in simple prepared; do
		client "$bin/pgbench" -h 127.0.0.1 -p "$port" -U postgres -c 8 -T "$SECS" \
			-S -M $how postgres >"$LOG" 2>&1 || fail "pgbench: $(cat "$LOG")"
		figure pgbench_S_$how "$(awk '/^tps/ { print $3 }' "$LOG")" /s
	done
	kill -INT "$(head -n 1 "$TMP/pg/data/postmaster.pid")"
	finish "$SRV" 20 || fail "postgres: $(tail "$TMP/server.log")"
}

bench_iperf3() {
	local port how
	free_port port
	server iperf3 -s -p "$port"
	wait_port "$port"
	for how in "" "-P 4" "-R"; do
		# shellcheck disable=SC2086
		client iperf3 -c 127.0.0.1 -p "$port" -t "$SECS" -J $how >"$LOG" 2>&1 ||
			fail "iperf3: $(cat "$LOG")"
		figure "iperf3${how// /}" "$(python3 -c 'import json, sys
print(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"] / 8e6)' <"$LOG")" MB/s
	done
	kill "$SRV"
	wait "$SRV" 2>/dev/null
}

bench_sockperf() {
	local port
	free_port port
	server sockperf server --tcp -i 127.0.0.1 -p "$port"
	wait_port "$port"
	client sockperf ping-pong --tcp -i 127.0.0.1 -p "$port" -t "$SECS" -m 64 --mps 500000 \
		>"$LOG" 2>&1 || fail "sockperf: $(cat "$LOG")"
	figure sockperf_pp "$(sed -n 's/.*avg-latency=\([0-9.]*\).*/\1/p' "$LOG" | tail -n 1)" us
	client sockperf under-load --tcp -i 127.0.0.1 -p "$port" -t "$SECS" -m 64 --mps 20000 \
		--reply-every 10 >"$LOG" 2>&1 || fail "sockperf: $(cat "$LOG")"
	# on a busy machine it may call all observations too late
	grep -q 'No valid observations' "$LOG" ||
		figure sockperf_load \
		"$(sed -n 's/.*avg-latency=\([0-9.]*\).*/\1/p' "$LOG" | tail -n 1)" us
	client sockperf throughput --tcp -i 127.0.0.1 -p "$port" -t "$SECS" -m 1024 >"$LOG" 2>&1 ||
		fail "sockperf: $(cat "$LOG")"
	figure sockperf_tp "$(sed -n 's/.*BandWidth is \([0-9.]*\) MBps.*/\1/p' "$LOG" |
		tail -n 1)" MB/s
	kill -INT "$SRV"
	wait "$SRV" 2>/dev/null
}

bench_rsync() {
	local port a b
	free_port port
	cat >"$TMP/rsyncd.conf" <<-END
	use chroot = no
	uid = $(id -u)
	gid = $(id -g)
	pid file = $TMP/rsyncd.pid
	[www]
	path = $TMP/www
	END
	rm -f "$TMP/rsyncd.pid" "$TMP/copy"
	server rsync --daemon --no-detach --port "$port" --address 127.0.0.1 \
		--config "$TMP/rsyncd.conf"
	wait_port "$port"
	a=$EPOCHREALTIME
	client rsync --whole-file "rsync://127.0.0.1:$port/www/256m" "$TMP/copy" >"$LOG" 2>&1 ||
		fail "rsync: $(cat "$LOG")"
	b=$EPOCHREALTIME
	[[ $(sum "$TMP/copy") == "$SUM" ]] || fail "rsync: wrong bytes"
	figure rsync_256m "$(per_second "$a" "$b" 268.4)" MB/s
	stop "$SRV"
}

bench_openssl() {
	local port a b
	free_port port
	cd "$TMP/www" || exit 1
	server openssl s_server -accept "127.0.0.1:$port" -cert "$TMP/cert.pem" \
		-key "$TMP/key.pem" -WWW -quiet
	cd "$TOP" || exit 1
	wait_port "$port"
	get() {
		printf 'GET /256m HTTP/1.0\r\n\r\n' |
			client openssl s_client -connect "127.0.0.1:$port" -quiet -ign_eof 2>"$LOG"
	}
	get >"$TMP/copy"
	[[ $(tail -c 268435456 "$TMP/copy" | sha256sum | cut -d' ' -f1) == "$SUM" ]] ||
		fail "openssl: wrong bytes: $(cat "$LOG")"
	rm "$TMP/copy"
	a=$EPOCHREALTIME
	get >/dev/null
	b=$EPOCHREALTIME
	figure openssl_256m "$(per_second "$a" "$b" 268.4)" MB/s
	stop "$SRV"
}

bench_node() {
	local port
	command -v node >/dev/null || { echo "no node" >&2; return; }
	free_port port
	server node \
		-e 'require("http").createServer((q, r) => r.end("x".repeat(1024)))
				.listen(+process.argv[1], "127.0.0.1")' "$port"
	wait_port "$port"
	wrk_figure node_1k 40 "http://127.0.0.1:$port/"
	stop "$SRV"
}

# A full copy of 200 MB to a new replica, then commands with the replica behind them: the load
# comes from a program without the library, and the time ends when the replica has them. The same
# data at both in the end.
bench_replica() {
	local master replica copy a b dir=$TMP/replica.$MODE
	ask() { redis-cli -p "$1" "${@:2}" 2>/dev/null; }
	copied() {
		[[ $(ask "$replica" info replication | tr -d '\r' |
			sed -n 's/^master_link_status://p') == up ]]
	}
	rm -rf "$dir"	# what the last round dumped would be loaded
	mkdir -p "$dir/m" "$dir/r"
	free_port master
	free_port replica
	server redis-server --port "$master" --bind 127.0.0.1 --save "" --dir "$dir/m" \
		--enable-debug-command yes --repl-diskless-sync-delay 0
	wait_port "$master"
	ask "$master" debug populate 400000 key 500 >/dev/null
	start client "$TMP/replica.log" redis-server --port "$replica" --bind 127.0.0.1 --save "" \
		--dir "$dir/r" --enable-debug-command yes
	copy=$PID
	wait_port "$replica"
	a=$EPOCHREALTIME
	ask "$replica" replicaof 127.0.0.1 "$master" >/dev/null
	within 60 copied || fail "no copy: $(tail -n 5 "$TMP/replica.log")"
	b=$EPOCHREALTIME
	figure replica_copy "$(per_second "$a" "$b" 200)" MB/s
	a=$EPOCHREALTIME
	redis-benchmark -p "$master" -t set -r 400000 -n 300000 -d 500 -c 20 -P 16 \
		-q --csv >"$LOG" 2>&1 || fail "redis-benchmark: $(cat "$LOG")"
	# WAIT is for what was written before it on the same connection
	[[ $(printf 'set last one\nwait 1 60000\n' | ask "$master") == $'OK\n1' ]] ||
		fail "the replica is behind"
	b=$EPOCHREALTIME
	figure replica_SET_P16 "$(per_second "$a" "$b" 300000)" /s
	[[ $(ask "$master" debug digest) == $(ask "$replica" debug digest) ]] ||
		fail "the copy differs"
	stop "$copy"
	stop "$SRV"
}

bench_scp() {
	local port a b opts
	free_port port
	if [[ ! -e $TMP/ssh ]]; then
		mkdir -m 700 "$TMP/ssh"
		((EUID)) || mkdir -p -m 755 /run/sshd
		ssh-keygen -q -t ed25519 -N '' -f "$TMP/ssh/host" &&
			ssh-keygen -q -t ed25519 -N '' -f "$TMP/ssh/key" || fail "ssh-keygen"
	fi
	printf '%s\n' "Port $port" "ListenAddress 127.0.0.1" "HostKey $TMP/ssh/host" \
		"AuthorizedKeysFile $TMP/ssh/key.pub" "PidFile $TMP/ssh/pid" \
		"StrictModes no" "UsePAM no" "PermitRootLogin yes" "PasswordAuthentication no" \
		"KbdInteractiveAuthentication no" "Subsystem sftp internal-sftp" >"$TMP/ssh/config"
	opts=(-q -F none -i "$TMP/ssh/key" -P "$port" -o BatchMode=yes -o StrictHostKeyChecking=no \
		-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR)
	server "$(command -v sshd)" -D -e -f "$TMP/ssh/config"
	wait_port "$port"
	rm -f "$TMP/copy"
	a=$EPOCHREALTIME
	client timeout 60 scp "${opts[@]}" "127.0.0.1:$TMP/www/256m" "$TMP/copy" >"$LOG" 2>&1 \
		</dev/null || fail "scp: $(cat "$LOG" "$TMP/server.log")"
	b=$EPOCHREALTIME
	[[ $(sum "$TMP/copy") == "$SUM" ]] || fail "scp: wrong bytes"
	figure scp_256m "$(per_second "$a" "$b" 268.4)" MB/s
	stop "$SRV"
}

# The client compares every answer.
bench_grpc() {
	local port pair=(/usr/bin/python3 "$TOP/tests/apps/grpc-pair.py")
	free_port port
	server "${pair[@]}" server "$port"
	wait_port "$port"
	client timeout 100 "${pair[@]}" bench "$port" "$SECS" >"$LOG" 2>&1 ||
		fail "grpc: $(tail -n 5 "$LOG")"
	figure grpc_one_by_one "$(awk '$1 == "one" { print $2 }' "$LOG")" /s
	figure grpc_32_at_once "$(awk '$1 == "many" { print $2 }' "$LOG")" /s
	figure grpc_1MB "$(awk '$1 == "mb" { print $2 }' "$LOG")" MB/s
	stop "$SRV"
}

# 100,000 connections, ended in every way; both ends check all bytes and ends, and what they print
# is the same each time.
bench_short() {
	local port n=${SHORT:-100000} a b
	free_port port
	server "$B/apps/short" server -n "$n" -t 6 -s 2 "$port"
	wait_port "$port"
	a=$EPOCHREALTIME
	client timeout 300 "$B/apps/short" client -n "$n" -t 6 -s 2 "$port" >"$LOG" 2>&1 ||
		fail "short: $(cat "$LOG")"
	b=$EPOCHREALTIME
	finish "$SRV" 20 || fail "short: $(cat "$TMP/server.log")"
	cat "$LOG" "$TMP/server.log" >"$TMP/short.now"
	[[ -e $TMP/short.want ]] || cp "$TMP/short.now" "$TMP/short.want"
	cmp "$TMP/short.want" "$TMP/short.now" || fail "short: not what came before"
	figure "short_$n" "$(per_second "$a" "$b" "$n")" /s
}

# Connections that are all open at once, 1 % of them busy at a time; the client compares what is
# answered.
bench_many() {
	local port n=${MANY:-10000}
	(($(ulimit -n) > n + n / 4)) || { echo "many: only $(ulimit -n) open files" >&2; return; }
	free_port port
	server "$B/bench/many" server "$port"
	wait_port "$port"
	client timeout 300 "$B/bench/many" client "$port" "$n" "$SECS" >"$LOG" 2>&1 ||
		fail "many: $(cat "$LOG")"
	finish "$SRV" 60 || fail "many: $(cat "$TMP/server.log")"
	figure "many_$n" "$(awk '$1 == "many_rate" { print $2 }' "$LOG")" /s
	figure "many_${n}_cpu" "$(awk '$1 == "many_cpu" { print $2 }' "$LOG")" us
}

ulimit -n "$(ulimit -Hn)" 2>/dev/null
for ((round = 1; round <= N; round++)); do
	for app in "${APPS[@]}"; do
		echo "round $round of $N: $app" >&2
		for m in bare both client server; do
			begin_mode $m
			"bench_$app"
		done
	done
done
mkdir -p "$B/bench"
python3 "$HERE/table.py" "$TMP/figures" /dev/null "$B/bench/apps.svg" both client server |
	tee "$B/bench/apps.txt"
