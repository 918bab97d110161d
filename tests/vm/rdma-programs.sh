# Real programs from host to host: nginx with wrk and curl, iperf3, ssh and scp, Python's asyncio, PostgreSQL with psql and pgbench. All
# that they say is right; with the library at both ends bytes go by RDMA, with one end bare none do.
# HOSTS: 2
# DEVICE: rxe
# TIMEOUT: 900
. "${TOP:?}/tests/vm/lib.sh"

# Not at the first byte: a server that forks for each connection does so before.
rules="use rdma both *:*
rendezvous_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 8K
earn_rounds 4
rendezvous 15s
log_level ${LEVEL:-2}"
both policy "$rules"
both eval 'chmod a+rw /dev/infiniband/*'	# there is no udev to do it, and PostgreSQL is not root
on "$PEER" eval "head -c 1000000 /dev/urandom >$TMP/file; chmod 644 $TMP/file; mkdir -m 777 $TMP/home"
SUM=$(on "$PEER" eval "sha256sum <$TMP/file")

preloaded() { [[ $MODE == both || $MODE == "$1" ]]; }
serve() {
	local name=$1
	shift
	preloaded server && set -- shim "$@"
	on "$PEER" start "$name" "$@"
	on "$PEER" wait_port "$port" || fail "$name does not listen"
}
client() { if preloaded client; then shim "$@"; else "$@"; fi; }

# Bytes by RDMA at both ends since the last call.
moved() {
	local a b
	a=$(counters) b=$(on "$PEER" counters)
	say "client: $a; server: $b"
	a=$(counter rdma "$a") b=$(counter rdma "$b")
	MOVED=$((${a:-0} + ${b:-0}))
}

# by_rdma NAME MIN JOB: how long a link takes is the machine's business, so the job is done again until it has seen one.
by_rdma() {
	local name=$1 min=$2 i
	both counters >/dev/null
	for i in 1 2 3 4 5 6; do
		$3 || fail "$name, $MODE"
		moved
		[[ $MODE == both ]] && ((MOVED <= min)) || break
	done
	say "$name, $MODE: $MOVED bytes by RDMA"
	if [[ $MODE == both ]]; then
		((MOVED > min)) || fail "$name: hardly anything went by RDMA"
	else
		((MOVED == 0)) || fail "$name: by RDMA with one end bare?"
	fi
}

iperf() {
	client timeout 60 iperf3 -c "$P4" -p "$port" -t 2 "$@" >"$TMP/out" 2>&1 || { cat "$TMP/out"; return 1; }
}
iperf_both_ways() { iperf && iperf -R; }

fetch() { client curl -sS --max-time 120 "http://$P4:$port/$1"; }
web() {
	[[ $(fetch file | sha256sum) == "$SUM" ]] || { echo "the file came changed"; return 1; }
	client wrk -t 1 -c 4 -d 2 "http://$P4:$port/small" >"$TMP/out" 2>&1 || { cat "$TMP/out"; return 1; }
	! grep -e 'Socket errors' -e 'Non-2xx' "$TMP/out"
}

echoes() {
	client timeout 200 env ECHO_ADDR="$P4" /usr/bin/python3 -S -E tests/apps/asyncio-echo.py client "$port" 10 "${rounds:-10}" 0 >"$TMP/out" 2>&1 ||
		{ cat "$TMP/out"; return 1; }
	rounds=$((2 * ${rounds:-10}))
}

SSH=(-F none -i "$TMP/key" -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile="$TMP/known" -o LogLevel=ERROR)
copies() {
	[[ $(client timeout 120 ssh "${SSH[@]}" -p "$port" "$P4" "cat $TMP/file" </dev/null | sha256sum) == "$SUM" ]] || { echo "ssh"; return 1; }
	client timeout 120 scp -q "${SSH[@]}" -P "$port" "$P4:$TMP/file" "$TMP/here" || { echo "scp here"; return 1; }
	client timeout 120 scp -q "${SSH[@]}" -P "$port" "$TMP/here" "$P4:$TMP/there" || { echo "scp there"; return 1; }
	[[ $(on "$PEER" eval "sha256sum <$TMP/there") == "$SUM" ]] || { echo "scp: changed"; return 1; }
}

PG=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
QUERY="select i, repeat(md5(i::text), 10) from generate_series(1, 3000) i"
queries() {
	[[ $(client timeout 120 "$PG/psql" -h "$P4" -p "$port" -U postgres -X -q -A -t -c "$QUERY" | sha256sum) == "$ROWS" ]] || { echo "psql: other rows"; return 1; }
	client timeout 120 "$PG/pgbench" -n -h "$P4" -p "$port" -U postgres -c 4 -T 3 -f "$TMP/bench.sql" postgres >"$TMP/out" 2>&1 || { cat "$TMP/out"; return 1; }
	grep -q 'number of failed transactions: 0' "$TMP/out" || { cat "$TMP/out"; return 1; }
}

