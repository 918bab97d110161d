#!/bin/bash
# TIMEOUT: 120
# What a process may have pinned: connections beyond rdma_memory stay on TCP, and lose nothing. And
# those that are busy take no more of it for larger rings than they leave to others.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0' 'rdma_memory 1M' 'rdma_stall 1s'	# a busy machine is late, too
device profile=mlx5
echoes 60 1000
back_on_rdma
for node in a b; do
	read -r bytes < <(ctl stat "$node" | grep -oE '[0-9]+ bytes registered')
	bytes=${bytes%% *}
	((bytes <= 1 << 20)) || fail "$node has $bytes bytes registered"
	say "$node has $bytes bytes registered"
done
stays() { grep -q no-memory <<<"$("$B/rdmastat" --all -c)"; }
within 40 stays || fail "no connection says why: $("$B/rdmastat" --all -c)"
turns 20
! grep -q 'path is dead' "$TMP/log" || fail "$(cat "$TMP/log")"
end_echoes
no_device

# 16 streams of bulk would take 32 large rings at each end, all of the budget, and 16 small streams
# that come after them nothing.
sed -i 's/^rdma_memory .*/rdma_memory 4M/' "$RDMASHIM_CONF"
printf '%s\n' 'rdma_ring 8K' 'rdma_ring_max 256K' >>"$RDMASHIM_CONF"
: >"$TMP/log"
device profile=mlx5
echoes 16 500000 16
turns 10
turns 50
rings() { "$B/rdmastat" --json --all | python3 -c '
import json, sys
t = json.load(sys.stdin)["total"]["counters"]
print(t["rings_enlarged"], t["rings_kept_small"])'; }
read -r larger kept < <(rings)
say "$larger rings were made larger, $kept stayed small"
((larger > 0)) || fail "no ring has grown: $(cat "$TMP/log")"
((kept > 0)) || fail "all rings have grown, or nobody counts those that have not"
slow() { "$B/rdmastat" --all -c | grep no-memory; }
! slow || fail "small streams have got nothing: $("$B/rdmastat" --all -c)"
exit 0
