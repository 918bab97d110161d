/*
 * rc_wait.c - who sleeps hears of completions: events asked for, and taken. Not called for a
 * message of a flow. Called by rc.c, which polls, and does not call it.
 *
 * Any thread. Locks: `post`, for one look.
 */
#include "rdma/verbs/rc_int.h"

static void notify(struct rc *rc, bool solicited)
{
	int e = errno;		/* as in post() */

	atomic_fetch_add_explicit(&rc->arms, 1, memory_order_relaxed);
	if (verbs.req_notify_cq(rc->cq, solicited && !rc->iwarp))
		rc_died(rc);
	errno = e;
}

/* Who sleeps waits for the peer's records, which are solicited: of our own completions, and of
 * what only acknowledges, wants to hear only who could not post something. With iWARP all wake:
 * siw (Linux 6.1) never brings an event for a solicited one alone. */
void rc_arm_own(struct rc *rc)
{
	bool all = __atomic_load_n(&rc->npending, __ATOMIC_RELAXED) > 0 ||
		   __atomic_load_n(&rc->nreads, __ATOMIC_RELAXED) > 0;
	uint64_t now = atomic_load(&rc->events) + 1;

	if (is_dead(rc) || atomic_load(all ? &rc->armed_all : &rc->armed) == now)
		return;
	if (all)
		atomic_store(&rc->arming_all, now);
	/* First the request, then the word: who finds it polls and sleeps, and who wrote it need
	 * not poll here. Two may request at once, which is one; a word that is of before an
	 * event says nothing. */
	notify(rc, !all);
	/* The standard says that a request for less does not undo one for more; each is made
	 * again all the same. */
	if (!all && atomic_load(&rc->arming_all) == now)
		notify(rc, false);
	if (all)
		atomic_store(&rc->armed_all, now);
	atomic_store(&rc->armed, now);
}

void rc_arm(struct rc *rc)
{
	rc_arm_own(rc);
	if (!is_dead(rc) && !atomic_load(&rc->watched) && !atomic_exchange(&rc->watched, 1))
		rc->conf.watch(rc->conf.arg);
}

void rc_unwatched(struct rc *rc) { atomic_store(&rc->watched, 0); }

bool rc_waits(struct rc *rc)
{
	bool waits;

	take(&rc->post);
	waits = rc->npending > 0;
	give(&rc->post);
	return waits;
}

void rc_event(struct rc *rc)
{
	struct ibv_cq *cq;
	void *ctx;
	int e = errno, r;	/* it may be a call of the application's, that has found its
				 * bytes */

	/* First the event, then the count: of two who come for it one gets it, and a new one may
	 * be on its way by then. */
	r = rc->channel ? verbs.ibv_get_cq_event(rc->channel, &cq, &ctx) : -1;
	errno = e;
	if (r)
		return;
	verbs.ibv_ack_cq_events(cq, 1);
	atomic_fetch_add(&rc->events, 1);
}
