/*
 * search_result.c - the results of a stream's search: the name that it has open, how the search
 * ends, and what follows from an answer, a refusal, or the end of a link or a call. search.c
 * searches. It calls this file, as do discovery_ctl.c and discovery_net.c, and this file calls none
 * of them.
 *
 * Owns the discovery sockets that are open (search.fd), and their number.
 *
 * Background thread only, called without locks.
 */
#include "discovery/discovery_ctl.h"

#include <sys/socket.h>

#include "base/closer.h"
#include "base/fdtab.h"
#include "base/loop.h"
#include "base/procs.h"
#include "base/proof.h"
#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"
#include "discovery/across.h"
#include "discovery/discovery_net.h"
#include "discovery/discovery_sock.h"
#include "discovery/search.h"
#include "link/link.h"
#include "link/other_version.h"
#include "link/path.h"
#include "link/rights.h"
#include "policy/log.h"

unsigned search_names_open;
unsigned search_client_names;

/* ---- names ---- */

static int bind_name(struct stream *s, int fd)
{
	uint32_t isn[2];

	if (!s->search.across)
		return discovery_sock_open(fd, (void *)&s->addr.peer, (void *)&s->addr.local);
	across_isns(s, isn);
	return across_name_open(fd, isn);
}

/* Its socket is closed. */
static void name_gone(struct stream *s)
{
	uint32_t isn[2];

	if (!s->search.across) {
		discovery_sock_close((void *)&s->addr.peer, (void *)&s->addr.local);
		return;
	}
	across_isns(s, isn);
	across_name_close(isn);
}

void search_name_close(struct stream *s)
{
	if (s->search.fd < 0)
		return;
	loop_unwatch_fd(s->search.fd);
	(stream_sought(s)->far ? rights_end : rights_close)(s->search.fd);
	s->search.fd = -1;
	if (stream_sought(s)->far)
		return;
	name_gone(s);
	search_names_open--;
	search_client_names -= s->role == ROLE_CLIENT;
}

int search_name_open(struct stream *s)
{
	bool named;
	long r;
	int fd;

	if (closer_busy())
		return -EAGAIN;
	fd = fd_internal_sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	rights_allow(fd, false);	/* whoever connects may be anybody */
	r = proof_possible();
	if (r >= 0)
		r = bind_name(s, fd);
	named = r >= 0;
	if (r >= 0)
		r = sys(SYS_listen, fd, 8);
	if (r >= 0)
		r = loop_watch_fd(fd, EPOLLIN, LOOP_NAME, s->index);
	if (r < 0) {
		if (named)
			name_gone(s);
		fd_internal_close(fd);
		return (int)r;
	}
	s->search.fd = fd;
	search_names_open++;
	return 0;
}

/* ---- ends of a search ---- */

uint64_t search_retry_us(struct stream *s)
{
	s->search.lost += s->search.lost < 6;
	return shim_tunables()->rdma_retry << (s->search.lost - 1);
}

/* What may have been an accident: the other end's process stood still, or had no CPU; one of us
 * had no room. */
static bool may_pass(enum reason why)
{
	return why == REASON_NO_PEER_SHIM || why == REASON_PEER_REFUSED || why == REASON_SHARED ||
	       why == REASON_LINK_FULL || why == REASON_NO_FDS || why == REASON_NO_MEMORY;
}

void search_failed(struct stream *s, enum reason why, bool for_good)
{
	log_line(3, "fd %d: stays on TCP: %s", atomic_load(&s->fd), reason_name(why));
	search_name_close(s);
	hold_over(s);
	s->search.state = SEARCH_FAILED;
	stat_row_reason(s->row, why);
	if (why != atomic_load(&s->earn.stopped))
		stat_link_error(why);
	/* it was on RDMA, which may come back */
	if (s->search.lost && why != atomic_load(&s->earn.stopped)) {
		for_good = false;
		s->search.state = SEARCH_NONE;
		s->search.end_us = 0;
		s->search.due_us = now_us() + search_retry_us(s);
	} else if (why != atomic_load(&s->earn.stopped) && may_pass(why) && earn_again(s)) {
		s->search.state = SEARCH_LATER;		/* stream_work.c releases it, */
		stream_wake(s);
		return;
	}
	if (for_good)
		stream_stays(s, why);		/* ... and of that */
	else if (atomic_load(&s->mode) == MODE_NEW)
		atomic_store(&s->mode, MODE_TCP_FOR_NOW);
	stream_wake(s);
}

void search_stop(struct stream *s)
{
	search_name_close(s);		/* a BIND under way is answered first: got_bound() sees
					 * that the stream is dead */
}

/* ---- what the policy says ---- */

uint32_t search_paths_allowed(struct stream *s)
{
	struct link *l = atomic_load(&s->link);
	struct policy_decision d;

	if (l && atomic_load(&l->distrusted)) {		/* until it has left that link */
		atomic_store(&s->earn.stopped, REASON_OTHER_USER);
		return 0;
	}
	policy_decide(atomic_load(&shim_policy), shim_program, s->role, (void *)&s->addr.local,
		      (void *)&s->addr.peer, &d);
	stat_row_rule(s->row, d.at);
	d.paths &= ~(1u << PATH_TCP);
	atomic_store(&s->earn.stopped, (uint8_t)(d.paths    ? 0
						 : d.reason ? d.reason
							    : REASON_POLICY));
	return d.paths;
}

bool search_allowed(struct stream *s, enum path_kind path)
{
	return search_paths_allowed(s) & 1u << path;
}

