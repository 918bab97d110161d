#!/bin/bash
# A device whose driver needs ibv_fork_init(), as all do on kernels that do not copy pinned pages at
# fork: there the pages of a queue are the child's once the parent has written to them. A process
# that has forked goes on by RDMA all the same, on the same queue pair.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0'
E=$TOP/tests/nic/echo.py
device profile=mlx5 fork_state=0

free_port PORT
preloaded a python3 "$E" listen "$PORT" >"$TMP/pid" &
PIDS+=($!)
within 20 listening "$PORT" || fail "no server"
mkfifo "$TMP/to"
preloaded b python3 "$E" connect "$PORT" <"$TMP/to" >"$TMP/times" 2>"$TMP/client" &
PIDS+=($!)
disown	# nobody wants to hear of its end
exec 3>"$TMP/to"
rounds=0
turns() {
	rounds=$((rounds + 1))
	echo "$1" >&3
	within 40 answered || fail "no answer: $(cat "$TMP/client" "$TMP/log")"
}
answered() { (($(wc -l <"$TMP/times") == rounds)); }
by_rdma_after() { turns 200; rdma_moves "$1"; }

within 20 by_rdma_after 0 || fail "nothing goes by RDMA: $(cat "$TMP/log")"
for _ in 1 2; do
	kill -USR1 "$(cat "$TMP/pid")"
	turns 200
	bytes=$(by_rdma)
	within 30 by_rdma_after $((bytes + 20000)) || fail "nothing by RDMA: $(cat "$TMP/log")"
done
! grep -q 'path is dead\|completed nothing' "$TMP/log" || fail "a path died: $(cat "$TMP/log")"
say "$(paths_up) ends of paths, $(by_rdma) bytes by RDMA"
exit 0
