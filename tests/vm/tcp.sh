#!/bin/bash
# HOSTS: 1 2
# DEVICE: none
# The library preloaded where no RDMA is configured: between two hosts every byte stays on TCP and is right, within one
# host it goes by shared memory. IPv4 and IPv6.
. "${TOP:?}/tests/vm/lib.sh"
[[ -n $SHIM ]] || skip "no SHIM="

for addr in "$P4" "$P6"; do
	new_port port
	on "$PEER" start "server$port" shim sockbench -s "$port" -b "$addr"
	on "$PEER" wait_port "$port" || fail "no server on $addr"
	shim timeout 60 sockbench -c "$addr" "$port" -v -t 0.1 -f rtt_64 >"$TMP/out" || fail "client: $(cat "$TMP/out")"
	on "$PEER" finish "server$port" 20 || fail "server on $addr"
	on "$PEER" start "server$port" shim sockbench -s "$port" -b "$addr"
	on "$PEER" wait_port "$port" || fail "no server on $addr"
	shim timeout 60 sockbench -c "$addr" "$port" -v -t 0.1 -f stream_16384 >>"$TMP/out" || fail "client: $(cat "$TMP/out")"
	on "$PEER" finish "server$port" 20 || fail "server on $addr"
	sed "s/^/$addr: /" "$TMP/out"
	[[ $(grep -cx 'bad_blocks 0 blocks' "$TMP/out") == 2 ]] || fail "bad blocks"
	for h in a $([[ $PEER == a ]] || echo "$PEER"); do
		line=$(on "$h" counters) || fail "no counters on host $h"
		say "$addr, host $h: $line"
		[[ $(counter connections "$line") -ge 2 ]] || fail "the library saw no connections on host $h"
		[[ $(counter rdma "$line") == 0 ]] || fail "bytes by RDMA, which is not configured"
		if ((HOSTS == 2)); then
			[[ $(counter shm "$line") == 0 ]] || fail "bytes by shared memory between two hosts?"
		else
			[[ $(counter shm "$line") -gt 1000000 ]] || fail "too few bytes by shared memory on one host"
		fi
	done
done
