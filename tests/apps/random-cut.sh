#!/bin/bash
# random-cut.sh [SECS] [PROGRAM...]: every upgraded connection is rewound and cut over again every
# 10 ms, under real programs, each for SECS seconds (3; `make random-cut`: 60): sockbench -v,
# redis-benchmark, a 1 GB download from nginx, pgbench, an asyncio echo with 500 clients, verified
# streams. Nothing may be wrong or hang.
# TIMEOUT: 240
SECS=${1:-3}
[[ $SECS =~ ^[1-9][0-9]*$ ]] || { echo "usage: random-cut.sh [SECS] [PROGRAM...]" >&2; exit 2; }
shift || true
. "$(dirname "$0")/lib.sh"
PROGRAMS=${*:-sockbench redis nginx postgres asyncio pattern}
# Rings give their memory back as soon as they may. The users are root and postgres.
policy 'force_cut_every 10ms' 'earn_bytes 0' 'earn_rounds 0' 'peer_users any' 'ring_idle 1ms'
MODES=bare${SHIM:+ both}

# for_secs CMD...: again and again until the time is over; a command that takes longer than 60 s
# hangs.
for_secs() {
	local end=$((SECONDS + SECS)) n=0
	while ((SECONDS < end)); do
		"$@" || return 1
		n=$((n + 1))
	done
	say "$n times ${1#run_}"
}

run_sockbench() {
	free_port port
	server "$B/bench/sockbench" -s "$port"
	wait_port "$port"
	client timeout 60 "$B/bench/sockbench" -c 127.0.0.1 "$port" -q -v >"$TMP/client.log" 2>&1 ||
		fail "sockbench, status $?: $(cat "$TMP/client.log")"
	grep -qx 'bad_blocks 0 blocks' "$TMP/client.log" || fail "$(tail -n 1 "$TMP/client.log")"
	finish "$SRV" 10 || fail "sockbench server: $(cat "$TMP/server.log")"
}
job_sockbench() { for_secs run_sockbench; }

run_redis() {
	client timeout 60 redis-benchmark -p "$port" -t set,get -n "$((SECS * 10000))" -c 50 \
		-P "$1" -q --csv >"$TMP/client.log" 2>&1 ||
		fail "redis-benchmark, status $?: $(tail "$TMP/client.log")"
	grep -qi error "$TMP/client.log" && fail "$(cat "$TMP/client.log")"
	client timeout 60 redis-cli -p "$port" -x set big <"$TMP/data" >/dev/null ||
		fail "redis-cli set"
	[[ $(client timeout 60 redis-cli -p "$port" --raw get big | head -c 3000000 |
		sha256sum) == "$want" ]] || fail "a wrong value"
}
job_redis() {
	head -c 3000000 /dev/urandom >"$TMP/data"
	want=$(sha256sum <"$TMP/data")
	free_port port
	server redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$TMP"
	wait_port "$port"
	for_secs run_redis $((RANDOM % 16 + 1))
	client redis-cli -p "$port" shutdown nosave
	finish "$SRV" 15 || fail "redis-server"
}

run_nginx() {
	local got
	got=$(client curl -sS --max-time 60 "http://127.0.0.1:$port/1g" | sha256sum)
	[[ $got == "$want" ]] || fail "1 GB came wrong"
}
job_nginx() {
	mkdir -p "$TMP/www"
	[[ -s $TMP/www/1g ]] || make_file "$TMP/www/1g" 1000000000
	want=$(sha256sum <"$TMP/www/1g")
	free_port port
	start_nginx "$port" 2 <<<"server { listen 127.0.0.1:$port; root $TMP/www; }"
	for_secs run_nginx
	stop "$SRV"
	rm -f "$TMP/www/1g"
}

