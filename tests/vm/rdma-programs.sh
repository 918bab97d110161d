# Real programs between two hosts, with the library at both ends, at the server alone and at the
# client alone: what they move is right, by RDMA where both have it, by TCP where one has not.
# VM_ARGS: only these of iperf3, nginx, asyncio, ssh, postgres.
# HOSTS: 2
# DEVICE: rxe
# TIMEOUT: 2400
. "${TOP:?}/tests/vm/lib.sh"
rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
discovery 10s
log_level 2"
both mkdir "$TMP"/www
head -c 3000000 /dev/urandom >"$TMP"/big
SUM=$(sha256sum <"$TMP"/big)

# at server|client: its word before a command, if that end has the library in this mode.
at() { [[ $MODE == both || $MODE == "$1" ]] && echo shim; }
# shellcheck disable=SC2046
client() { timeout 300 env $([[ -z $(at client) ]] || printf '%s\n' "${SHIM_ENV[@]}") "$@"; }
# shellcheck disable=SC2046
server() { on "$PEER" start srv $(at server) "$@"; }

# moved LEAST: so many bytes at the client by RDMA, or none if an end has no library. False: too
# few. How long a link takes is the machine's business, so a job is done again with twice as much
# to do, up to SIZE 16.
moved() {
	local line
	line=$(counters)
	say "$WHAT, $MODE: client: $line"
	if [[ $MODE == both ]]; then
		(($(counter rdma "$line") >= $1)) && return
		((SIZE < 16)) && return 1
		cat "$TMP"/shim.log
		on "$PEER" eval \
			"cat $TMP/shim.log $TMP/pg/shim.log 2>/dev/null; ls -l /dev/infiniband"
		fail "$WHAT: hardly anything went by RDMA"
	else
		[[ $(counter rdma "$line") == 0 &&
			$(counter rdma "$(on "$PEER" counters)") == 0 ]] ||
			fail "$WHAT, $MODE: RDMA with a bare end"
	fi
}

with_iperf3() {
	local way
	for way in "" -R; do
		new_port port
		server iperf3 -s -1 -B "$P4" -p "$port"
		on "$PEER" wait_port "$port" || fail "iperf3 does not listen"
		# shellcheck disable=SC2086
		client iperf3 -c "$P4" -p "$port" -t $((SIZE * 4)) -P 2 $way >$TMP/out 2>&1 ||
			fail "iperf3 $way: $(cat $TMP/out)"
		on "$PEER" finish srv 30 || fail "iperf3's server: $(on "$PEER" output srv)"
	done
	moved 500000
}

with_nginx() {
	new_port port
	on "$PEER" eval \
		"head -c 1000 /dev/zero | tr '\0' x >$TMP/www/1k; for i in {1..40000}; do
			echo \"line \$i of some text that fills a file\"; done >$TMP/www/2m
	cat >$TMP/nginx.conf <<-END
	worker_processes 2; daemon off; user root; pid $TMP/nginx.pid;
	error_log $TMP/nginx-error.log warn;
	events { worker_connections 200; }
	http { access_log off; sendfile on; keepalive_requests 100000;
		client_body_temp_path $TMP/body; proxy_temp_path $TMP/proxy;
		fastcgi_temp_path $TMP/f; uwsgi_temp_path $TMP/u; scgi_temp_path $TMP/s;
		server { listen $P4:$port; root $TMP/www; } }
	END"
	server nginx -c "$TMP"/nginx.conf -e "$TMP"/nginx-error.log
	on "$PEER" wait_port "$port" || fail "nginx does not listen"
	want=$(on "$PEER" sha256sum "$TMP"/www/2m | cut -d' ' -f1)
	client curl -sS "http://$P4:$port/2m" "http://$P4:$port/2m" -o "$TMP"/one -o "$TMP"/two ||
		fail "curl"
	sha256sum "$TMP"/one "$TMP"/two >"$TMP"/sums
	[[ $(grep -c "^$want " "$TMP"/sums) == 2 ]] ||
		fail "nginx: another file came: $(cat "$TMP"/sums)"
	client wrk -t 1 -c 8 -d $((SIZE * 4)) "http://$P4:$port/1k" >"$TMP"/out 2>&1 ||
		fail "wrk: $(cat "$TMP"/out)"
	grep -q 'Socket errors\|Non-2xx' "$TMP"/out && fail "wrk: $(cat "$TMP"/out)"
	say "wrk: $(grep Requests/sec "$TMP"/out)"
	on "$PEER" stop srv QUIT
	moved 1000000
}

