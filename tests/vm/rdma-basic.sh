# One connection is cut over to RDMA, bytes are right in both directions, and every path of the way is counted.
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# TIMEOUT: 120
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
rendezvous_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
rendezvous 15s
log_level ${LEVEL:-3}"
on "$PEER" policy "$rules"
policy "$rules"
new_port port
on "$PEER" start srv shim sockbench -s "$port" -n 2
on "$PEER" wait_port "$port" || fail "server does not listen"
timeout 60 env "${SHIM_ENV[@]}" sockbench -c "$P4" "$port" -q -v -t 1 -f rtt_64 || fail "client: rtt_64"
timeout 60 env "${SHIM_ENV[@]}" sockbench -c "$P4" "$port" -q -v -t 1 -f stream_65536 || fail "client: stream"
line=$(counters)
cat $TMP/shim.log
say "client: $line"
[[ $(counter rdma "$line") -gt 0 ]] || fail "nothing went by RDMA"
