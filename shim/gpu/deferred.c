/*
 * deferred.c - see deferred.h. Holds no lock.
 */
#include "gpu/deferred.h"

#include "gpu/gpu.h"

static bool closed(void) { return false; }
static void nothing(void) { }

static bool not_pinned(uintptr_t lo, size_t n)
{
	(void)lo, (void)n;
	return false;
}

static bool never_put_off(const struct gpu_range *r, uintptr_t lo, size_t n)
{
	(void)r, (void)lo, (void)n;
	return false;
}

/* The others are asked only for what was deferred. */
static const struct deferred_ops none = {
	.open = closed, .end = nothing, .after_fork = nothing, .pinned_before = not_pinned,
	.may = never_put_off,
};
const struct deferred_ops *deferred = &none;

void deferred_serve(const struct deferred_ops *ops) { deferred = ops; }

__attribute__((visibility("hidden"))) _Atomic int gpu_veils;
_Atomic uint64_t gpu_pins_gen;
static _Atomic bool never;	/* not to be opened */

gpu_result gpu_veil_fill(uintptr_t lo, size_t n)
{
	return atomic_load(&gpu_veils) && n ? deferred->fill(lo, n) : 0;
}

void gpu_veil_fill_all(void) { gpu_veil_fill(0, UINTPTR_MAX / 2); }

void gpu_veil_forget(uintptr_t lo, size_t n)
{
	if (atomic_load(&gpu_veils) && n)
		deferred->forget(lo, n);
}

bool gpu_veil_at(uintptr_t p, uintptr_t hi, uintptr_t *end)
{
	*end = hi;
	return atomic_load(&gpu_veils) && deferred->at(p, hi, end);
}

bool gpu_deferred_here(void) { return deferred != &none; }

bool gpu_veil_open(void)
{
	if (!deferred->open())
		return false;
	if (atomic_load(&never))
		deferred->end();
	return !atomic_load(&never);
}

void gpu_veil_end(void) { deferred->end(); }

void gpu_veil_waiter(void)
{
	if (!atomic_exchange(&never, true))
		gpu_veil_end();
}