with_asyncio() {
	cat >"$TMP"/echo.py <<-'END'
	import asyncio, hashlib, os, sys
	async def serve(r, w):
	    while x := await r.read(65536):
	        w.write(x)
	        await w.drain()
	    w.close()
	async def one(i):
	    r, w = await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
	    sent, got = hashlib.sha256(), hashlib.sha256()
	    async def send():
	        for k in range(20 * int(sys.argv[4])):
	            x = os.urandom(1000 * (k % 5 * 10 + 1))
	            sent.update(x)
	            w.write(x)
	            await w.drain()
	        w.write_eof()
	    async def receive():
	        while x := await r.read(100000):
	            got.update(x)
	    await asyncio.gather(send(), receive())
	    assert sent.digest() == got.digest(), i
	async def main():
	    if sys.argv[1] == "server":
	        await (await asyncio.start_server(serve, sys.argv[2],
	        	int(sys.argv[3]))).serve_forever()
	    await asyncio.gather(*(one(i) for i in range(8)))
	asyncio.run(main())
	END
	new_port port
	on "$PEER" eval "cat >$TMP/echo.py <<'END'
$(cat "$TMP"/echo.py)
END"
	server python3 -S -E "$TMP"/echo.py server "$P4" "$port"
	on "$PEER" wait_port "$port" 60 || fail "asyncio does not listen"
	client python3 -S -E "$TMP"/echo.py client "$P4" "$port" "$SIZE" >"$TMP"/out 2>&1 ||
		fail "asyncio: $(cat "$TMP"/out)"
	on "$PEER" stop srv
	moved 1000000
}

with_ssh() {
	local opt
	new_port port
	[[ -e $TMP/key ]] || ssh-keygen -q -t ed25519 -N '' -f "$TMP"/key || fail "ssh-keygen"
	on "$PEER" eval \
		"mkdir -p -m 755 /run/sshd; rm -f $TMP/host*; ssh-keygen -q -t ed25519 -N '' -f \
$TMP/host; echo '$(cat "$TMP"/key.pub)' >$TMP/authorized
	cat >$TMP/sshd_config <<-END
	Port $port
	ListenAddress $P4
	HostKey $TMP/host
	AuthorizedKeysFile $TMP/authorized
	PidFile $TMP/sshd.pid
	StrictModes no
	UsePAM no
	PermitRootLogin yes
	PasswordAuthentication no
	KbdInteractiveAuthentication no
	Subsystem sftp internal-sftp
	END"
	server /usr/sbin/sshd -D -e -f "$TMP"/sshd_config
	on "$PEER" wait_port "$port" 60 || fail "sshd does not listen: $(on "$PEER" output srv)"
	opt=(-q -F none -i "$TMP/key" -o BatchMode=yes -o StrictHostKeyChecking=no -o \
		UserKnownHostsFile="$TMP/known" -o LogLevel=ERROR)
	rm -f "$TMP"/known "$TMP"/back
	client ssh "${opt[@]}" -p "$port" "$P4" sha256sum <"$TMP"/big >"$TMP"/out 2>"$TMP"/err ||
		fail "ssh: $(cat "$TMP"/err)"
	[[ $(<"$TMP"/out) == "$SUM" ]] || fail "ssh: other bytes: $(cat "$TMP"/out)"
	client scp "${opt[@]}" -P "$port" "$TMP"/big "$P4:$TMP/there" >"$TMP"/err 2>&1 ||
		fail "scp there: $(cat "$TMP"/err)"
	client scp "${opt[@]}" -P "$port" "$P4:$TMP/there" "$TMP"/back >"$TMP"/err 2>&1 ||
		fail "scp back: $(cat "$TMP"/err)"
	cmp "$TMP"/big "$TMP"/back || fail "scp: other bytes"
	on "$PEER" stop srv
	moved 0		# sshd gets its connection as descriptor 0 across an exec: on TCP for good
}

