#!/bin/bash
# check.sh - the device lane on real GPUs: make check-gpu. ROUNDS (500) of random programs for each way to the driver.
. "$(dirname "$0")/lib.sh"

for how in linked dlsym address address1 thread; do
	out=$(under truthful "$B/gpu/pair" $how "${ROUNDS:-500}" $RANDOM 2>&1) || fail "pair $how: $out"
	read -r dev d2d direct < <(taken)
	echo "pair $how: ${out##*$'\n'}; from device memory $dev, to the device without the host $d2d, direct $direct"
	((dev > 0 && d2d > 0)) || { fail "the lane was not used"; grep -h "device lane" "$TMP/log"; }
done
out=$(MORE="force_cut_every 5ms" under truthful "$B/gpu/pair" address 200 $RANDOM 2>&1) || fail "pair, cut over and over: $out"
echo "pair, cut over and over: ${out##*$'\n'}"
if python3 -c 'import torch' 2>/dev/null; then
	out=$(under truthful python3 "$HERE/../gloo.py" check 2>&1) || fail "gloo: $out"
	read -r dev d2d direct < <(taken)
	echo "gloo: $(tail -n 2 <<<"$out" | tr '\n' ' '); from device memory $dev, to the device without the host $d2d, direct $direct"
fi
((FAILED == 0)) && echo "all right on $GPUS GPUs"
exit $FAILED
