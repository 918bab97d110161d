/*
 * link_rest.c - what a link keeps of the rings of connections that have ended, for the next ones
 * (segment_slot_left()). It keeps that for `ring_idle`. Background thread, no locks.
 *
 * Only slots of our half are concerned, since only we could give them to a stream.
 */
#include "base/shim.h"
#include "link/link.h"

static bool any;	/* some link may have such slots */

void link_slot_left(struct link *l, uint32_t slot)
{
	segment_slot_left(&l->segment, slot);
	l->left_us = now_us();
	any = true;
}

void link_slot_free(struct link *l, uint32_t slot)
{
	if (slot >= l->segment.slots)
		return;
	/* the peer may have made its pages before it said no */
	link_slot_left(l, slot);
	l->slot_used[slot] = 0;
}

static void cool(struct link *l)
{
	uint32_t half = l->segment.slots / 2, from = l->segment.me ? half : 0;

	l->left_us = 0;
	for (uint32_t slot = from; slot < from + half && segment_slot_warm(&l->segment, slot);
	     slot++)
		if (!l->slot_used[slot])
			segment_slot_cools(&l->segment, slot);
}

bool links_rest(uint64_t now, uint64_t idle)
{
	uint32_t n = atomic_load(&links_top);

	if (!any)
		return false;
	any = false;
	for (uint32_t i = 0; i < n; i++) {
		struct link *l = &links[i];

		if (atomic_load(&l->state) != LINK_UP || !l->left_us)
			continue;
		if (now - l->left_us >= idle)
			cool(l);
		else
			any = true;
	}
	return any;
}
