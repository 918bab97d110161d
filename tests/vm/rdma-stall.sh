# The RDMA network swallows everything, TCP's does not, and the device is patient for longer than
# anybody would wait: after rdma_stall the streams go on by TCP, both ways, no byte wrong.
# HOSTS: 2
# DEVICE: rxe
# TIMEOUT: 240
. "${TOP:?}/tests/vm/lib.sh"

addr=${ctl_addr[$PEER]}
rules="use rdma both *:*
discovery_port 7471
rdma_networks ${ctl_addr[a]}/32 ${ctl_addr[b]}/32
rdma_via 10.1.0.0/24
earn_bytes 0
discovery 60s
rdma_ack_timeout 24
rdma_overflow 60s
rdma_stall 2s
log_level 3"
on "$PEER" policy "$rules"
policy "$rules"

new_port port
on "$PEER" start srv shim pattern listen -a "$addr" -p "$TMP/srv.bytes" -s 4000 -n 1000000000000 \
	-d both "$port"
on "$PEER" wait_port "$port" || fail "server does not listen"
start cli shim pattern connect -p "$TMP/cli.bytes" -s 4000 -n 1000000000000 -d both "$addr" "$port"
cut_over() {
	grep -qs "receive cut over" "$TMP/shim.log" && grep -qs "send cut over" "$TMP/shim.log"
}
within 60 cut_over || { cat "$TMP/shim.log"; fail "not cut over"; }

both tc qdisc add dev data root netem loss 100% || fail "netem"
nap 1
gone() {
	grep -q "has completed nothing" "$TMP/shim.log" ||
		on "$PEER" grep -q "has completed nothing" "$TMP/shim.log"
}
within 40 gone || { tail -n 50 "$TMP/shim.log"; fail "nobody finds that it is stuck"; }
for n in 1 2; do	# what was sent until now arrives, and what is sent meanwhile
	read -r cs _ <<<"$(figures a cli)"
	read -r ss _ <<<"$(figures "$PEER" srv)"
	beyond() { local s g; read -r s g <<<"$(figures "$1" "$2")"; ((s > $3 && g >= $4)); }
	within 40 beyond a cli "$cs" "$ss" && within 40 beyond "$PEER" srv "$ss" "$cs" ||
		{ tail -n 50 "$TMP/shim.log"; fail "stands still, look $n: client $cs" \
		"$(figures a cli), server $ss $(figures "$PEER" srv)"; }
done
both tc qdisc del dev data root
ended cli && fail "client: $(output cli)"
stop cli KILL || fail "client"
on "$PEER" finish srv 30
(($? == 3)) || fail "server: $(on "$PEER" output srv)"
say "given up, and on by TCP"
