# Checksummed streams in both directions while their RDMA device is deleted and made again: no byte lost or doubled, no hang,
# and RDMA is used again afterwards. Then while every stream is cut and rewound all the time.
# HOSTS: 1 2
# DEVICE: rxe siw
# TIMEOUT: 200
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
rendezvous_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
rdma_retry 300ms
log_level ${LEVEL:-3}"

# run BYTES POLICY FAULT: three connections, each with another way of waiting; FAULT is called while they run.
transfer() {
	local bytes=$1 fault=$3 port w
	on "$PEER" policy "$rules" "$2"
	policy "$rules" "$2"
	for w in block poll edge; do
		new_port port
		on "$PEER" start "srv$port" shim pattern listen -a "$P4" -n "$bytes" -d both -w $w "$port"
		on "$PEER" wait_port "$port" || fail "server does not listen"
		start "cli$port" shim pattern connect -n "$bytes" -d both -w $w "$P4" "$port"
		names+=("$port")
	done
	$fault
	for port in "${names[@]}"; do
		finish "cli$port" 120 || { cat $TMP/shim.log; fail "client $port: $(output "cli$port")"; }
		on "$PEER" finish "srv$port" 60 || fail "server $port: $(on "$PEER" output "srv$port")"
	done
	names=()
}

on_rdma() { [[ $(counter rdma "$(counters)") -gt $1 ]]; }

lose_device() {
	local before=0 i
	for i in 1 2 3; do
		within 30 on_rdma "$before" || { cat $TMP/shim.log; fail "cycle $i: nothing goes by RDMA (any more): $(counters)"; }
		device_down "$DEVICE" || fail "cannot delete the device"
		nap 0.3
		device_up "$DEVICE" || fail "cannot make the device again"
		before=$(counter rdma "$(counters)")
	done
}

names=()
transfer 60000000 "" lose_device
say "after losing the device: $(counters)"
[[ $(grep -c "RDMA path is dead" $TMP/shim.log) -ge 3 ]] || { cat $TMP/shim.log; fail "the device was deleted 3 times"; }
before=$(counter rewinds "$(counters)")
transfer 6000000 "force_cut_every 20ms" true
[[ $(counter rewinds "$(counters)") -gt $((before + 20)) ]] || fail "hardly rewound: $(counters)"
say "at the end: $(counters)"
