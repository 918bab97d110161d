# Checksummed streams in both directions while their RDMA device is deleted and made again: no
# byte lost or doubled, no hang, and RDMA is used again afterwards; 3 times, or $VM_ARGS. Then
# while every stream is cut and rewound all the time.
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# TIMEOUT: 600
. "${TOP:?}/tests/vm/lib.sh"

rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
earn_bytes 0
rdma_retry 300ms
discovery 15s
log_level ${LEVEL:-3}"

endless=1000000000000

# transfer BYTES CALL POLICY FAULT: three connections, each with another way of waiting; FAULT is
# called while they run.
transfer() {
	local bytes=$1 fault=$4 port w
	on "$PEER" policy "$rules" "$3"
	policy "$rules" "$3"
	for w in block poll edge; do
		new_port port
		on "$PEER" start "srv$port" shim pattern listen -a "$P4" -p "$TMP/srv$port.bytes" \
			-s "$2" -n "$bytes" -d both -w $w "$port"
		on "$PEER" wait_port "$port" || fail "server does not listen"
		start "cli$port" shim pattern connect -p "$TMP/cli$port.bytes" -s "$2" -n "$bytes" \
			-d both -w $w "$P4" "$port"
		names+=("$port")
	done
	$fault
	for port in "${names[@]}"; do
		if [[ $bytes == "$endless" ]]; then	# every byte that came must be right
			ended "cli$port" && fail "client $port: $(output "cli$port")"
			stop "cli$port" KILL
			on "$PEER" finish "srv$port" 30
			(($? == 3)) || fail "server $port: $(on "$PEER" output "srv$port")"
			continue
		fi
		await a "cli$port" ||
			{ tail -n 100 "$TMP"/shim.log; fail "client $port: $(output "cli$port")"; }
		await "$PEER" "srv$port" || fail "server $port: $(on "$PEER" output "srv$port")"
	done
	names=()
}

# Both halves of some connection were cut over $1 times at least since the log was that long.
ups() { grep -c "receive cut over" "$TMP"/shim.log 2>/dev/null; }
more_ups() { [[ $(ups) -gt $1 ]]; }

lose_device() {
	local before=0 i
	for ((i = 1; i <= cycles; i++)); do
		within 90 more_ups "$before" ||
			{ tail -n 200 "$TMP"/shim.log; fail "cycle $i: nothing goes by RDMA (any" \
			"more)"; }
		nap 0.2
		device_down "$DEVICE" ||
			{ tail -n 200 "$TMP"/shim.log; fail "cannot delete the device"; }
		nap 0.2
		before=$(ups)
		device_up "$DEVICE" || fail "cannot make the device again"
	done
}

names=()
cycles=${VM_ARGS:-3}
transfer $endless 4000 "" lose_device
[[ $(grep -c "RDMA path is dead" "$TMP"/shim.log) -ge $cycles ]] ||
	{ tail -n 200 "$TMP"/shim.log; fail "the device was deleted $cycles times"; }
before=$(grep -c "back on TCP" "$TMP"/shim.log)
# How long a link takes is the machine's business, so there is more to transfer each time until
# one has seen it for long enough.
for bytes in 10000000 40000000 160000000 640000000; do
	transfer $bytes 4000 "force_cut_every 20ms" true
	after=$(grep -c "back on TCP" "$TMP"/shim.log)
	((after > before + 20)) && break
done
((after > before + 20)) || { tail -n 200 "$TMP"/shim.log; fail "hardly rewound: $before, then" \
	"$after"; }
say "$after rewinds"
