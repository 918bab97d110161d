#!/bin/bash
# A device whose driver needs ibv_fork_init(), as all do on kernels that do not copy pinned pages at
# fork: there the pages of a queue are the child's once the parent has written to them. A process
# that has forked goes on by RDMA all the same, on the same queue pair.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0' 'rdma_stall 1s'	# a busy machine is late, too
device profile=mlx5 fork_state=0

echoes
back_on_rdma
for _ in 1 2; do
	kill -USR1 "$(cat "$TMP/pid")"
	turns 200
	back_on_rdma
done
! grep -q 'path is dead\|completed nothing' "$TMP/log" || fail "a path died: $(cat "$TMP/log")"
say "$(paths_up) ends of paths, $(by_rdma) bytes by RDMA"
exit 0
