#!/bin/bash
# HOSTS: 1 2
# DEVICE: rxe siw
# EXCEPT: 2.siw
# The measure to compare with: librdmacm's rsockets, preloaded, carry sockbench between the hosts
# with right bytes. If this fails, then the guests or the device are at fault, not this project's
# library.
. "${TOP:?}/tests/vm/lib.sh"

for addr in "$P4" "$P6"; do
	new_port port
	on "$PEER" start "server$port" rsockets sockbench -s "$port" -b "$addr"
	on "$PEER" wait_rdma_port "$port" || fail "no server on $addr"
	rsockets timeout 60 sockbench -c "$addr" "$port" -v -t 0.1 -f rtt_64 >"$TMP/out" ||
		fail "client: $(cat "$TMP/out")"
	on "$PEER" finish "server$port" 20 || fail "server on $addr"
	sed "s/^/$addr: /" "$TMP/out"
	grep -qx 'bad_blocks 0 blocks' "$TMP/out" || fail "bad blocks"
done
