#!/bin/bash
# TIMEOUT: 180
# What is counted as sent and received, by path, is what the programs sent and received, between
# hosts, too: where a full ring falls back and its bytes are sent once more by TCP, where cuts and
# rewinds are forced, and where queue pairs fail and the path comes back.
. "$(dirname "$0")/lib.sh"
FAILS=0

# The sums of both ends, by path: $TX_RDMA $RX_RDMA $TX $RX $REWINDS.
collect() {
	"$B/rdmastat" --json --all >"$TMP/stat.json" || fail "rdmastat"
	read -r TX_RDMA RX_RDMA TX RX REWINDS < <(python3 -S -E -c 'import json, sys
j = json.load(sys.stdin)
tx, rx = ({p: sum(x[way][p] for x in j["processes"]) for p in ("tcp", "shm", "rdma")}
          for way in ("tx_bytes", "rx_bytes"))
print(tx["rdma"], rx["rdma"], sum(tx.values()), sum(rx.values()),
      j["total"]["counters"]["rewinds"])' <"$TMP/stat.json")
}

more_paths() { (($(paths_up) > $1)); }
# A queue pair of node a fails, and that of the path that comes after it. rdmastat would remove the
# counts of who has ended, so here the log tells.
fail_some() {
	local n=0
	for _ in 1 2; do
		within 5 more_paths "$n" || break
		n=$(paths_up)
		ctl fail a || fail "ctl fail a"
		FAILS=$((FAILS + 1))
	done
}

# run WHAT COMMAND POLICY...
run() {
	local what=$1 meanwhile=$2 rc sum
	shift 2
	rm -rf "$TMP/stat"
	library "$@"
	device profile=mlx5
	free_port PORT
	preloaded a python3 "$TOP/tests/apps/counts.py" server "$PORT" >"$TMP/server" 2>&1 &
	SERVER=$!
	PIDS+=("$SERVER")
	within 20 listening "$PORT" || fail "server: $(cat "$TMP/server")"
	preloaded b python3 "$TOP/tests/apps/counts.py" client "$PORT" >"$TMP/client" 2>&1 &
	CLIENT=$!
	PIDS+=("$CLIENT")
	"$meanwhile"
	wait "$CLIENT"
	rc=$?
	((rc == 0)) && wait "$SERVER" || fail "$what: $(cat "$TMP/client" "$TMP/server")"
	no_device
	collect
	say "$what: sent $TX_RDMA of $TX, received $RX_RDMA of $RX bytes by RDMA, $REWINDS rewinds"
	((TX_RDMA > 0 && REWINDS > 0)) || fail "$what: nothing by RDMA, or nothing fell back"
	((TX_RDMA == RX_RDMA && TX == RX)) ||
		fail "$what: sent $TX, of it $TX_RDMA by RDMA; received $RX, of it $RX_RDMA by RDMA"
	sum=$(awk '{ s += $2 } END { print s }' "$TMP/client" "$TMP/server")
	((TX == sum)) || fail "$what: counted as sent: $TX, the programs sent $sum"
}

run "a reader that pauses" true 'earn_bytes 0' 'earn_rounds 0' 'rdma_overflow 20ms'
run "forced cuts" true 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 200ms'
run "queue pairs that fail" fail_some 'earn_bytes 0' 'earn_rounds 0'
((FAILS > 0)) || fail "no queue pair failed"
exit 0