start_nginx() {
	on "$PEER" eval "printf %s 'daemon off; worker_processes 1; user root; pid $TMP/nginx.pid; error_log stderr warn;
		events { worker_connections 100; }
		http { access_log off; keepalive_requests 1000000; client_body_temp_path $TMP/home/b; proxy_temp_path $TMP/home/p; fastcgi_temp_path $TMP/home/f;
		uwsgi_temp_path $TMP/home/u; scgi_temp_path $TMP/home/s; server { listen $P4:$port; root $TMP; location /small { return 200 small; } } }' >$TMP/nginx.conf"
	serve "nginx$port" nginx -c "$TMP/nginx.conf" -e stderr
}

start_sshd() {
	on "$PEER" eval "mkdir -p -m 755 /run/sshd; ssh-keygen -q -t ed25519 -N '' -f $TMP/host$port; printf '%s\n' 'Port $port' 'ListenAddress $P4' \
		'HostKey $TMP/host$port' 'AuthorizedKeysFile $TMP/authorized' 'PidFile none' 'StrictModes no' 'UsePAM no' 'PermitRootLogin yes' \
		'Subsystem sftp internal-sftp' >$TMP/sshd_config"
	on "$PEER" eval "echo '$(<"$TMP/key.pub")' >$TMP/authorized"
	rm -f "$TMP/known"
	serve "sshd$port" /usr/sbin/sshd -D -e -f "$TMP/sshd_config"
}

# Another user's process: its counters lie in a directory of that user's, and are not asked for.
start_postgres() {
	local with=()
	preloaded server && with=(env "${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$TMP/home/stat" RDMASHIM_LOG_FILE="$TMP/home/log")
	on "$PEER" start "postgres$port" runuser -u postgres -- "${with[@]}" "$PG/postgres" -D "$TMP/home/data" -p "$port" -h "$P4" -k '' -c fsync=off
	on "$PEER" wait_port "$port" 60 || fail "postgres does not listen: $(on "$PEER" output "postgres$port")"
	on "$PEER" within 60 "$PG/pg_isready" -q -h "$P4" -p "$port" || fail "postgres is not ready"
}
stop_postgres() {
	on "$PEER" eval "kill -INT \$(head -n 1 $TMP/home/data/postmaster.pid)"
	on "$PEER" finish "postgres$port" 60 || fail "postgres: $(on "$PEER" output "postgres$port")"
}

ssh-keygen -q -t ed25519 -N '' -f "$TMP/key" || fail "ssh-keygen"
if [[ -x $PG/initdb ]]; then
	on "$PEER" eval "install -d -m 700 -o postgres $TMP/home/stat; chown postgres $TMP/home; cd /; runuser -u postgres -- $PG/initdb -D $TMP/home/data -A trust -U postgres --no-sync; \
		echo 'host all all 10.0.0.0/8 trust' >>$TMP/home/data/pg_hba.conf" >"$TMP/out" 2>&1 || fail "initdb: $(cat "$TMP/out")"
	echo "select repeat('x', 1000), :client_id;" >"$TMP/bench.sql"
	MODE=none
	new_port port
	start_postgres
	ROWS=$("$PG/psql" -h "$P4" -p "$port" -U postgres -X -q -A -t -c "$QUERY" | sha256sum)
	stop_postgres
fi

for MODE in both server client; do
	new_port port
	serve "iperf$port" iperf3 -s -B "$P4" -p "$port"
	by_rdma iperf3 1000000 iperf_both_ways
	on "$PEER" stop "iperf$port" || fail "iperf3"

	new_port port
	start_nginx
	by_rdma nginx 100000 web
	on "$PEER" stop "nginx$port" || fail "nginx"

	new_port port
	serve "asyncio$port" env ECHO_ADDR="$P4" /usr/bin/python3 -S -E tests/apps/asyncio-echo.py server "$port"
	rounds=10
	by_rdma asyncio 100000 echoes
	on "$PEER" stop "asyncio$port" INT || fail "asyncio"

	# Each connection's process is forked and executed anew with the connection inherited: it stays on TCP. It must work.
	new_port port
	start_sshd
	copies || fail "ssh, $MODE"
	say "ssh, $MODE: ok"
	on "$PEER" stop "sshd$port" || fail "sshd"

	if [[ -x $PG/initdb ]]; then
		new_port port
		start_postgres
		by_rdma PostgreSQL 30000 queries
		stop_postgres
	fi
done