with_postgres() {
	# A server that accepts, and forks for each: were the connection to earn before the fork,
	# the child would have no RDMA (rdma-forked).
	both policy "$rules" "earn_bytes 1000"
	local bin first as="setpriv --reuid=postgres --regid=postgres --clear-groups" env="" n
	bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
	[[ -x $bin/initdb ]] || { say "no PostgreSQL"; return; }
	on "$PEER" test -e "$TMP"/pg/data ||
		on "$PEER" eval \
		"mkdir -m 700 $TMP/pg; chown postgres $TMP/pg; $as $bin/initdb -D $TMP/pg/data -A \
trust -U postgres --no-sync >$TMP/initdb.log 2>&1
			echo 'host all all 0.0.0.0/0 trust' >>$TMP/pg/data/pg_hba.conf" ||
				fail "initdb: $(on "$PEER" cat "$TMP"/initdb.log)"
	new_port port
	# the library where that user can read it
	on "$PEER" eval \
		"mkdir -m 700 $TMP/pgstat; chown postgres $TMP/pgstat; install -m 755 $SHIM \
$TMP/lib.so"
	[[ -z $(at server) ]] ||
		env="LD_PRELOAD=$TMP/lib.so RDMASHIM_STAT_DIR=$TMP/pgstat \
RDMASHIM_LOG_FILE=$TMP/pg/shim.log"
	# shellcheck disable=SC2086
	on "$PEER" start srv $as env $env "$bin/postgres" -D $TMP/pg/data -p "$port" -h "$P4" \
		-k '' -c fsync=off
	on "$PEER" wait_port "$port" 120 ||
		fail "postgres does not listen: $(on "$PEER" output srv)"
	within 60 "$bin/pg_isready" -U postgres -q -h "$P4" -p "$port" ||
		fail "postgres is not ready: $(on "$PEER" output srv)"
	psql() { client "$bin/psql" -h "$P4" -p "$port" -U postgres -X -q -A -t "$@"; }
	first=$(psql -c "select i, repeat(md5(i::text), 10) from generate_series(1, 5000) i" |
		sha256sum)
	n=$(for ((i = 1; i <= 20; i++)); do m=$(printf %s $i | md5sum); echo "$i|${m%% *}"; done |
		sha256sum)
	[[ $(psql -c "select i, md5(i::text) from generate_series(1, 20) i" |
		sha256sum) == "$n" ]] || fail "postgres: other rows"
	[[ -z ${ROWS-} || $first == "$ROWS" ]] || fail "postgres: other rows than in another mode"
	ROWS=$first
	psql -c "drop table if exists t; create table t (i int, s text)" 2>/dev/null
	awk 'BEGIN { for (i = 0; i < 20000; i++) print i "\t" "row-" i * 7919 }' >"$TMP"/rows
	psql -c "copy t from stdin" <"$TMP"/rows || fail "copy from"
	[[ $(psql -c "copy t to stdout" | sort -n |
		sha256sum) == "$(sort -n "$TMP"/rows | sha256sum)" ]] ||
		fail "postgres: other bytes came back"
	client "$bin/pgbench" -h "$P4" -p "$port" -U postgres -i -s 1 -q postgres >"$TMP"/out \
		2>&1 || fail "pgbench -i: $(cat "$TMP"/out)"
	client "$bin/pgbench" -h "$P4" -p "$port" -U postgres -c 4 -t $((SIZE * 25)) \
		postgres >"$TMP"/out 2>&1 || fail "pgbench: $(cat "$TMP"/out)"
	client "$bin/pgbench" -h "$P4" -p "$port" -U postgres -c 4 -t $((SIZE * 100)) \
		-S -M prepared postgres >>"$TMP"/out 2>&1 || fail "pgbench -S: $(cat "$TMP"/out)"
	[[ $(grep -c 'number of failed transactions: 0' "$TMP"/out) == 2 ]] ||
		fail "pgbench: $(cat "$TMP"/out)"
	say "pgbench: $(awk '/^tps/ { printf "%s ", $3 }' "$TMP"/out)transactions/s"
	on "$PEER" stop srv INT || fail "postgres does not end"
	moved 50000
}

for WHAT in ${VM_ARGS:-iperf3 nginx asyncio ssh postgres}; do
	for MODE in both server client; do
		for SIZE in 1 2 4 8 16; do
			both policy "$rules" "earn_bytes 0"
			both eval "rm -rf $TMP/stat $TMP/pgstat; mkdir -m 700 $TMP/stat"
			"with_$WHAT" && break
		done
	done
done
