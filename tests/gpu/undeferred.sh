#!/bin/bash
# The library that was built without the lazy GPU path (make DEFERRED=no): with `device lazy`
# it is the eager path, the log says why, and every byte is right.
# TIMEOUT: 100
[[ -z ${SHIM-} ]] || SHIM=$B/no-deferred/librdmashim.so
. "$(dirname "$0")/lib.sh"
[[ -e $SHIM ]] || skip "no library without the lazy GPU path (make tests)"
export STANDIN_DELAY=60
policy "device lazy" "force_defer on" "device_memory 16M" "earn_bytes 0" "overflow 10s" \
	"log_level 3"

# Pages that the program could not know to be hidden; and no thread that lifts veils.
begin_mode veils
run_with shim timeout 60 "$B/gpu/veils" load >"$OUT" 2>&1 || fail "$(grep -v '^ok' "$OUT")"
grep -q 'nothing is deferred: this library was built without it' "$TMP/shim.$MODE" ||
	fail "the log does not say so: $(grep -h 'GPU path' "$TMP/shim.$MODE" | tail -n 3)"
! grep -q 'were deferred' "$TMP/shim.$MODE" || fail "$(grep 'were deferred' "$TMP/shim.$MODE")"

begin_mode linked
seed=$((RANDOM + 1))
gated "$B/gpu/pair" linked 60 $seed || fail "seed $seed: $(tail -n 3 "$TMP/client.log")"
collect
n=$(python3 -S -E -c 'import json, sys
print(json.load(sys.stdin)["total"]["counters"]["copy_device"])' <"$TMP/stat.$MODE.json")
say "seed $seed: $(tail -n 1 "$OUT"); $n bytes from device memory"
((n > 0)) || fail "the eager GPU path was not used"
