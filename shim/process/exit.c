/*
 * exit.c - the end of the process: what is on fast paths, and others need after it, falls back.
 * Locks: a stream's, if they are free.
 */
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_cut.h"
#include "conn/stream_life.h"
#include "conn/stream_slab.h"
#include "conn/stream_wake.h"
#include "link/wire.h"
#include "process/fork.h"

/* A peer that is stopped delays the exit so long, then loses what it had not read. */
#define EXIT_US   5000000
#define SILENT_NS 500000

/* True: it is not on TCP yet, and has been asked, or it cannot be seen. *ret_silent: what ends that
 * may ring nobody, as who gives a lock, or a child that ends. */
static bool on_the_way(struct stream *s, bool all, bool *ret_silent)
{
	struct link *l;
	bool any, needed;

	if (!atomic_load(&s->link) || !(all || paths_ever() || fork_shared(s)))
		return false;
	/* A handler of a fault in the middle of a copy may have this thread's locks under it, and
	 * end the process. */
	if (!stream_try_lock(s)) {
		*ret_silent = true;
		return true;
	}
	l = atomic_load(&s->link);
	needed = all || (l && l->wire);
	any = l && atomic_load(&l->state) == LINK_UP && !atomic_load(&s->peer_gone) &&
	      !stream_both_on_tcp(s) && (needed || fork_shared(s));
	stream_unlock(s);
	if (any) {
		*ret_silent |= !needed;
		atomic_store(&s->earn.stopped, REASON_EXEC);	/* not cut again */
		stream_ask_fallback(s);
	}
	return any;
}

/* What this process has on fast paths, and others need after it, falls back: `all`, or what a wire
 * carries and what other processes hold. */
static void send_to_tcp(bool all)
{
	uint64_t end;
	bool mine = (all || paths_ever() || fork_ever()) && !loop_is_me() && !foreign_image();
	bool any = mine;

	for (end = any ? now_us() + EXIT_US : 0; any && now_us() < end;) {
		uint32_t n = streams_top(), seen = event_look(&stream_steps);
		bool silent = false;

		any = false;
		for (uint32_t i = 0; i < n; i++) {
			if (on_the_way(stream_at(i), all, &silent))
				any = true;
		}
		/* A nap for what rings nobody. */
		if (any && !loop_step_here(end))
			event_wait(&stream_steps, seen, silent ? now_ns() + SILENT_NS : end * 1000);
	}
	if (mine)
		wires_log();
}

/* The kernel delivers what it holds after the process has gone; a wire goes with it. And a
 * child that goes on with a socket, as one does that has become a daemon, finds it on TCP. */
void exit_fallback(void) { send_to_tcp(false); }
void exit_fallback_all(void) { send_to_tcp(true); }

static bool any_closed(void)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE && atomic_load(&s->dead) &&
		    atomic_load(&s->upgrade))
			return true;
	}
	return false;
}

/* A nap, for its last step rings nobody. */
void streams_closed(void)
{
	uint64_t end = now_us() + EXIT_US;

	send_to_tcp(true);
	while (any_closed() && now_us() < end && (loop_step_here(end) || loop_running()))
		event_wait(&stream_steps, event_look(&stream_steps), now_ns() + SILENT_NS);
}
