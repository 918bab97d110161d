/*
 * link_trust.c - which links may go on, and how many one user may have (link.h). A peer was let in
 * because its user may pass us descriptors. The policy may take that back, or we may become another
 * user.
 *
 * Background thread only. No locks.
 */
#include <string.h>

#include "base/fdtab.h"
#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"
#include "link/path.h"
#include "link/rights.h"
#include "policy/log.h"

static bool alive(struct link *l)
{
	int state = atomic_load(&l->state);

	return state == LINK_UP || state == LINK_HELLO;
}

/* By both of its keys. */
static bool across_permitted(void)
{
	const struct policy *p = atomic_load(&shim_policy);

	return *policy_cross_ns_dir(p) && *policy_key_file(p);
}

bool link_trusts(struct link *l)
{
	if (atomic_load(&l->distrusted))
		return false;
	if (l->path->far ||
	    (rights_taken_from(l->peer_uid) && (!l->across || across_permitted())))
		return true;
	log_line(2, "link %u (pid %d): user %u may not pass descriptors to us any more", l->index,
		 l->peer_pid, l->peer_uid);
	l->distrusted_us = now_us();
	atomic_store(&l->distrusted, true);
	l->segment.kept = true;
	for (uint32_t i = 0; l->streams && i < l->segment.slots; i++)
		if (atomic_load(&l->streams[i]))
			link_user->look(atomic_load(&l->streams[i]));
	return false;
}

/* Not before the peer has left each slot, too: a close with something unread would throw away
 * what we said last. */
uint64_t link_distrust_work(struct link *l)
{
	uint64_t end = l->distrusted_us + FALLBACK_PATIENCE_US;
	bool left;

	if (!atomic_load(&l->distrusted) || !alive(l))
		return UINT64_MAX;
	left = !l->nstreams && !atomic_load(&l->out_waiting) &&
	       !(l->slot_used && (memchr(l->slot_used, 1, l->segment.slots) ||
				  memchr(l->slot_used, 3, l->segment.slots)));
	if (!left && now_us() < end)
		return end;
	link_kill(l, REASON_OTHER_USER);
	return UINT64_MAX;
}

void links_look_at_users(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (alive(&links[i]))
			link_trusts(&links[i]);
}

bool link_user_has_room(uid_t uid)
{
	uint32_t n = atomic_load(&links_top), all = 0, his = 0, fds = 0;

	if (!uid || uid == (uid_t)sys(SYS_geteuid))
		return true;
	for (uint32_t i = 0; i < n; i++) {
		struct link *l = &links[i];

		if (atomic_load(&l->state) == LINK_FREE)
			continue;
		all++;
		if (l->path->far || l->peer_uid != uid)
			continue;
		his++;
		fds += 1 + l->peer_bells;
	}
	return his <= LINK_MAX - all && fds <= fd_share_left();
}
