/*
 * ctl_later.c - records of streams for which they cannot be acted on yet, as a call of the program
 * copies with a lock of theirs, and perhaps waits for a page that never comes. The other streams of
 * the link go on. What comes for such a stream is kept, in its order, until the copy is done.
 *
 * A peer that keeps to the protocol has a few of them under way for a stream, each of which waits
 * for an answer; who sends more than there is room for has his link ended.
 *
 * Background thread only. No locks.
 */
#include <string.h>

#include "base/loop.h"
#include "conn/stream_life.h"
#include "discovery/discovery_ctl.h"
#include "policy/log.h"

#define MOST 64			/* of a link: several streams may wait */
#define AGAIN_US 2000

/* Not a page of it is touched before somebody waits. */
static struct ctl_msg kept[LINK_MAX][MOST];
static uint64_t kept_of[LINK_MAX];	/* link_id(), as the place may be another link's by now */
static uint8_t nkept[LINK_MAX];
static uint32_t any;			/* links that have some */

static bool takes_a_lock(unsigned type)
{
	return type == CTL_CUT || type == CTL_MORE || type == CTL_RING || type == CTL_DEVICE;
}

static bool waits(const struct link *l, uint32_t slot)
{
	for (int i = 0; i < nkept[l->index]; i++)
		if (kept[l->index][i].slot == slot)
			return true;
	return false;
}

static void keep(struct link *l, const struct ctl_msg *m)
{
	uint8_t *n = &nkept[l->index];

	if (*n == MOST) {
		link_kill(l, REASON_PROTOCOL);
		return;
	}
	if (!*n)
		any++;
	kept_of[l->index] = link_id(l);
	kept[l->index][(*n)++] = *m;
}

static void forget(uint32_t at)
{
	if (nkept[at])
		any--;
	nkept[at] = 0;
}

/* False: the stream's lock is not to be had. */
static bool act(struct link *l, const struct ctl_msg *m, int *fd)
{
	struct stream *s = takes_a_lock(m->type) ? atomic_load(&l->streams[m->slot]) : NULL;

	if (s && !stream_shut(s))
		return false;
	search_act_on(l, m, fd);
	if (s)
		stream_open(s);
	return true;
}

void search_record(struct link *l, const struct ctl_msg *m, int *fd)
{
	if (nkept[l->index] && kept_of[l->index] != link_id(l))
		forget(l->index);
	/* UNBIND takes none, and comes last */
	if ((takes_a_lock(m->type) || m->type == CTL_UNBIND) && waits(l, m->slot))
		keep(l, m);
	else if (!act(l, m, fd))
		keep(l, m);
}

/* In their order, but for those of streams that still wait. */
static void again(struct link *l)
{
	struct ctl_msg *k = kept[l->index];
	int n = nkept[l->index], left = 0, fd = -1;

	for (int i = 0; i < n && atomic_load(&l->state) == LINK_UP; i++) {
		bool behind = false;

		for (int j = 0; j < left && !behind; j++)
			behind = k[j].slot == k[i].slot;
		if (behind || !act(l, &k[i], &fd))
			k[left++] = k[i];
	}
	if (!left || atomic_load(&l->state) != LINK_UP)
		forget(l->index);
	else
		nkept[l->index] = (uint8_t)left;
}

uint64_t search_kept_work(uint64_t now)
{
	for (uint32_t i = 0; any && i < LINK_MAX; i++) {
		if (nkept[i] && kept_of[i] != link_id(&links[i]))
			forget(i);
		if (nkept[i])
			again(&links[i]);
	}
	return any ? now + AGAIN_US : UINT64_MAX;
}

void search_kept_after_fork(void)
{
	memset(nkept, 0, sizeof nkept);
	any = 0;
}
