#!/bin/bash
# Contexts that end, stream capture, no device memory, no IPC: every block arrives, by TCP's own
# bytes where it must, and the reason is there to see.
# TIMEOUT: 100
. "$(dirname "$0")/lib.sh"
export STANDIN_DELAY=60
policy "device eager" "device_memory 16M" "earn_bytes 0" "overflow 10s" "log_level 3"

# scene NAME [ENV...]: TAKEN bytes by device memory, WHY the reasons of all call sites.
scene() {
	local name=$1
	shift
	begin_mode "$name"
	gated env "$@" timeout 60 "$B/gpu/life" "${name%%-*}" ||
		fail "status $?: $(tail -n 5 "$TMP/client.log")"
	[[ ! -s $TMP/client.log ]] || fail "$(cat "$TMP/client.log")"
	TAKEN=0
	read -r TAKEN WHY < <(RDMASHIM_STAT_DIR=$STAT "$B/rdmastat" staging --json --all |
		python3 -S -E -c 'import json, sys
s = json.load(sys.stdin)["staging"]
print(sum(x["taken"] for x in s), " ".join(sorted({w["reason"] for x in s
    for w in x["why_not"]})))')
	say "$(tail -n 1 "$OUT"); $TAKEN bytes by device memory; $WHY"
}

# Snapshots were taken; who fetches them in time is the machine's business.
used() { grep -q "GPU path: .* shared" "$TMP/shim.$MODE" || fail "the GPU path was not used"; }

for how in reset release destroy; do
	scene $how
	used
	(($(grep -c "ends a CUDA context" "$TMP/shim.$MODE") == 2)) || fail "no reason in the log"
done
scene capture
used
[[ $WHY == *device-capture* ]] || fail "no reason: $WHY"
scene memory STANDIN_MEM=33554432
((TAKEN == 0)) || fail "the GPU path was used"
[[ $WHY == *device-memory* ]] || fail "no reason: $WHY"
scene plain
used
scene plain-hidden STANDIN_NO_IPC=1
((TAKEN == 0)) || fail "the GPU path was used"
[[ $WHY == *device-not-taken* ]] || fail "no reason: $WHY"
if unshare -p -f --mount-proc true 2>/dev/null; then
	scene plain-pidns FAR_PIDNS=1
	used
	((TAKEN == 0)) || fail "the GPU path was used"
	[[ $WHY == *device-not-taken* ]] || fail "no reason: $WHY"
else
	say "PID namespaces are not permitted here: not tried"
fi
exit 0
