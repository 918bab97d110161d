#!/bin/bash
# redis-server with redis-cli and redis-benchmark, a background save (fork) during load,
# pipelines, big values, MULTI, blocking pops and publish/subscribe.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"
make_file "$TMP/big" 3000000
# 20,000 keys whose values depend on nothing but their number
awk 'BEGIN { for (i = 0; i < 20000; i++) { s = ""; for (k = 0; k < 8;
	k++) s = s (i * 7919 + k * 104729); print "SET key:" i " " s } }' >"$TMP/load"

cli() { client redis-cli -p "$port" "$@" 2>&1; }
loaded() { [[ $(redis-cli -p "$1" ping) == PONG ]]; }
saved() {
	[[ $(redis-cli -p "$port" info persistence |
		grep -c -e 'rdb_bgsave_in_progress:0' -e 'rdb_last_bgsave_status:ok') == 2 ]]
}

job() {
	local port dir=$TMP/redis.$MODE port2 load
	mkdir "$dir"
	free_port port
	server redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$dir" \
		--enable-debug-command yes
	wait_port "$port"
	{
		client redis-cli -p "$port" --pipe <"$TMP/load" 2>&1 |
			grep -v '^All data\|^Last reply'
		client redis-cli -p "$port" -x set big <"$TMP/big"
		echo "big $(client redis-cli -p "$port" --raw get big | head -c 3000000 |
			sha256sum)"
		echo "key $(cli get key:777)"
		printf 'MULTI\nINCR n\nINCR n\nEXEC\n' | client redis-cli -p "$port"
		cli rpush list a b c
		cli lrange list 0 -1
		cli debug digest
	} >>"$OUT"

	# A blocking pop is woken by a push from another client.
	start client "$TMP/pop" redis-cli -p "$port" blpop queue 10
	sleep 0.2
	cli rpush queue woken >/dev/null
	finish "$PID" 10 || fail "blpop"
	cat "$TMP/pop" >>"$OUT"

	# Load, and a background save in it.
	start client "$TMP/load.log" redis-benchmark -p "$port" -t set,get -r 100000 -n 200000 \
		-c 50 -P 16 -q --csv
	load=$PID
	sleep 0.3
	cli bgsave >>"$OUT"
	finish "$load" 60 || fail "redis-benchmark: $(cat "$TMP/load.log")"
	within 20 saved || fail "the background save did not end well"
	client redis-benchmark -p "$port" -t set,get,lpush,mset -n 5000 -c 50 \
		-q --csv >"$TMP/load2.log" 2>&1 || fail "redis-benchmark: $(cat "$TMP/load2.log")"
	for f in load load2; do
		grep -qi error "$TMP/$f.log" && fail "$(cat "$TMP/$f.log")"
		grep '^"[A-Z]' "$TMP/$f.log" | cut -d, -f1 >>"$OUT"
	done
	say "$(grep -h '^"[SG]ET' "$TMP/load.log" | cut -d, -f1,2 | tr '\n' ' ')requests/s"

	# What it saved in the end is what it holds.
	cli save >>"$OUT"
	digest=$(cli debug digest)
	cli shutdown nosave
	finish "$SRV" 15 || fail "redis-server: $(tail "$TMP/server.log")"
	free_port port2
	redis-server --port "$port2" --bind 127.0.0.1 --save "" --dir "$dir" \
		--enable-debug-command yes >"$TMP/again.log" 2>&1 &
	PIDS+=($!)
	load=$!
	wait_port "$port2"
	within 20 loaded "$port2" || fail "the saved file does not load"
	[[ $(redis-cli -p "$port2" debug digest) == "$digest" ]] ||
		fail "the saved file holds something else"
	stop "$load"
}
for_modes job 1000000
