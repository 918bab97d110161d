#!/bin/bash
# HOSTS: 1 2
# DEVICE: none
# TIMEOUT: 300
# The library preloaded where no RDMA is configured: between two hosts every byte stays on TCP and
# is right, within one host it goes by shared memory. IPv4 and IPv6.
. "${TOP:?}/tests/vm/lib.sh"
[[ -n $SHIM ]] || skip "no SHIM="

# bench ADDR FIGURE SECS: one run of sockbench between the ends
bench() {
	local port
	new_port port
	on "$PEER" start "server$port" shim sockbench -s "$port" -b "$1"
	on "$PEER" wait_port "$port" || fail "no server on $1"
	shim timeout 100 sockbench -c "$1" "$port" -v -t "$3" -f "$2" >"$TMP/out" ||
		fail "client: $(cat "$TMP/out")"
	on "$PEER" finish "server$port" 20 || fail "server on $1"
	sed "s/^/$1: /" "$TMP/out"
	grep -qx 'bad_blocks 0 blocks' "$TMP/out" || fail "bad blocks"
}

# What this host's processes have moved: all by TCP between hosts, within one at least a million
# bytes by shared memory.
as_it_should() {
	local h line enough=0
	for h in $([[ $PEER == a ]] && echo a || echo a b); do
		line=$(on "$h" counters) || fail "no counters on host $h"
		say "$1, host $h: $line"
		(($(counter connections "$line") >= 1)) ||
			fail "the library saw no connection on host $h"
		[[ $(counter rdma "$line") == 0 ]] || fail "bytes by RDMA, which is not configured"
		if ((HOSTS == 2)); then
			[[ $(counter shm "$line") == 0 ]] ||
				fail "bytes by shared memory between two hosts?"
		elif (($(counter shm "$line") <= 1000000)); then
			enough=1
		fi
	done
	return $enough
}

for addr in "$P4" "$P6"; do
	bench "$addr" rtt_64 0.1
	as_it_should "$addr"
	# How long it takes to find the other end is the machine's business, so each run is twice
	# as long until one has seen it.
	for secs in 0.1 0.2 0.4 0.8 1.6 3.2 6.4 12.8; do
		bench "$addr" stream_16384 $secs
		as_it_should "$addr" && break
	done || fail "too few bytes by shared memory on one host"
done
