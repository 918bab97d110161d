/*
 * state.c - see state.h.
 */
#include "gpu/state.h"

#include <time.h>

#include "base/shim.h"
#include "base/signals.h"
#include "base/sys.h"

static void nothing(void) { }
static bool no(void) { return false; }
static const struct cuda_user nobody = { nothing, nothing, nothing, nothing, no };
const struct cuda_user *cuda_user = &nobody;

void cuda_serve(const struct cuda_user *u) { cuda_user = u; }

_Atomic int cuda_sends, cuda_receives, gpu_path, cuda_live, cuda_linked;
struct lock cuda_lock;
const struct gpu_ops *gpu;
_Atomic(gpu_ctx) cuda_ctx;
bool cuda_paused, cuda_closing;
_Atomic unsigned cuda_reading;
_Atomic bool cuda_ended;

#define SOON_NS 1000000

/* Once it was waited for in vain, nobody waits until it is free again. */
bool cuda_lock_soon(void)
{
	static _Atomic bool in_vain;
	struct timespec nap = { 0, 20000 };
	uint64_t until = now_ns() + SOON_NS;

	while (!lock_try(&cuda_lock)) {
		if (atomic_load(&in_vain) || now_ns() > until) {
			atomic_store(&in_vain, true);
			return false;
		}
		sys(SYS_nanosleep, &nap, NULL);
	}
	if (atomic_load(&in_vain))
		atomic_store(&in_vain, false);
	return true;
}

bool cuda_allowed(void)
{
	return shim_tunables()->device && !cuda_unsafe_here();
}
