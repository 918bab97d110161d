/*
 * bg.c - what the background thread does (base/loop.h): streams, links, those who search and
 * those who connect, what a child of ours asks for, a new policy.
 *
 * The rule: whoever changes what stream_work() looks at calls bg_look() after it. They are: a
 * step of the cut machine (carry_out()), the bind and the end of a link (discovery_ctl.c,
 * link.c), the last plain call that leaves, the first wait, blocking again, close, shutdown, a
 * full ring, streams that become TCP-only, a new policy, and a holder less (holders.c).
 *
 * Locks: none of its own; all but streams_without_thread() is the thread's.
 */
#include "base/closer.h"
#include "base/copy.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_end.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "discovery/discovery_net.h"
#include "discovery/search.h"
#include "main/init.h"
#include "main/stream_work.h"
#include "main/watch.h"
#include "poll/ready.h"
#include "process/fork.h"

/* ---- policy ---- */

static void policy_changed(void)
{
	uint32_t n = streams_top();

	if (!shim_reload_policy())
		return;
	if (watch_deps() && shim_reload_policy())
		watch_deps();
	links_look_at_users();
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE && atomic_load(&s->upgrade))
			search_policy(s);
	}
}

static uint64_t look_at_policy(uint64_t now)
{
	bool changed;
	uint64_t due = watch_look(now, &changed);

	if (changed)
		policy_changed();
	return due;
}

/* ---- a round ---- */

static uint64_t flush_links(void)
{
	uint32_t n = atomic_load(&links_top);
	uint64_t due = UINT64_MAX;

	for (uint32_t i = 0; i < n; i++) {
		bool lived = atomic_load(&links[i].state) == LINK_UP ||
			     (atomic_load(&links[i].state) == LINK_HELLO && !links[i].path->far);

		if (links[i].wire)
			due = earlier(due, links[i].wire->work(&links[i]));
		due = earlier(due, link_distrust_work(&links[i]));
		if (atomic_load(&links[i].state) == LINK_UP && atomic_load(&links[i].out_waiting)) {
			link_flush(&links[i]);
			due = earlier(due, now_us() + 1000);
		} else if (atomic_load(&links[i].state) == LINK_HELLO) {
			uint64_t end = links[i].since_us + (links[i].path->far ? 6000000 : 2000000);

			due = earlier(due, end);
			if (now_us() >= end) {	/* a discovery socket where nobody answers */
				link_kill(&links[i], REASON_NO_PEER_SHIM);
				lived = true;
			}
		} else if (atomic_load(&links[i].state) == LINK_UP &&
			   !atomic_load(&links[i].proven)) {
			/* Whoever connected has shown no end of a connection of ours. */
			if (now_us() - links[i].since_us > 3000000)
				link_kill(&links[i], REASON_IDENTITY);
			else
				due = earlier(due, links[i].since_us + 3100000);
		}
		if (lived && atomic_load(&links[i].state) == LINK_DEAD)
			search_link_ready(i);	/* who had asked for a slot there must ask
						 * elsewhere */
	}
	/* A queue pair that is never closed keeps its device from being removed. */
	return link_reap() ? earlier(due, now_us() + 1000) : due;
}

static uint64_t turn(void)
{
	uint64_t due = flush_links();

	due = earlier(due, search_pending_expire(now_us()));
	due = earlier(due, net_expire(now_us()));
	due = earlier(due, closer_work(now_us()));
	due = earlier(due, rings_rest(now_us()));
	fork_check_requests();
	copy_start();
	if (fork_requests_open())
		due = earlier(due, now_us() + 500);
	return earlier(due, fork_due());
}

static uint64_t work(struct work *w, uint64_t now) { return stream_work(stream_of_work(w), now); }
static bool restless(const struct work *w)
{
	return stream_restless(stream_of_work((struct work *)w));
}
static bool came(struct work *w) { return stream_credit_came(stream_of_work(w)); }

static void armed(void)
{
	uint32_t n = atomic_load(&links_top);

	for (uint32_t i = 0; i < n; i++)
		atomic_store(&links[i].bg_waits, false);
}

static bool nothing(void)
{
	uint32_t n = atomic_load(&links_top);

	if (fork_requests_open() || fork_watches())
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (atomic_load(&links[i].state) != LINK_FREE)
			return false;
	n = streams_top();
	for (uint32_t i = 0; i < n; i++)	/* those that the policy keeps on TCP wait for
						 * another policy */
		if (atomic_load(&stream_at(i)->upgrade) &&
		    atomic_load(&stream_at(i)->mode) != MODE_FREE)
			return false;
	return true;
}

/* ---- its start, its end ---- */

static void thread_begins(void)
{
	watch_begin(now_us());
	look_at_policy(now_us());
	shim_log_start();
}

static void thread_leaves(void)
{
	watch_end();
	net_leave_port();
}

static void forked(void)
{
	for (uint32_t i = 0; i < streams_top(); i++)	/* free ones too: they are used again */
		loop_forget(stream_work_of(stream_at(i)));
	watch_end();
}

/* ---- what its descriptors say ---- */

static void policy_ready(uint32_t n)
{
	(void)n;
	if (watch_event())
		policy_changed();
}

static void home_ready(uint32_t n)
{
	if (stream_at(n))
		bg_look(stream_at(n));
}

static void port_ready(uint32_t n)
{
	(void)n;
	net_port_ready();
}

const struct loop_duties bg_duties = {
	.begin = thread_begins, .work = work, .restless = restless, .turn = turn,
		.idle = look_at_policy, .armed = armed, .came = came,
	.nothing = nothing, .leave = thread_leaves, .failed = streams_without_thread,
		.forked = forked,
	.event = {
		[LOOP_POLICY] = policy_ready,
		[LOOP_LINK] = search_link_ready,
		[LOOP_NAME] = search_name_ready,
		[LOOP_FALLBACK] = home_ready,
		[LOOP_PENDING] = search_pending_ready,
		[LOOP_PATH] = path_event,
		[LOOP_CHANNEL] = wire_ready,
		[LOOP_PORT] = port_ready,
		[LOOP_CALL] = net_call_ready,
	},
};

/* ---- what comes by a link ---- */

static void look(struct stream *s) { bg_look(s); }

const struct link_user bg_link_user = {
	.attention = ready_attention, .look = look, .lost = stream_link_ended,
		.path_dead = stream_path_dead,
	.settled = net_link_settled,
};