/* ---- how often, and how many ---- */

/* More than that in a second: a crowd. */
#define MANY 64
static uint64_t found_at[MANY];
static unsigned found;

bool search_many_found(uint64_t now)
{
	return found >= MANY && now < found_at[found % MANY] + 1000000;
}

uint64_t search_backoff(unsigned tries)
{
	static const uint32_t us[] = { 300, 700, 1500, 3000, 6000, 12000, 25000, 50000, 100000 };

	return us[tries < sizeof us / sizeof us[0] ? tries : sizeof us / sizeof us[0] - 1];
}

enum reason search_reason_of(int err)
{
	if (err == -EMFILE || err == -ENFILE)
		return REASON_NO_FDS;
	if (err == -ENOMEM || err == -EINVAL || err == -EFBIG)
		return REASON_NO_MEMORY;
	return err == -EMLINK ? REASON_LINK_FULL : REASON_NO_DISCOVERY;
}

void search_from_the_first_link(struct stream *s)
{
	s->search.link = s->search.elsewhere = 0;
}

/* ---- it has its slot, or another version is there ---- */

void search_found(struct stream *s)
{
	search_name_close(s);
	s->search.state = SEARCH_DONE;
	s->search.lost = 0;
	found_at[found++ % MANY] = now_us();
}

void search_version(struct stream *s, uint32_t theirs)
{
	stat_row_event(s->row, EVENT_VERSION, (uint64_t)theirs << 32 | CTL_VERSION);
	search_failed(s, REASON_VERSION, true);
	bg_look(s);
}

void search_version_heard(struct stream *s, uint32_t theirs)
{
	if (s->search.other)
		return;
	s->search.other = 1;
	stat_row_event(s->row, EVENT_VERSION, (uint64_t)theirs << 32 | CTL_VERSION);
	stat_row_reason(s->row, REASON_VERSION);
}

#define HANGUPS 3	/* in a row: no accident */

/* Was our HELLO not understood? Only whoever connected knows: the others that waited may meet
 * another process. */
static bool not_understood(struct stream *s, const struct link *l)
{
	if (atomic_load(&l->state) == LINK_UP || l->caller != s->index + 1)
		return false;
	if (l->hung_up && l->peer_start == process_start(l->peer_pid) &&
	    ++s->search.hung_up == HANGUPS)
		version_silent(l->peer_pid);
	else if (l->why != REASON_VERSION)
		return false;
	search_version(s, l->why == REASON_VERSION ? l->other : 0);
	return true;
}

void search_hello_settled(const struct link *l)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_FREE || s->search.state != SEARCH_TRY ||
		    s->search.hello != l->index + 1)
			continue;
		s->search.hello = 0;
		if (not_understood(s, l))
			continue;
		s->search.due_us = now_us() + (atomic_load(&l->state) == LINK_UP
						       ? 0
						       : search_backoff(s->search.tries++));
		bg_look(s);
	}
}

/* ---- what comes of asking over a link ---- */

void search_refused(struct stream *s, const struct link *l, enum reason why)
{
	uint64_t now = now_us();

	s->search.state = SEARCH_TRY;
	if (why == REASON_NO_PEER_SHIM) {
		s->search.link = l->index + 1;	/* the next link, or the name */
		s->search.due_us = now;
	} else if (why == REASON_SHARED && now < s->search.end_us) {
		s->want = REASON_SHARED;
		search_from_the_first_link(s);
		s->search.due_us = now + search_backoff(s->search.tries++);
	} else {
		search_failed(s,
			  why == REASON_IDENTITY || why == REASON_SHARED ||
					  why == REASON_NO_MEMORY || why == REASON_NOT_ONE ||
					  why == REASON_AMBIGUOUS
				  ? why
				  : REASON_PEER_REFUSED,
			  false);
	}
	bg_look(s);
}

/* Streams whose BIND was on the way when the link went: back to searching. */
void search_orphaned(struct link *l)
{
	uint32_t n = streams_top();

	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE && s->search.state == SEARCH_ASKED &&
		    s->search.link == l->index) {
			s->search.state = SEARCH_TRY;
			search_from_the_first_link(s);
			s->search.due_us = now_us() + search_backoff(s->search.tries++);
			bg_look(s);
		}
	}
}

/* ---- between hosts: what comes of a call ---- */

/* As after a connect attempt: nobody there yet is asked again; what will not change soon leaves
 * the stream on TCP. */
void search_call_ended(struct stream *s, enum reason why)
{
	uint64_t now = now_us();

	if (why == REASON_NO_PEER_SHIM && now < s->search.end_us) {
		s->search.state = SEARCH_TRY;
		search_from_the_first_link(s);
		s->search.due_us = now + search_backoff(s->search.tries++);
	} else {
		search_failed(s, why, why == REASON_NO_PEER_SHIM);
	}
	bg_look(s);
}

void net_link_settled(struct link *l, enum reason why)
{
	uint32_t n = streams_top();

	if (why == REASON_PEER_GONE)	/* hung up before the link was there, perhaps because we
					 * took too long: the connection lives, so somebody has
					 * it */
		why = REASON_NO_PEER_SHIM;
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_FREE || s->search.state != SEARCH_CALL ||
		    s->search.link != l->index)
			continue;
		s->search.state = SEARCH_TRY;
		search_from_the_first_link(s);
		s->search.due_us = now_us();
		if (why)
			search_call_ended(s, why);
		bg_look(s);
	}
}
