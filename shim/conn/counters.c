/*
 * counters.c - the process's counter file, which is made with the first stream, and anew in a
 * forked child.
 *
 * Lock: `first` (a leaf).
 */
#include "base/fdtab.h"
#include "base/lock.h"
#include "base/shim.h"
#include "conn/stream_life.h"
#include "libc/libc.h"
#include "link/link.h"

_Static_assert(CALL_IDS <= STAT_CALLS, "more calls than there are counters: raise STAT_CALLS");

static struct lock first;
static _Atomic bool stat_made;

#define STREAM_MOVE(name) [MOVE_##name] = ID_##name,
static const uint8_t move_calls[] = { STREAM_MOVES(STREAM_MOVE) };
#undef STREAM_MOVE

void shim_stat_first(int fd)
{
	if (atomic_load_explicit(&stat_made, memory_order_acquire))
		return;
	lock_take(&first);
	if (!atomic_load(&stat_made)) {
		if (fd >= 0 && &__libc_single_threaded && __libc_single_threaded)
			fdtab_make_room(fd);
		stat_open(shim_program, shim_policy_file);
		if (shim_tunables()->earn_lifetime && shim_tunables()->earn_share)
			earn_share_begin();
		stat_calls_name(CALL_IDS, libc_call_name);
		stat_moves_name(STREAM_MOVE_KINDS, move_calls);
		atomic_store(&stat_self()->mode, atomic_load(&shim_mode));
		memcpy(stat_self()->go, shim_go, sizeof shim_go);
		atomic_store(&stat_made, true);
	}
	lock_give(&first);
}

void shim_stat_reopen(bool now)
{
	atomic_store(&first.v, 0);
	earn_after_fork();
	atomic_store(&stat_made, false);
	if (now)
		shim_stat_first(-1);
}