job_postgres() {
	local bin as=() user=postgres dir
	bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
	[[ -x $bin/initdb ]] || { say "no PostgreSQL here"; return; }
	id postgres >/dev/null 2>&1 || user=nobody
	mkdir -p -m 700 "$TMP/pg"
	((EUID)) || { chown "$user" "$TMP/pg"; as=(runuser -u "$user" --); }
	dir=$TMP/pg/stat.$MODE
	"${as[@]}" mkdir -p -m 700 "$dir"
	[[ -d $TMP/pg/data ]] || "${as[@]}" "$bin/initdb" -D "$TMP/pg/data" -A trust -U postgres \
		--no-sync >"$TMP/initdb.log" 2>&1 || fail "initdb"
	free_port port
	SHIM_ENV=()
	preloaded server && shim_env postgres
	start none "$TMP/server.log" "${as[@]}" env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$dir" \
		RDMASHIM_LOG_FILE="$TMP/pg/shim.log" \
		"$bin/postgres" -D "$TMP/pg/data" -p "$port" -h 127.0.0.1 -k '' -c fsync=off
	SRV=$PID
	wait_port "$port"
	within 15 "$bin/pg_isready" -U postgres -q -h 127.0.0.1 -p "$port" || fail "not ready"
	local pg=(-h 127.0.0.1 -p "$port" -U postgres)
	client timeout 60 "$bin/pgbench" "${pg[@]}" -i -q postgres >"$TMP/client.log" 2>&1 ||
		fail "pgbench -i: $(cat "$TMP/client.log")"
	client timeout $((SECS + 60)) "$bin/pgbench" "${pg[@]}" -c 8 -j 2 -T "$SECS" \
		postgres >"$TMP/client.log" 2>&1 ||
		fail "pgbench, status $?: $(cat "$TMP/client.log")"
	grep -q 'number of failed transactions: 0' "$TMP/client.log" ||
		fail "pgbench: $(cat "$TMP/client.log")"
	say "pgbench: $(grep 'actually processed' "$TMP/client.log")"
	[[ $(client timeout 60 "$bin/psql" "${pg[@]}" \
		-X -q -A -t -c \
		'select sum(delta) = (select sum(abalance) from pgbench_accounts)
		from pgbench_history') == t ]] ||
		fail "the accounts don't add up"
	[[ $(client timeout 60 "$bin/psql" "${pg[@]}" \
		-X -q -A -t -c \
		"select i, repeat(md5(i::text), 10) from generate_series(1, 60000) i" |
		sha256sum) == \
		$("$bin/psql" "${pg[@]}" \
		-X -q -A -t -c \
		"select i, repeat(md5(i::text), 10) from generate_series(1, 60000) i" |
		sha256sum) ]] || fail "psql got something else"
	kill -INT "$(head -n 1 "$TMP/pg/data/postmaster.pid")"
	finish "$SRV" 20 || fail "postgres"
}

job_asyncio() {
	free_port port
	server python3 "$TOP/tests/apps/asyncio-echo.py" server "$port"
	wait_port "$port"
	client timeout $((SECS + 90)) python3 "$TOP/tests/apps/asyncio-echo.py" client "$port" 500 \
		0 "$SECS" >"$TMP/client.log" 2>&1 ||
		fail "clients: $(tail "$TMP/client.log")"
	say "$(tail -n 1 "$TMP/client.log" | tr '\n' ' ')"
	stop "$SRV"
}

run_pattern() {
	local how=$1
	free_port port
	server "$B/apps/pattern" listen -w "$how" -k 4 -n 50000000 "$port"
	wait_port "$port"
	client timeout 60 "$B/apps/pattern" connect -w "$how" -k 4 -n 50000000 127.0.0.1 \
		"$port" >"$TMP/client.log" 2>&1 || fail "$how: $(cat "$TMP/client.log")"
	finish "$SRV" 20 || fail "$how: $(cat "$TMP/server.log")"
}
run_patterns() {
	local h
	for h in block poll select epoll oneshot edge short; do run_pattern $h; done
}
job_pattern() { for_secs run_patterns; }

for p in $PROGRAMS; do
	for m in $MODES; do
		# nothing to compare: each run checks itself
		[[ $m == bare && -n $SHIM ]] && continue
		begin_mode "$m"
		STAT=$TMP/stat.$m.$p
		mkdir -m 700 "$STAT"
		say "$p for $SECS s"
		"job_$p"
		[[ $m == bare ]] && continue
		collect
		say "$p: $CUTS cuts, $REWINDS rewinds, $FAST bytes on a fast path, $OVERFLOWS" \
			"overflows, on TCP because: $REASONS"
		# postgres counts elsewhere
		case $p in sockbench | redis | nginx | asyncio | pattern) balanced "$p" ;; esac
		# A connection that lives a second is cut and rewound a hundred times; be content
		# with a few per second.
		((CUTS > SECS * 5 && REWINDS > SECS * 5)) || fail "$p was hardly cut"
	done
done
