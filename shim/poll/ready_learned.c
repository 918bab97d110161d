/*
 * ready_learned.c - epoll and the error queues of streams that learn their ISNs (netns/learn.h). An
 * ERR from the kernel is passed on only if it is the connection's own.
 *
 * Locks: stream.reg.lock; epoll.lock. None while a stream is asked.
 */
#include "conn/stream_learn.h"
#include "poll/ready_wait.h"

#define CANDIDATES 4	/* registrations with the same data */

/* Who may be meant by an event with that data. */
struct meant {
	struct stream *s[CANDIDATES];
	uint32_t gen[CANDIDATES];
	int n;
	bool others;	/* and one that never learned */
};

static void look_for(struct epoll *e, const struct batch *b, uint64_t data, struct meant *m)
{
	bool many;

	*m = (struct meant){ .n = 0 };
	lock_take(&e->lock);
	for (struct epitem *it = atomic_load(&e->gen) == b->gen ? item_by_data(e, data, &many) :
								  NULL;
	     it; it = it->data_next) {
		if (it->data != data)
			continue;
		if (!it->s || !stream_learned(it->s) || m->n == CANDIDATES) {
			m->others = true;
			continue;
		}
		m->s[m->n] = it->s;
		m->gen[m->n++] = atomic_load(&it->s->gen);
	}
	lock_give(&e->lock);
}

/* The kernel takes it for fired, and nobody was told. */
static void enable_again(struct epoll *e, const struct batch *b, uint64_t data)
{
	struct epitem *it;
	bool many;

	lock_take(&e->lock);
	it = atomic_load(&e->gen) == b->gen ? item_by_data(e, data, &many) : NULL;
	for (; it; it = it->data_next)
		if (it->data == data && it->kern_events & EPOLLONESHOT && !it->disabled &&
		    !it->orphan && !it->parked)
			item_tell_kernel(it, it->kern_events);
	lock_give(&e->lock);
}

static bool is_true(struct epoll *e, const struct batch *b, uint64_t data)
{
	bool is = false;
	struct meant m;

	look_for(e, b, data, &m);
	for (int i = 0; i < m.n; i++)		/* all: each is to be emptied */
		is |= stream_true_error(m.s[i], m.gen[i]);
	return is || m.others || !m.n;
}

int batch_true_errors(struct epoll *e, struct batch *b, int k)
{
	struct epoll_event *ev = b->ev + b->n;
	int left = 0;

	for (int i = 0; i < k; i++) {
		struct epoll_event in = ev[i];

		if (in.events & EPOLLERR && in.data.u64 != epoll_tag(e) &&
		    in.data.u64 != epoll_channel_tag(e) && !is_true(e, b, in.data.u64)) {
			in.events &= ~(uint32_t)EPOLLERR;
			if (!(in.events & ~OF_PARKED)) {
				enable_again(e, b, in.data.u64);
				continue;
			}
		}
		ev[left++] = in;
	}
	return left;
}

bool ready_blind(struct stream *s)
{
	bool blind = false;

	lock_take(&s->reg.lock);
	for (struct epitem *it = s->reg.items; it && !blind; it = it->s_next)
		blind = it->e->foreign || it->orphan || atomic_load(&it->e->watched) ||
			atomic_load(&it->e->shared) || atomic_load(&it->e->inherited);
	lock_give(&s->reg.lock);
	return blind;
}
