/*
 * search.h - searches for the other end (search.c, search_result.c, discovery_ctl.c,
 * discovery_callers.c). Background thread only. ../conn/search.h has what a search has found.
 */
#ifndef RDMASHIM_DISCOVERY_SEARCH_H
#define RDMASHIM_DISCOVERY_SEARCH_H

#include "conn/stream.h"

/* ---- search.c ---- */
/* Is it the end that is asked for a slot? The one that accepted; of two that connected to each
 * other one of them. */
static inline bool search_awaits(const struct stream *s)
{
	return s->role == ROLE_SERVER || s->search.waits;
}

static inline void search_anew(struct stream *s)	/* no search is under way, nor was one */
{
	s->search.state = SEARCH_NONE;
	s->search.due_us = s->search.end_us = 0;
}

void search_start(struct stream *s);	/* the stream has earned: look for the other end */
uint64_t search_work(struct stream *s, uint64_t now);	/* timer work; when to come again,
							 * UINT64_MAX = never */
void search_policy(struct stream *s);	/* the policy changed: decide again */
void search_after_fork(void);

/* ---- search_result.c ---- */
void search_stop(struct stream *s);
/* The stream stays on TCP because of the other end's version; and the same, but only if nobody else
 * comes, since the process that says so has proven nothing. */
void search_version(struct stream *s, uint32_t theirs);
void search_version_heard(struct stream *s, uint32_t theirs);
void net_link_settled(struct link *l, enum reason why);	/* a link to another host is up, or will
							 * not be */

/* ---- discovery_ctl.c ---- */
void search_link_ready(uint32_t i);		/* records on link i */
void search_unbind(struct stream *s);	/* on TCP for good: gives the slot back. Locks not held */

/* ---- discovery_callers.c ---- */
void search_name_ready(uint32_t index);	/* somebody connects to the name of stream `index` */
void search_pending_ready(uint32_t i);	/* a caller has spoken */
uint64_t search_pending_expire(uint64_t now);	/* silent callers; when to come again */
void search_callers_after_fork(void);

#endif
