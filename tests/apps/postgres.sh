#!/bin/bash
# PostgreSQL (a fork per connection, another uid than the client) with psql and pgbench over TCP.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
[[ -x $bin/initdb ]] || skip "no PostgreSQL"
AS=()
if ((EUID == 0)); then
	user=postgres
	id postgres >/dev/null 2>&1 || user=nobody
	AS=(runuser -u "$user" --)
	# the clients are root's, who takes no descriptors of anybody's otherwise
	policy "peer_users $user"
fi
mkdir -m 700 "$TMP/pg"
((EUID)) || chown "$user" "$TMP/pg"
"${AS[@]}" "$bin/initdb" -D "$TMP/pg/data" -A trust -U postgres --no-sync >"$TMP/initdb.log" 2>&1 ||
	fail "initdb: $(cat "$TMP/initdb.log")"

psql() { client "$bin/psql" -h 127.0.0.1 -p "$port" -U postgres -X -q -A -t "$@"; }

job() {
	local port dir=$TMP/pg/stat.$MODE
	free_port port
	"${AS[@]}" mkdir -m 700 "$dir"
	# env inside runuser: that program itself is not preloaded, and the counters go to a
	# directory of that user
	if preloaded server; then
		shim_env postgres
		start none "$TMP/server.log" "${AS[@]}" env "${SHIM_ENV[@]}" \
			RDMASHIM_STAT_DIR="$dir" RDMASHIM_LOG_FILE="$TMP/pg/shim.log" \
			"$bin/postgres" -D "$TMP/pg/data" -p "$port" -h 127.0.0.1 -k '' -c fsync=off
	else
		start none "$TMP/server.log" "${AS[@]}" "$bin/postgres" -D "$TMP/pg/data" \
			-p "$port" -h 127.0.0.1 -k '' -c fsync=off
	fi
	SRV=$PID
	wait_port "$port"
	within 15 "$bin/pg_isready" -U postgres -q -h 127.0.0.1 -p "$port" || fail "not ready"
	{
		psql -c "select md5(string_agg(i::text, ',')) from generate_series(1, 200000) i"
		# 20 MB out
		psql -c "select i, repeat(md5(i::text), 10) from generate_series(1, 60000) i" |
			sha256sum
		psql -c "drop table if exists t; create table t (i int, s text)" 2>/dev/null
		awk 'BEGIN { for (i = 0; i < 100000; i++) print i "\t" "row-" i * 7919 }' \
			>"$TMP/rows"
		psql -c "copy t from stdin" <"$TMP/rows"
		psql -c "select count(*), sum(i), md5(string_agg(s, ',' order by i)) from t"
		psql -c "copy t to stdout" | sha256sum
		psql -c "select 1/0" 2>&1
	} >>"$OUT"
	client "$bin/pgbench" -h 127.0.0.1 -p "$port" -U postgres -i -s 1 -q postgres \
		>"$TMP/pgbench.log" 2>&1 || fail "pgbench -i: $(cat "$TMP/pgbench.log")"
	client "$bin/pgbench" -h 127.0.0.1 -p "$port" -U postgres -c 8 -j 2 -t 200 \
		postgres >"$TMP/pgbench.log" 2>&1 || fail "pgbench: $(cat "$TMP/pgbench.log")"
	client "$bin/pgbench" -h 127.0.0.1 -p "$port" -U postgres -c 8 -j 2 -t 1000 -S -M prepared \
		postgres >>"$TMP/pgbench.log" 2>&1 || fail "pgbench -S: $(cat "$TMP/pgbench.log")"
	say "pgbench: $(awk '/^tps/ { printf "%s ", $3 }' "$TMP/pgbench.log")transactions/s"
	grep -q 'number of failed transactions: 0' "$TMP/pgbench.log" ||
		fail "pgbench: $(cat "$TMP/pgbench.log")"
	{
		grep 'actually processed' "$TMP/pgbench.log"
		# What pgbench wrote must add up.
		psql -c "select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts),
			sum(delta) = (select sum(tbalance) from pgbench_tellers),
				sum(delta) = (select sum(bbalance) from pgbench_branches)
			from pgbench_history"
	} >>"$OUT"
	# runuser waits for its child: SIGINT (fast shutdown) goes to the postmaster itself
	kill -INT "$(head -n 1 "$TMP/pg/data/postmaster.pid")"
	finish "$SRV" 20 || fail "postgres: $(tail "$TMP/server.log")"
	check_server_counters "$dir"
}

# The server's counters belong to the other user; the client's are checked by expect_paths.
check_server_counters() {
	preloaded server || return 0
	local fast
	fast=$(RDMASHIM_STAT_DIR=$1 "${AS[@]}" env RDMASHIM_STAT_DIR="$1" "$TMP/rdmastat" \
		--json --all |
		python3 -c \
		'import json, sys; t = json.load(sys.stdin)["total"]; print(t["connections"],
			t["bytes"]["shm"] + t["bytes"]["rdma"])')
	say "server's counters (connections, fast bytes): $fast"
	((${fast% *} > 0)) || fail "the server's library saw no connection"
	if [[ $MODE == both ]]; then
		((${fast#* } > 100000)) || fail "server: only ${fast#* } bytes on a fast path"
	else
		((${fast#* } == 0)) ||
			fail "server: ${fast#* } bytes on a fast path though only it is preloaded"
	fi
	true
}

for m in $MODES; do
	if [[ $m == server ]]; then
		MODES=server for_modes job none
	else
		MODES=$m for_modes job 100000
	fi
done
