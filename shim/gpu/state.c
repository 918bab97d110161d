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
static const struct gpu_user nobody = { nothing, nothing, nothing, nothing, no };
const struct gpu_user *gpu_user = &nobody;

void gpu_serve(const struct gpu_user *u) { gpu_user = u; }

_Atomic int gpu_sends, gpu_receives, gpu_path, gpu_live, gpu_linked;
struct lock gpu_lock;
const struct gpu_ops *gpu;
_Atomic(gpu_ctx) gpu_context;
bool gpu_paused, gpu_closing;
_Atomic unsigned gpu_reading;
_Atomic bool gpu_ended;

#define SOON_NS 1000000

/* Once it was waited for in vain, nobody waits until it is free again. */
bool gpu_lock_soon(void)
{
	static _Atomic bool in_vain;
	struct timespec nap = { 0, 20000 };
	uint64_t until = now_ns() + SOON_NS;

	while (!lock_try(&gpu_lock)) {
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

bool gpu_allowed(void)
{
	return shim_tunables()->device && !gpu_unsafe_here();
}
