/* event.c - see event.h. No locks. */
#include "base/event.h"

#include <linux/futex.h>
#include <stdint.h>
#include <time.h>

#include "base/shim.h"
#include "base/sys.h"

#define DEAF_NS 1000000

void word_wait(const _Atomic uint32_t *w, uint32_t seen, uint64_t until_ns)
{
	uint64_t now = now_ns(), left = until_ns > now ? until_ns - now : 0;
	struct timespec t = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
	long r;

	if (!left)
		return;
	r = sys(SYS_futex, w, FUTEX_WAIT, seen, &t, NULL, 0);
	if (!r || r == -EAGAIN || r == -EINTR || r == -ETIMEDOUT)
		return;
	/* A nap: the system call is not to be had, so nobody can ring. */
	t = (struct timespec){ 0, left < DEAF_NS ? (long)left : DEAF_NS };
	sys(SYS_nanosleep, &t, NULL);
}

void word_ring(const _Atomic uint32_t *w)
{
	sys(SYS_futex, w, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void event_wait(struct event *e, uint32_t seen, uint64_t until_ns)
{
	word_wait(&e->v, seen, until_ns);
}

/* To even: nobody waits, and those who did see another number. */
void event_ring_slow(struct event *e)
{
	uint32_t v = atomic_load(&e->v);

	while (v & 1)
		if (atomic_compare_exchange_weak(&e->v, &v, v + 1)) {
			word_ring(&e->v);
			return;
		}
}
