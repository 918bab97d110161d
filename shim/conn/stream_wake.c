/*
 * stream_wake.c - tells those who wait here, and the peer, that something has changed on a stream;
 * and whether the peer has told us something.
 *
 * Locks: it takes none. For the peer's part the caller holds one of the stream's (stream_wake.h).
 */
#include "base/event.h"
#include "conn/stream_wake.h"
#include "link/link.h"
#include "link/path.h"

bool stream_notify_peer(struct stream *s)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);
	uint64_t m;

	if (!l)
		return false;
	if (l->wire) {
		l->wire->publish(l, s->slot);
		return true;
	}
	m = segment_notify(&l->segment, s->slot);
	if (m)
		link_ring_peer(l, m);
	return false;
}

void stream_consumed(struct stream *s)
{
	struct link *l = atomic_load_explicit(&s->link, memory_order_relaxed);

	if (l && l->wire)
		l->wire->credit(l, s->slot);
	else if (segment_room_wanted(&s->rcv.ring))
		stream_notify_peer(s);
}

bool stream_look_at_wire(struct stream *s)
{
	struct link *l = atomic_load(&s->link);

	return l && l->wire && l->wire->poll(l);
}

void stream_bell_add(struct stream *s, struct bell *b, bool epoll)
{
	uint64_t bit = 1ull << b->idx;
	struct link *l;

	if (!(atomic_load_explicit(&s->bells, memory_order_relaxed) & bit))
		atomic_fetch_or(&s->bells, bit);
	link_read_enter();
	l = atomic_load(&s->link);
	if (l && atomic_load(&l->state) == LINK_UP) {
		struct segment_slot_side *mine = &l->segment.slot[s->slot].side[l->segment.me];

		if (!(atomic_load_explicit(&mine->bells, memory_order_relaxed) & bit))
			atomic_fetch_or(&mine->bells, bit);
		if (epoll && !atomic_load_explicit(&mine->epolls, memory_order_relaxed))
			atomic_store(&mine->epolls, 1);
	}
	link_read_leave();
}

void stream_bell_del(struct stream *s, struct bell *b)
{
	uint64_t bit = 1ull << b->idx;
	struct link *l;

	atomic_fetch_and(&s->bells, ~bit);
	link_read_enter();
	l = atomic_load(&s->link);
	if (l && atomic_load(&l->state) == LINK_UP)
		atomic_fetch_and(&l->segment.slot[s->slot].side[l->segment.me].bells, ~bit);
	link_read_leave();
}

struct event stream_steps;

void stream_wake(struct stream *s)
{
	event_ring(&stream_steps);	/* with a full fence */
	if (s->reg.n)
		stream_pollers->attention(s);
	bell_ring(atomic_load(&s->bells));
}
