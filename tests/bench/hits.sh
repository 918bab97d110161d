#!/bin/bash
# hits.sh [N] [PROGRAM...]: of the bytes of a bulk answer, how many go by a fast path, and is it
# slower than without the library? Real programs and one of our own (bulk.c), by the default
# policy; N rounds (default 5); in each, bare and both ends preloaded in turn, first with nothing
# beside them, then beside HOGS (default 2) programs that only compute. What is learned of places
# goes from one round to the next, as it would; `first` is the first round, which knows nothing.
# Hit rates are of all bytes that both ends counted, medians and the least; a ratio is of the
# medians of the client's time, above 1 is faster than bare. Exit status 1 if a median is below
# MUST (default 85), or MUST_HOGS (default 70) beside those, percent, or a ratio below FLOOR
# (default 0.97). Programs that are not installed are left out. HOGS=0: nothing beside them.
#
# The programs of our own need nothing but the build: `hits.sh 5 bulk_page bulk_file ...`.
[[ -z ${TMPDIR-} && -d /dev/shm && $(df --output=avail -k /dev/shm | tail -n 1) -gt 2000000 ]] &&
	export TMPDIR=/dev/shm	# a disk would be what is measured
. "$(dirname "$0")/../apps/lib.sh"
OWN=(bulk_page bulk_poll bulk_file bulk_once bulk_log bulk_late)
ALL=(mariadb mariadb_dump smb smb4 curl pg_dump dask "${OWN[@]}")
N=${1:-5}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: hits.sh [N] [PROGRAM...]; ${ALL[*]}" >&2; exit 2; }
shift || true
APPS=("$@")
((${#APPS[@]})) || APPS=("${ALL[@]}")
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${POLICY-} ]] || OWN_POLICY=("$POLICY")
policy "peer_users any" "${OWN_POLICY[@]}"	# PostgreSQL is not root's, its client is
SIZE=20971520
LOG=$TMP/client.log
: >"$TMP/figures"
have() { command -v "$1" >/dev/null; }

hog() { env -i bash -c 'while :; do :; done' & PIDS+=("$!"); HOGGING+=("$!"); }

# took CMD...: runs it beside the hogs, its time goes to TOOK, s.
took() {
	local a i
	HOGGING=()
	for ((i = 0; i < BESIDE; i++)); do hog; done
	a=$EPOCHREALTIME
	"$@" >"$LOG" 2>&1 || fail "$*: $(tail -n 5 "$LOG" "$TMP/server.log")"
	TOOK=$(awk -v a="$a" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.6f", b - a }')
	for i in "${HOGGING[@]}"; do kill "$i"; wait "$i" 2>/dev/null; done
}
count() { [[ $(wc -c <"$TMP/copy") -ge $SIZE ]]; }

can_mariadb() { have mariadbd && have mariadb && have mariadb-install-db; }
with_mariadb() {
	local port
	if [[ ! -d $TMP/db ]]; then
		mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$TMP/db" \
			--skip-test-db --auth-root-authentication-method=normal \
			>"$TMP/install.log" 2>&1 || fail "mariadb-install-db"
	fi
	free_port port
	server mariadbd --no-defaults --user="$(id -un)" --datadir="$TMP/db" --port="$port" \
		--bind-address=127.0.0.1 --socket="$TMP/db.sock" --pid-file="$TMP/db.pid" \
		--skip-name-resolve --innodb-flush-log-at-trx-commit=0
	wait_port "$port" 20
	local sql=(mariadb --no-defaults -h 127.0.0.1 -P "$port" -u root -N -B --quick)
	[[ -e $TMP/db/hits/t.frm ]] || mariadb --no-defaults -S "$TMP/db.sock" -u root -e \
		"create database hits; use hits; create table t (i int primary key, s text);
		insert into t select seq, repeat(md5(seq), 10) from seq_1_to_66000" ||
		fail "no table"
	took "$1" "${sql[@]}"
	stop "$SRV"
}
mariadb_quick() { client "$@" hits -e "select * from t" >"$TMP/copy" && count; }
mariadb_dump() {
	client mariadb-dump --no-defaults -h 127.0.0.1 -P "$port" -u root hits >"$TMP/copy" && count
}
run_mariadb() { with_mariadb mariadb_quick; }
can_mariadb_dump() { can_mariadb; }
run_mariadb_dump() { with_mariadb mariadb_dump; }

can_smb() { ((EUID == 0)) && have smbd && have smbclient; }
smb_conf() {
	local d
	for d in lock state cache pid private ncalrpc; do mkdir -p "$TMP/s/$d"; done
	chmod 700 "$TMP/s/private"
	printf '%s\n' '[global]' 'workgroup = HITS' 'server role = standalone server' \
		'interfaces = 127.0.0.1/8' 'bind interfaces only = yes' "smb ports = $1" \
		'disable netbios = yes' 'load printers = no' 'disable spoolss = yes' \
		"lock directory = $TMP/s/lock" "state directory = $TMP/s/state" \
		"cache directory = $TMP/s/cache" "pid directory = $TMP/s/pid" \
		"private dir = $TMP/s/private" "ncalrpc dir = $TMP/s/ncalrpc" \
		"log file = $TMP/smbd-own.log" '[share]' "path = $TMP/www" 'read only = yes' \
		>"$TMP/smb.conf"
	printf 'secret\nsecret\n' | smbpasswd -c "$TMP/smb.conf" -s -a root \
		>"$TMP/smbpasswd.log" 2>&1 || fail "smbpasswd"
}
smb_get() {
	client timeout 60 smbclient -s "$TMP/smb.conf" -p "$port" //127.0.0.1/share \
		-U root%secret -c "get file $1"
}
smb_gets() {
	local i all=()
	for ((i = 0; i < $1; i++)); do smb_get "$TMP/copy$i" & all+=("$!"); done
	for i in "${all[@]}"; do wait "$i" || return 1; done
}
with_smb() {
	local port
	free_port port
	smb_conf "$port"
	server smbd -F -s "$TMP/smb.conf" --debug-stdout
	wait_port "$port"
	took smb_gets "$1"
	cmp "$TMP/www/file" "$TMP/copy0" || fail "smb: wrong bytes"
	stop "$SRV"
}
run_smb() { with_smb 1; }
can_smb4() { can_smb; }
run_smb4() { with_smb 4; }

can_curl() { have nginx && have curl; }
curl_ten() {
	local i
	for i in {1..10}; do
		client curl -sS -o "$TMP/copy" "http://127.0.0.1:$1/file" || return 1
	done
}
run_curl() {
	local port
	free_port port
	start_nginx "$port" 1 <<-END
	sendfile on;
	server { listen 127.0.0.1:$port; root $TMP/www; }
	END
	took curl_ten "$port"
	cmp "$TMP/www/file" "$TMP/copy" || fail "curl: wrong bytes"
	stop "$SRV"
}

PG=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
can_pg_dump() { [[ -x $PG/initdb ]] && { ((EUID)) || id postgres >/dev/null 2>&1; }; }
# The server's counters are another user's: its own directory, read by that user.
run_pg_dump() {
	local port as=() env=(env) dir=$TMP/pg/stat
	((EUID)) || as=(runuser -u postgres --)
	if [[ ! -d $TMP/pg ]]; then
		mkdir -m 700 "$TMP/pg"
		((EUID)) || chown postgres "$TMP/pg"
		"${as[@]}" "$PG/initdb" -D "$TMP/pg/data" -A trust -U postgres --no-sync \
			>"$TMP/initdb.log" 2>&1 || fail "initdb"
		"${as[@]}" mkdir -m 700 "$dir"
	fi
	free_port port
	if preloaded server; then
		shim_env postgres
		env+=("${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$dir" RDMASHIM_LOG_FILE="$TMP/pg/log")
	fi
	start none "$TMP/server.log" "${as[@]}" "${env[@]}" "$PG/postgres" -D "$TMP/pg/data" \
		-p "$port" -h 127.0.0.1 -k "$TMP/pg" -c fsync=off
	SRV=$PID
	wait_port "$port"
	within 15 "$PG/pg_isready" -U postgres -q -h 127.0.0.1 -p "$port" || fail "not ready"
	[[ -e $TMP/pg.made ]] || "$PG/psql" -h "$TMP/pg" -p "$port" -U postgres -X -q -c \
		"create table t as select i, repeat(md5(i::text), 10) s
		from generate_series(1, 66000) i" || fail "no table"
	touch "$TMP/pg.made"
	took pg_dump_it
	count || fail "pg_dump: too little"
	kill -INT "$(head -n 1 "$TMP/pg/data/postmaster.pid")"
	finish "$SRV" 20 || fail "postgres"
}
pg_dump_it() { client "$PG/pg_dump" -h 127.0.0.1 -p "$port" -U postgres -f "$TMP/copy" postgres; }

can_dask() { /usr/bin/python3 -c 'import distributed' 2>/dev/null; }
# Blocks of 8 MB that one worker makes and the other takes; the program tells its own time.
run_dask() {
	. "$TOP/tests/zoo/dask.bash"
	start_dask
	took client timeout 60 "${DASK[@]}" blocks "$ADDRESS"
	TOOK=$(awk '$1 == "took" { print $2 }' "$LOG")
	end_dask
}

can_bulk() { [[ -x $B/bench/bulk ]]; }
# Ten connections, one after the other, 20 MiB each; the program tells its own time.
run_bulk() {
	local port
	free_port port
	server "$B/bench/bulk" server "$port"
	wait_port "$port"
	took client timeout 100 "$B/bench/bulk" client "$port" "$1" 10 "$TMP/www/file"
	TOOK=$(awk '$1 == "took" { print $2 }' "$LOG")
	finish "$SRV" 20 || fail "bulk: the server"
}

# rate: of all bytes that this run's processes counted, those on a fast path; and all.
rate() {
	local dirs=("$STAT") as=()
	[[ ! -d $TMP/pg/stat ]] || dirs+=("$TMP/pg/stat")
	((EUID)) || as=(runuser -u postgres --)
	for d in "${dirs[@]}"; do
		[[ $d == "$STAT" ]] && RDMASHIM_STAT_DIR=$d "$TMP/rdmastat" --json --all ||
			"${as[@]}" env RDMASHIM_STAT_DIR="$d" "$TMP/rdmastat" --json --all
	done | python3 -S -E -c 'import json, sys
text, at, fast, all, why, c = sys.stdin.read(), 0, 0, 0, {}, [0, 0, 0]
while text[at:].strip():
    j, n = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at += n + len(text[at:]) - len(text[at:].lstrip())
    b = j["total"]["bytes"]
    fast += b["shm"] + b["rdma"]
    all += sum(b.values())
    for r in j["total"]["reasons"]:
        why[r["reason"]] = why.get(r["reason"], 0) + r["connections"]
    c = [x + j["total"]["counters"][k] for x, k in zip(c, ("cuts", "rewinds", "overflows"))]
print("%.2f" % (100 * fast / all if all else 0), all,
      "cuts=%d,rewinds=%d,overflows=%d" % tuple(c),
      ",".join("%s:%d" % x for x in why.items()) or "-")'
}

run() {
	local app=$1 rest=""
	begin_mode "$2"
	case $app in
	bulk_*) run_bulk "${app#bulk_}" ;;
	*) "run_$app" ;;
	esac
	[[ $MODE == bare ]] || rest=$(rate)
	echo "$app $BESIDE $MODE $TOOK $rest" >>"$TMP/figures"
	[[ -z ${VERBOSE-} ]] || tail -n 1 "$TMP/figures" >&2
}

make_www() {
	mkdir -p "$TMP/www"
	make_file "$TMP/www/file" $SIZE
}

make_www
LEFT=()
for app in "${APPS[@]}"; do
	can=can_${app%%_*}
	[[ $app == pg_dump ]] && can=can_pg_dump
	"$can" || { LEFT+=("$app"); continue; }
	for ((BESIDE = 0; BESIDE <= ${HOGS:-2}; BESIDE += ${HOGS:-2})); do
		for ((round = 1; round <= N; round++)); do
			echo "$app, $BESIDE beside it, round $round of $N" >&2
			for m in bare both; do run "$app" $m; done
		done
		((${HOGS:-2})) || break
	done
done
((${#LEFT[@]} == 0)) || echo "not installed: ${LEFT[*]}"
mkdir -p "$B/bench"
python3 "$TOP/tests/bench/hits.py" "$TMP/figures" "${MUST:-85}" "${MUST_HOGS:-70}" \
	"${FLOOR:-0.97}" | tee "$B/bench/hits.txt"
rc=${PIPESTATUS[0]}
rm -f "$TMP"/*.log	# nothing has failed in them
exit "$rc"
