#!/bin/bash
# Erlang: the distribution protocol between two nodes, which RabbitMQ's clusters stand on; with an
# epmd of its own.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
command -v erl >/dev/null && command -v erlc >/dev/null || skip "no erlang-base"
erlc -o "$TMP" "$TOP/tests/zoo/distribution.erl" >"$TMP/erlc.log" 2>&1 ||
	fail "erlc: $(cat "$TMP/erlc.log")"
export HOME=$TMP ERL_CRASH_DUMP=$TMP/crash

node() {
	echo erl -noinput -pa "$TMP" -start_epmd false -setcookie zoo +S 2 -name "$1@127.0.0.1" \
		-kernel inet_dist_use_interface '{127,0,0,1}'
}

job() {
	free_port ERL_EPMD_PORT
	export ERL_EPMD_PORT ERL_EPMD_ADDRESS=127.0.0.1
	start server "$TMP/epmd.log" "$epmd"
	local names=$PID
	wait_port "$ERL_EPMD_PORT"
	# shellcheck disable=SC2046
	server $(node one) -s distribution server
	within 15 registered ||
		fail "the first node does not come up: $(tail -n 3 "$TMP/server.log")"
	# shellcheck disable=SC2046
	client timeout 60 $(node two) -s distribution client one@127.0.0.1 >>"$OUT" \
		2>"$TMP/client.log" ||
		fail "client, status $?: $(tail -n 5 "$OUT" "$TMP/client.log")"
	grep -q '^parallel' "$OUT" || fail "the client has not come to its end: $(cat "$OUT")"
	finish "$SRV" 15 || fail "server: $(tail -n 3 "$TMP/server.log")"
	stop "$names"
}
registered() { grep -q '^name one at' <<<"$("$epmd" -names 2>/dev/null)"; }

epmd=$(command -v epmd)
[[ -x $epmd ]] || skip "no epmd"
zoo job "$(erl -noinput -eval 'io:put_chars(erlang:system_info(otp_release)), halt().')" \
	"distribution between two nodes: calls, large terms, thirty processes at once"
