#!/bin/bash
# Two processes on one device (device_shared_min): a small block comes from the host, a large one
# by the device; on two devices a small one, too.
# TIMEOUT: 60
SHARED_MIN=3M
. "$(dirname "$0")/lib.sh"
export STANDIN_DELAY=20
policy "device eager" "device_memory 64M" "earn_bytes 0" "overflow 10s" "log_level 3"

# taken MODE DEVICES SIZE: the share of the sender's copies that went by device memory, in
# percent; the first ones never do.
taken() {
	begin_mode "$1"
	STANDIN_DEVICES=$2 gated "$B/gpu/pipe" stream "$3" 60 pinned ||
		fail "$(tail -n 3 "$TMP/client.log")"
	RDMASHIM_STAT_DIR=$STAT "$B/rdmastat" staging --json --all >"$TMP/staging.$MODE.json" ||
		fail "rdmastat staging"
	share=$(python3 -S -E -c 'import json, sys
s = [x for x in json.load(open(sys.argv[1]))["staging"] if x["call_site"][0] != "("
    and x["direction"] == "to-host"]
print(100 * sum(x["taken"] for x in s) // sum(x["bytes"] for x in s))' "$TMP/staging.$MODE.json") \
	|| fail "no figures"
	say "$2 devices, blocks of $3: $share % by device memory"
}
taken small 1 1048576
((share == 0)) || fail "small blocks went by a device that both use"
grep -q "the peer works on the same device" "$TMP/shim.$MODE" || fail "and no word of it"
# how many, is a matter of when the reader is there: two processes and two devices on these CPUs
taken large 1 4194304
((share > 0)) || fail "large blocks did not go by the device"
taken two 2 1048576
((share > 0)) || fail "another device is not the same"
