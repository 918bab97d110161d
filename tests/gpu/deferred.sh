#!/bin/bash
# The lazy GPU path on the stand-in driver: whoever looks at a buffer finds its bytes, whether its
# pages were hidden or not; random programs, with and without device memory that can be mapped;
# and without the privilege that it needs, the eager GPU path.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
export STANDIN_DELAY=60
lines=("device lazy" "force_defer on" "device_memory 16M" "earn_bytes 0" "overflow 10s" \
	"log_level 3")

deferred() {
	sed -n 's/.*GPU path: \([0-9]*\) copies and receives .* deferred;.*/\1/p' \
		"$TMP/shim.$MODE" | awk '{ n += $1 } END { print n + 0 }'
}

# quiet CMD...: all scenes are right.
quiet() {
	run_with shim timeout 60 "$@" >"$OUT" 2>"$TMP/client.log" ||
		fail "status $?: $(grep -v '^ok' "$OUT") $(cat "$TMP/client.log")"
	[[ ! -s $TMP/client.log ]] || fail "$(cat "$TMP/client.log")"
}

begin_mode bare
run_with none timeout 60 "$B/gpu/veils" >"$OUT" || fail "bare: $(grep -v '^ok' "$OUT")"

begin_mode veils
policy "${lines[@]}"
if ! run_with shim timeout 60 "$B/gpu/veils" load >"$OUT" 2>&1; then fail "$(cat "$OUT")"; fi
! grep -q "nothing is deferred" "$TMP/shim.$MODE" ||
	skip "no userfaultfd for accesses by the kernel here (CAP_SYS_PTRACE)"
quiet env DEFERRED=1 "$B/gpu/veils"
say "$(grep -c '^ok' "$OUT") scenes, $(deferred) deferred"
begin_mode lane
quiet env DEFERRED=1 "$B/gpu/veils" load
RDMASHIM_STAT_DIR=$STAT "$B/rdmastat" staging --json --all | python3 -S -E -c 'import json, sys
s = json.load(sys.stdin)["staging"]
assert any(x["lane"] == "deferred" and x["direction"] == "to-device" for x in s), s' ||
	fail "rdmastat staging does not say deferred"
begin_mode no_descriptors
quiet bash -c 'ulimit -n 1024 && exec env DEFERRED=1 "$0" no_descriptors' "$B/gpu/veils"
for scene in forked waiting_stream device_lost; do
	begin_mode $scene
	quiet env DEFERRED=1 "$B/gpu/veils" $scene
done

# Without the thread that answers userfaultfd nothing may wait for it: a fork would, for ever.
begin_mode no_thread
gcc -shared -fPIC -x c - -o "$TMP/no_thread.so" <<'END' || fail "gcc"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

/* The library's first thread comes with its first connection, the second with the GPU path. */
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		dlsym(RTLD_NEXT, "pthread_create");
	static int ours;
	Dl_info d;

	if (dladdr(f, &d) && strstr(d.dli_fname, "librdmashim") && ++ours == 2)
		return EAGAIN;
	return real(t, a, f, arg);
}
END
PRELOAD="$TMP/no_thread.so $PRELOAD" quiet "$B/gpu/veils" load forked
grep -q 'nothing is deferred: no thread' "$TMP/shim.$MODE" || fail "$(cat "$TMP/shim.$MODE")"

begin_mode scenes
policy "${lines[@]/16M/8M}"
quiet "$B/gpu/scenes"

policy "${lines[@]/16M/32M}"
for how in linked address thread; do
	seed=$((RANDOM + 1))
	begin_mode "$how"
	gated "$B/gpu/pair" $how 100 $seed || fail "seed $seed: $(tail -n 3 "$TMP/client.log")"
	say "seed $seed: $(tail -n 1 "$OUT"), $(deferred) deferred"
	(($(deferred) > 0)) || fail "nothing was deferred"
done
begin_mode no_device
seed=$((RANDOM + 1))
FAR=plain gated "$B/gpu/pair" linked 60 $seed || fail "seed $seed: $(tail -n 3 "$TMP/client.log")"
say "seed $seed: $(tail -n 1 "$OUT"), $(deferred) deferred"
begin_mode hidden
seed=$((RANDOM + 1))
STANDIN_NO_IPC=1 gated "$B/gpu/pair" linked 60 $seed ||
	fail "seed $seed: $(tail -n 3 "$TMP/client.log")"
say "seed $seed: $(tail -n 1 "$OUT"), $(deferred) deferred"

begin_mode unprivileged
run_with shim setpriv --bounding-set=-sys_ptrace timeout 60 "$B/gpu/veils" >"$OUT" 2>&1 ||
	fail "$(grep -v '^ok' "$OUT")"
grep -q "nothing is deferred" "$TMP/shim.$MODE" || fail "no word of what is not permitted"
exit 0
