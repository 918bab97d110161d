#!/bin/bash
# RabbitMQ: a cluster of two brokers with a queue that both have (Raft), filled at one, emptied at
# the other; with an epmd of its own.
# TIMEOUT: 400
. "$(dirname "$0")/lib.sh"
sbin=$(compgen -G '/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin' | head -n 1)
[[ $sbin ]] || skip "no rabbitmq-server"
/usr/bin/python3 -c 'import pika' 2>/dev/null || skip "no python3-pika"
epmd=$(command -v epmd) || skip "no epmd"
export HOME=$TMP ERL_CRASH_DUMP=$TMP/crash ERL_EPMD_ADDRESS=127.0.0.1
mkdir "$TMP/none"
printf 'cluster_formation.classic_config.nodes.1 = one@127.0.0.1\n' >"$TMP/two.conf"
printf 'loopback_users = none\n' | tee "$TMP/one.conf" >>"$TMP/two.conf"
echo '[].' >"$TMP/plugins"

# the settings of a node: NAME PORT
node() {
	free_port DIST
	ENV=(RABBITMQ_NODENAME="$1@127.0.0.1" RABBITMQ_USE_LONGNAME=true
		RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$2"
		RABBITMQ_DIST_PORT="$DIST" RABBITMQ_MNESIA_BASE="$TMP/$MODE" RABBITMQ_LOGS=-
		RABBITMQ_CONFIG_FILE="$TMP/$1.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$TMP/plugins"
		RABBITMQ_CONF_ENV_FILE="$TMP/none/env" RABBITMQ_PID_FILE="$TMP/$MODE.$1.pid"
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-start_epmd false +S 2 -setcookie zoo')
}
up() { grep -q 'Server startup complete' "$TMP/$1.log"; }
ready() { within 90 up "$1" || fail "$1 does not come up: $(tail -n 5 "$TMP/$1.log")"; }

job() {
	local port other names one two pid
	free_port ERL_EPMD_PORT
	export ERL_EPMD_PORT
	start server "$TMP/epmd.log" "$epmd"
	names=$PID
	wait_port "$ERL_EPMD_PORT"
	free_port port
	node one "$port"
	start server "$TMP/one.log" env "${ENV[@]}" "$sbin/rabbitmq-server"
	one=$PID
	ready one
	free_port other
	node two "$other"
	start server "$TMP/two.log" env "${ENV[@]}" "$sbin/rabbitmq-server"
	two=$PID
	ready two
	client timeout 100 /usr/bin/python3 "$TOP/tests/zoo/rabbit.py" "$port" "$other" >>"$OUT" \
		2>"$TMP/client.log" || fail "client: $(tail -n 5 "$TMP/client.log")"
	grep -q 'True' "$OUT" || fail "other messages: $(cat "$OUT")"
	for p in "$TMP/$MODE".{two,one}.pid; do
		pid=$(cat "$p")		# it takes the file with it
		kill -TERM "$pid" || fail "no broker of $p"
		within 30 gone "$pid" || fail "${p##*/} does not end"
	done
	within 20 gone "$two" && within 20 gone "$one" || fail "a broker's script does not end"
	stop "$names"
}

zoo job "$(basename "$(dirname "$sbin")" | sed 's/.*-//')" \
	"two brokers, a queue that both have: 303 messages in at one, out at the other"
