#!/bin/bash
# The ways in which a snapshot may stop being what the buffer holds, one by one, bare and with the
# GPU path.
# TIMEOUT: 100
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the stand-in's memory is not a sanitizer's"
MODES="bare both"
export LD_LIBRARY_PATH=$B/gpu STANDIN_DELAY=60
policy "device eager" "device_memory 8M" "earn_bytes 0" "overflow 10s" "log_level 3"

job() {
	client timeout 40 "$B/gpu/scenes" >"$OUT" 2>"$TMP/client.log" ||
		fail "status $?: $(cat "$OUT" "$TMP/client.log")"
	[[ ! -s $TMP/client.log ]] || fail "$(cat "$TMP/client.log")"
}
for_modes job 1000000
grep -qE '"copy_device": *[1-9]' "$TMP/stat.both.json" ||
	fail "the GPU path was not used: $(grep "GPU path" "$TMP/shim.both")"

# what the parent's io_uring writes in the child's memory: the GPU path is not for that child
begin_mode ring
run_with shim env RING=1 timeout 40 "$B/gpu/scenes" pinned_elsewhere >"$OUT" 2>"$TMP/client.log" ||
	fail "status $?: $(cat "$OUT" "$TMP/client.log")"

# one of its own, as libuv makes it, changes nothing: unlearned and trusted say that there are
# snapshots
begin_mode own-ring
run_with shim env RING=own timeout 40 "$B/gpu/scenes" unlearned trusted pinned_elsewhere >"$OUT" \
	2>"$TMP/client.log" || fail "status $?: $(cat "$OUT" "$TMP/client.log")"
