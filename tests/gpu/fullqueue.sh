#!/bin/bash
# The driver holds a thread that puts a copy with a snapshot into a stream: the queue is full until
# a function of the program's has returned, which waits for what another thread sends and receives.
# That thread is not held.
# TIMEOUT: 90
# shellcheck source=tests/gpu/lib.sh
. "$(dirname "$0")/lib.sh"
export STANDIN_QUEUE=6
policy "device eager" "device_memory 16M" "earn_bytes 0" "overflow 10s" "log_level 3"

begin_mode queue
for _ in 1 2 3; do
	gated timeout 25 "$B/gpu/fullqueue" || fail "status $?: $(cat "$OUT" "$TMP/client.log")"
	used=$(grep -c "GPU path: .* shared" "$TMP/shim.$MODE")
	((used)) || fail "the GPU path was not used"
done
say "done"
