#!/bin/bash
# All rings that a process sends by stay within `ring_budget`: connections beyond it are on TCP and
# say why, all bytes are right, and what rests makes room for others.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
N=40
BUDGET=$((2 << 20))	# eight rings of each process
MODES=both

told() { grep -q "$1" "$TMP/client.log"; }
rounds() {
	total=$((total + $1))
	echo "$1" >"$TMP/fifo"
	within 60 told "done $total" ||
		fail "$total rounds: $(cat "$TMP/client.log" "$TMP/server.log")"
}
# ask EXPRESSION: of the processes p
ask() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json | python3 -c '
import json, sys
p = json.load(sys.stdin)["processes"]
reasons = {r["reason"] for x in p for r in x["reasons"]}
sum_of = lambda name: sum(x["counters"][name] for x in p)
sys.exit(not (len(p) == 2 and eval(sys.argv[1])))' "$1"
}
must() { ask "$1" || fail "not so: $1: $(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json)"; }

begin_mode both
policy 'ring_idle 200ms' "ring_budget $BUDGET" 'earn_bytes 0' 'ring_max 0'
total=0
free_port port
mkfifo "$TMP/fifo"
server "$B/apps/idlerings" server "$port"
wait_port "$port"
start client "$TMP/client.log" "$B/apps/idlerings" client "$port" "$N" 256 "$TMP/fifo"
CLIENT=$PID
within 30 told connected || fail "not connected: $(cat "$TMP/client.log")"
for _ in 1 2 3 4 5 6; do
	rounds 2
	must "all(x['ring_budget'] == $BUDGET >= x['ring_bytes'] for x in p)"
	within 20 ask "all(x['ring_bytes'] < $BUDGET for x in p)" || fail "rings keep their memory"
done
must "sum_of('rings_refused') and 'no-memory' in reasons"
must "sum_of('rings_rested') >= 16 and all(x['bytes']['shm'] for x in p)"
say "$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" why "$SRV" | grep '^memory')"
echo quit >"$TMP/fifo"
finish "$CLIENT" 20 || fail "client: $(cat "$TMP/client.log")"
stop "$SRV"
