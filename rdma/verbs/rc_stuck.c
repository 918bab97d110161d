/*
 * rc_stuck.c - a queue pair that is stuck, see rc.h. From time to time, never for a message. Calls
 * rc.c, and is not called from there.
 *
 * Locks: `post`.
 */
#include "rdma/verbs/rc_int.h"

/* One of those under way will be completed. */
static bool awaits_completion(struct rc *rc)
{
	if (room(rc) < 1)	/* one in SIGNAL_EACH is */
		return true;
	if (under_way(rc) >= RC_RECVS)
		return false;
	rc->unsignalled = SIGNAL_EACH;
	rc_post_acked(rc);
	return true;
}

enum rc_looks rc_look(struct rc *rc)
{
	enum rc_looks r = RC_BUSY;

	take(&rc->post);
	rc->timed = 0;		/* what this look would find is not how long it took */
	give(&rc->post);
	rc_poll(rc);
	if (!try(&rc->poll))	/* a thread is at it, and perhaps off its CPU: nothing is known */
		return RC_BUSY;
	give(&rc->poll);
	take(&rc->post);
	if (rc->posted == rc->done || is_dead(rc)) {
		atomic_store(&rc->busy, false);
		r = RC_IDLE;
	}
	if (r == RC_IDLE || rc->done != rc->done_seen)
		rc->looks = 0;
	else if (rc->looks || awaits_completion(rc))
		rc->looks++;
	rc->done_seen = rc->done;
	if (rc->looks >= RC_LOOKS)
		r = RC_STUCK;
	give(&rc->post);
	return r;
}

void rc_try(struct rc *rc)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { 0 };

	rc_poll(rc);
	if (!rc->id || !rc->id->qp || is_dead(rc))
		return;
	if (!verbs.ibv_query_qp(rc->id->qp, &attr, IBV_QP_STATE, &init) &&
	    (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE)) {
		rc_died(rc);
		return;
	}
	take(&rc->post);
	if (rc->posted == rc->done)
		awaits_completion(rc);
	give(&rc->post);
}
