#!/bin/bash
# Random GPU programs on the stand-in driver, got in every way: what is received is what the
# sender's buffer held when it was sent, and what reaches the receiver's device is what its buffer
# held; and the GPU path was used, or not where it must not be.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
export STANDIN_DELAY=60

# lane HOW ROUNDS SEED: DEV bytes from device memory, D2D bytes to a device that did not come from
# the host.
lane() {
	begin_mode "$1"
	gated "$B/gpu/pair" "$1" "$2" "$3" || fail "seed $3: $(tail -n 3 "$TMP/client.log")"
	collect
	read -r DEV D2D < <(python3 -S -E -c 'import json, sys
c = json.load(sys.stdin)["total"]["counters"]
print(c["copy_device"], c["device_to_device"])' <"$TMP/stat.$MODE.json")
	say "seed $3:" \
		"$(tail -n 1 \
		"$OUT"); $DEV bytes from device memory, $D2D to a device without the host"
}

lines=("device eager" "device_memory 32M" "earn_bytes 0" "overflow 10s" "log_level 3")
policy "${lines[@]}"
for how in linked dlsym address address1 thread; do
	lane $how 120 $((RANDOM + 1))
	((DEV > 0 && D2D > 0)) ||
		fail "the GPU path was not used: $(grep -h 'GPU path' "$TMP/shim.$MODE" |
		tail -n 3)"
done
FAR=same lane linked 120 $((RANDOM + 1))
((DEV > 0 && D2D > 0)) || fail "the GPU path was not used"
FAR=plain lane linked 60 $((RANDOM + 1))
((DEV == 0)) || fail "who has no device read from one"
policy "${lines[@]}" "force_cut_every 3ms"
lane address 100 $((RANDOM + 1))
STANDIN_NO_IPC=1 lane linked 60 $((RANDOM + 1))	# as between containers
((DEV == 0)) || fail "device memory that cannot be mapped was read"
begin_mode bare-peer	# which speaks TCP only
seed=$((RANDOM + 1))
run_with shim timeout 60 env FAR=bare "$B/gpu/pair" linked 40 $seed >"$OUT" 2>"$TMP/client.log" ||
	fail "seed $seed: $(tail -n 3 "$TMP/client.log")"
say "seed $seed: $(tail -n 1 "$OUT")"
policy "device off" "earn_bytes 0" "log_level 3"
lane dlsym 40 $((RANDOM + 1))
((DEV == 0 && D2D == 0)) || fail "the GPU path was used though it is off"
