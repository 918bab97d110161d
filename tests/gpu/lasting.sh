#!/bin/bash
# A receiver that is stopped in the middle of a take from the sender's device: the sender goes on
# by the ring, another of its threads may shut the direction down, and the receiver's copy, when
# it ends at last, does not count.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the stand-in's memory is not a sanitizer's"
export LD_LIBRARY_PATH=$B/gpu STANDIN_STALL=$TMP/stalled
policy "device eager" "device_memory 16M" "earn_bytes 0" "overflow 10s" "log_level 3"

for how in wait shut; do
	begin_mode "$how"
	out=$(run_with shim timeout 25 "$B/gpu/lasting" "$how" 2>"$TMP/client.log") ||
		fail "$? $out $(cat "$TMP/client.log")"
	say "$out"
done
