#!/bin/bash
# What a process may have pinned: connections beyond rdma_memory stay on TCP, and lose nothing.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0' 'rdma_memory 1M'
device profile=mlx5
echoes 60 1000
back_on_rdma
for node in a b; do
	read -r bytes < <(ctl stat "$node" | grep -oE '[0-9]+ bytes registered')
	bytes=${bytes%% *}
	((bytes <= 1 << 20)) || fail "$node has $bytes bytes registered"
	say "$node has $bytes bytes registered"
done
stays() { "$B/rdmastat" --all -c | grep -q no-memory; }
within 40 stays || fail "no connection says why: $("$B/rdmastat" --all -c)"
turns 20
! grep -q 'path is dead' "$TMP/log" || fail "$(cat "$TMP/log")"
exit 0
