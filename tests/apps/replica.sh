#!/bin/bash
# redis replication: a full copy from a forked child of the master, the stream of commands after
# it, a broken link that is taken up again where it broke, and in the end the same data at both.
# The replica is the client; the load comes from a program without the library.
. "$(dirname "$0")/lib.sh"
ask() { redis-cli -p "$1" "${@:2}" 2>/dev/null; }
info() { ask "$1" info replication | tr -d '\r' | sed -n "s/^$2://p"; }
up() { [[ $(info "$1" master_link_status) == up ]]; }
caught_up() { [[ $(info "$replica" slave_repl_offset) == $(info "$master" master_repl_offset) ]]; }
load() {
	redis-benchmark -p "$master" -t set,lpush -r 50000 -n "$1" -d 500 -c 20 -P 8 \
		-q --csv >"$TMP/load.log" 2>&1 || fail "redis-benchmark: $(cat "$TMP/load.log")"
}

job() {
	local master replica syncs copy
	free_port master
	free_port replica
	mkdir "$TMP/m.$MODE" "$TMP/r.$MODE"
	server redis-server --port "$master" --bind 127.0.0.1 --save "" --dir "$TMP/m.$MODE" \
		--enable-debug-command yes --repl-backlog-size 64mb \
		--repl-diskless-sync-delay 0
	wait_port "$master"
	load 30000
	start client "$TMP/replica.log" redis-server --port "$replica" --bind 127.0.0.1 --save "" \
		--dir "$TMP/r.$MODE" --enable-debug-command yes \
		--replicaof 127.0.0.1 "$master"
	copy=$PID
	within 30 up "$replica" || fail "no link: $(tail -n 5 "$TMP/replica.log")"
	load 30000
	within 30 caught_up ||
		fail "the replica is behind:" \
		"$(info "$replica" slave_repl_offset) of $(info "$master" master_repl_offset)"
	[[ $(ask "$master" debug digest) == $(ask "$replica" debug digest) ]] ||
		fail "the copy differs"
	echo "the same after the load" >>"$OUT"

	ask "$master" client kill type replica >/dev/null
	load 10000
	within 30 up "$replica" ||
		fail "the link does not come back: $(tail -n 5 "$TMP/replica.log")"
	within 30 caught_up || fail "the replica is behind"
	[[ $(ask "$master" debug digest) == $(ask "$replica" debug digest) ]] ||
		fail "the copy differs after the link broke"
	syncs=$(ask "$master" info stats | tr -d '\r' | grep -E '^sync_(full|partial_ok)')
	echo "the same after the link broke; $syncs" >>"$OUT"
	stop "$copy"
	stop "$SRV"
}
for_modes job 5000000
