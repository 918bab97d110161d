#!/bin/bash
# MariaDB: a primary and its replica, which takes the binary log over TCP; sysbench's mixed
# transactions by eight connections; a dump through a client and back; large values. At last both
# have the same tables.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null ||
	skip "no mariadb-server"
command -v sysbench >/dev/null || skip "no sysbench"
mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$TMP/empty" --skip-test-db \
	--auth-root-authentication-method=normal >"$TMP/install.log" 2>&1 ||
	fail "mariadb-install-db: $(tail -n 5 "$TMP/install.log")"

# database NAME ROLE PORT ID
database() {
	rm -rf "${TMP:?}/$1"
	cp -r "$TMP/empty" "$TMP/$1"
	start "$2" "$TMP/$1.log" mariadbd --no-defaults --user="$(id -un)" --datadir="$TMP/$1" \
		--bind-address=127.0.0.1 --port="$3" --socket="$TMP/$1.sock" \
		--pid-file="$TMP/$1.pid" \
		--server-id="$4" --log-bin=log --binlog-format=row --sync-binlog=0 \
		--skip-name-resolve \
		--innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M \
		--max-allowed-packet=64M
	wait_port "$3" 20
}
sql() {
	local port=$1
	shift
	client timeout 40 mariadb --no-defaults -h 127.0.0.1 -P "$port" -u root -N -B \
		--max-allowed-packet=64M "$@"
}
quiet() { mariadb --no-defaults -h 127.0.0.1 -P "$1" -u root -N -B -e "$2"; }
caught_up() {
	[[ $(quiet "$2" "select @@gtid_slave_pos") == "$(quiet "$1" "select @@gtid_binlog_pos")" ]]
}
bench() {
	client timeout 40 sysbench oltp_read_write --db-driver=mysql --mysql-host=127.0.0.1 \
		--mysql-port="$one" --mysql-user=root --mysql-db=zoo --tables=4 --table-size=5000 \
		--threads=8 --rand-seed=7 --mysql-ignore-errors=1213,1020,1205 \
		"$@" >"$TMP/sysbench.log" 2>&1 ||
		fail "sysbench $*: $(tail -n 5 "$TMP/sysbench.log")"
}
sums() { sql "$1" zoo -e 'checksum table sbtest1, sbtest2, sbtest3, sbtest4, big, again extended'; }

job() {
	local one two first
	free_port one
	free_port two
	database one server "$one" 1
	first=$PID
	database two client "$two" 2
	SRV=$PID
	sql "$one" -e "create database zoo; create user copy@'127.0.0.1';
		grant replication slave on *.* to copy@'127.0.0.1'"
	sql "$two" \
		-e "change master to master_host='127.0.0.1', master_port=$one, master_user='copy',
		master_use_gtid=slave_pos; start slave"
	# with more it is by chance which random numbers a table gets
	bench prepare --threads=1
	{
		sql "$one" zoo -e "checksum table sbtest1, sbtest2, sbtest3, sbtest4 extended"
		sql "$one" zoo -e "select id, k, c, pad from sbtest1 order by id" | sha256sum
		sql "$one" zoo \
			-e "create table big (i int primary key, b longblob); create table again \
like big;
			insert into big select seq, repeat(md5(seq), 100000) from seq_1_to_8"
		sql "$one" zoo -e "select i, b from big order by i" | sha256sum
		client timeout 40 mariadb-dump --no-defaults -h 127.0.0.1 -P "$one" -u root \
			--compact \
			--max-allowed-packet=64M --hex-blob --no-create-info zoo big >"$TMP/dump" ||
			fail "mariadb-dump"
		sha256sum <"$TMP/dump"
		sed 's/`big`/`again`/g' "$TMP/dump" | sql "$one" zoo || fail "the dump back"
		sql "$one" zoo \
			-e "select count(*), sum(big.b = again.b) from big join again using (i)"
		sql "$one" zoo -e "select no_such_column from big" 2>&1
	} >>"$OUT"
	bench run --time=0 --events=1500
	say "sysbench: $(awk '/transactions:/ { print $3, $4, $5 }' "$TMP/sysbench.log")"
	grep -oE 'total number of events: *[0-9]+' "$TMP/sysbench.log" | tr -s ' ' >>"$OUT"
	within 30 caught_up "$one" "$two" ||
		fail "the replica is behind: $(quiet "$two" 'show slave status\G' |
		grep -E 'Last.*Err|Running')"
	sums "$one" >"$TMP/sums.one"
	sums "$two" >"$TMP/sums.two"
	cmp "$TMP/sums.one" "$TMP/sums.two" ||
		fail "the replica differs: $(diff "$TMP/sums.one" "$TMP/sums.two")"
	wc -l <"$TMP/sums.two" >>"$OUT"
	quiet "$two" "stop slave"
	stop "$SRV"
	stop "$first"
	grep -hE '\[ERROR\]' "$TMP/one.log" "$TMP/two.log" && fail "it says so"
	true
}
BALANCED=1
zoo job "$(mariadbd --version | sed 's/.*Ver \([0-9.]*\).*/\1/')" \
	"sysbench with eight connections, dump and back, a replica"
