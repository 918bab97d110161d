/*
 * stream_turn.c - one call at a time in a half of a stream, without its lock.
 *
 * The program's memory may be a file's whose bytes never come (another user's in FUSE, NFS,
 * userfaultfd), so whoever touches it may wait for ever. No lock is held over that, for fork(), the
 * background thread and by that all connections wait for a stream's lock. But what a call has
 * begun, the others of that half must not get into. So a call that copies takes the half's turn
 * under the lock, gives the lock back for the copy, takes it again, and looks whether the place
 * that it copied to, or from, is still what it was. If the machine has stepped meanwhile, the copy
 * counts for nothing, and the call begins again.
 *
 * Only calls that move bytes take turns, and only they wait for one, as they do in the kernel for
 * the socket's lock. A stream of which a turn is taken keeps its link, slot and struct: who wants
 * to take them away leaves a word here, and the call brings it back when it is over.
 *
 * What does not fit on the stack is copied by way of a few pages of ours where it goes by TCP: a
 * call of the kernel's that is given the program's memory would keep the lock of the socket.
 *
 * Lock: that of the half, where it says so. Model: tests/sim/turn.pml.
 */
#include "base/sys.h"
#include "conn/stream_int.h"
#include "conn/stream_io.h"

#include <sys/mman.h>

void turn_wait(struct lock *l, _Atomic uint8_t *turn)
{
	uint32_t seen;

	atomic_store_explicit(turn, TURN_WANTED, memory_order_relaxed);
	seen = event_look(&stream_steps);
	lock_give(l);
	event_wait(&stream_steps, seen, now_ns() + THEIRS_NS);
}

void turn_lend(struct stream *s, _Atomic uint8_t *turn)
{
	if (atomic_exchange(turn, TURN_FREE) != TURN_WANTED)
		return;
	event_ring(&stream_steps);
	bg_look(s);
}

/* The lock is given back. */
void turn_over(struct stream *s, struct lock *l, _Atomic uint8_t *turn)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	bool wanted = atomic_load_explicit(turn, memory_order_relaxed) == TURN_WANTED;

	/* a struct that is closed is given back by the last who leaves it */
	wanted |= atomic_load_explicit(&s->dead, memory_order_relaxed);
	atomic_store_explicit(turn, TURN_FREE, memory_order_relaxed);
	if (__builtin_expect(wanted, 0))
		event_ring(&stream_steps);
	lock_give(l);
	if (__builtin_expect(wanted, 0))
		stream_was_last(s, gen);
}

bool stream_in_turn(struct stream *s)
{
	_Atomic uint8_t *turn[] = { &s->snd.turn, &s->rcv.turn };
	bool taken = false;

	for (int i = 0; i < 2; i++)
		if (atomic_load_explicit(turn[i], memory_order_relaxed)) {
			atomic_store_explicit(turn[i], TURN_WANTED, memory_order_relaxed);
			taken = true;
		}
	return taken;
}

/* ---- pages of ours ---- */

#define BOUNCES 4	/* calls that have one at a time; more have what is on their stack */

static char pool[BOUNCES][BOUNCE_SIZE];
static _Atomic uint32_t pool_taken;

static bool takes_pages(struct bounce *b, size_t n)
{
	long p = sys(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p < 0 && p > -4096)
		return false;
	*b = (struct bounce){ (char *)p, n, BOUNCES };
	return true;
}

void bounce_take(struct bounce *b, size_t want, bool all, char *own, size_t own_size)
{
	*b = (struct bounce){ own, own_size, -1 };
	if (all && want > BOUNCE_SIZE && takes_pages(b, want))
		return;
	for (int i = 0; want > own_size && i < BOUNCES; i++) {
		if (atomic_fetch_or(&pool_taken, 1u << i) & 1u << i)
			continue;
		*b = (struct bounce){ pool[i], BOUNCE_SIZE, i };
		return;
	}
}

void bounce_give(struct bounce *b)
{
	if (b->place == BOUNCES)
		sys(SYS_munmap, b->p, b->size);
	else if (b->place >= 0)
		atomic_fetch_and(&pool_taken, ~(1u << b->place));
	b->place = -1;
}

void bounce_after_fork(void) { atomic_store(&pool_taken, 0); }

/* ---- the program's memory ---- */

size_t cursor_get(struct cursor *c, struct usermem *m, char *to, size_t n)
{
	size_t done = 0;

	for (cursor_settle(c); done < n;) {
		size_t part = c->here.iov_len < n - done ? c->here.iov_len : n - done;
		size_t good = usermem_ok(m, c->here.iov_base, part, false);

		memcpy(to + done, c->here.iov_base, good);
		done += good;
		cursor_step(c, good);
		if (good < part)
			break;
	}
	return done;
}

size_t cursor_put(struct cursor *c, struct usermem *m, const char *from, size_t n)
{
	size_t done = 0;

	for (cursor_settle(c); done < n;) {
		size_t part = c->here.iov_len < n - done ? c->here.iov_len : n - done;
		size_t good = usermem_ok(m, c->here.iov_base, part, true);

		memcpy(c->here.iov_base, from + done, good);
		done += good;
		cursor_step(c, good);
		if (good < part)
			break;
	}
	return done;
}

size_t cursor_good(const struct cursor *c, struct usermem *m, size_t n)
{
	struct cursor at = *c;
	size_t done = 0;

	for (cursor_settle(&at); done < n;) {
		size_t part = at.here.iov_len < n - done ? at.here.iov_len : n - done;
		size_t good = usermem_known(m, at.here.iov_base, part)
				      ? part
				      : usermem_look_kept(m, at.here.iov_base, part);

		done += good;
		cursor_step(&at, good);
		if (good < part)
			break;
	}
	return done;
}
