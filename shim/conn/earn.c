/*
 * earn.c - when a connection has moved so much that it is worth an upgrade, and what became of those that were.
 *
 * An upgrade and its end cost both ends some hundred microseconds of CPU, which a request and its answer win back a few at a time. Whether a connection lives
 * on after its first 16 requests nobody knows; but how it was with the others to the same port is known. An end that has seen most of them go before they
 * had moved EARN_MUCH times what they had when they earned makes the next ones move as much first: those that end pay nothing, those that live on lose little.
 * Both ends see the same lengths, so both mostly come to the same. Where they do not, the client that has earned asks over a link that there is, and the server, which
 * need not have, answers. With no link they meet only when both search: so who was not found is searched for again when the connection has moved so much (rendezvous.c),
 * which is when an end that waits with it does, too. Twice more after that: an end whose process stands still, or
 * has no CPU, is not there for a while, and what the kernel's buffers take from the other meanwhile is no sign of it.
 *
 * A place is a port: at the end that accepted its own, at the one that connected the peer's, with the address. Places are kept by a hash and two of
 * them may share one entry: the later one takes it. All counts are approximate.
 *
 * Locks: none.
 */
#include <netinet/in.h>
#include <string.h>

#include "base/sock.h"
#include "base/sys.h"
#include "conn/stream_int.h"

#define PLACES  256
#define ENDED   1	/* soon after it had earned: one point; */
#define LIVED   4	/* on: so many less */
#define WARY    16	/* points from which on more is asked for */
#define POINTS  32	/* most */
#define SEARCHES 4	/* with 1, 16, 256 and 4096 times the figures */
#define NOWHERE 1u	/* a place of which nothing is learned */

static _Atomic uint64_t places[PLACES];		/* key << 32 | points */

static bool over(const struct stream *s, uint64_t more, uint64_t times)
{
	const struct policy_tunables *t = shim_tunables();
	uint64_t bytes = t->earn_bytes, rounds = t->earn_rounds;

	if (times > 1) {	/* of a figure that is 0 there is no multiple */
		bytes = (bytes ? bytes : MARK_BYTES) * times;
		rounds = (rounds ? rounds : 1) * times;
	}
	return s->seen_bytes + more >= bytes || s->seen_rounds / 2 >= rounds;
}

/* For the search after so many in vain. */
static uint64_t times(uint8_t searched)
{
	uint64_t n = 1;

	while (searched--)
		n *= EARN_MUCH;
	return n;
}

static uint32_t hashed(const struct ctl_tuple *t, bool server)
{
	const uint8_t *p = server ? (const uint8_t *)&t->lport : (const uint8_t *)t->paddr;
	size_t n = server ? sizeof t->lport : sizeof t->paddr;
	uint32_t h = 2166136261u ^ (server ? 0 : t->pport);	/* FNV-1a, 32 bits */

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 16777619u;
	return (h ^ h >> 15) | 2;
}

/* By the socket: the stream's names may not be known yet. */
static uint32_t place_of(const struct stream *s)
{
	struct sockaddr_storage a;
	struct ctl_tuple t;
	socklen_t len = sizeof a;
	bool server = s->role == ROLE_SERVER;

	memset(&a, 0, sizeof a);
	if (sys(server ? SYS_getsockname : SYS_getpeername, atomic_load(&s->fd), &a, &len) < 0)
		return NOWHERE;
	sockaddr_normal(&a);
	memset(&t, 0, sizeof t);
	tuple_from(&t, (void *)&a, (void *)&a);
	return hashed(&t, server);
}

static _Atomic uint64_t *entry(uint32_t place) { return &places[place / 4 % PLACES]; }

static uint32_t points(uint32_t place)
{
	uint64_t e = atomic_load_explicit(entry(place), memory_order_relaxed);

	return e >> 32 == place ? (uint32_t)e : 0;
}

static bool wary(const struct stream *s)
{
	return s->place != NOWHERE && shim_tunables()->earn_learn && points(s->place) >= WARY;
}

/* It has earned by the policy's own figures, with so many bytes. False: that is known. */
static bool note(struct stream *s, uint64_t bytes)
{
	const struct policy_tunables *t = shim_tunables();

	if (s->place)
		return false;
	s->earned_with = bytes ? bytes : 1;
	s->place = t->earn_bytes && t->earn_rounds ? place_of(s) : NOWHERE;	/* all at once: no length says anything of that */
	return true;
}

static void judge(struct stream *s, bool lived)
{
	uint32_t n = points(s->place);

	if (s->judged || s->place == NOWHERE)
		return;
	s->judged = 1;
	n = lived ? n - (n < LIVED ? n : LIVED) : n < POINTS ? n + ENDED : n;
	atomic_store_explicit(entry(s->place), (uint64_t)s->place << 32 | n, memory_order_relaxed);
}

/* turn: who moves them, 1 we. */
static void maybe(struct stream *s, uint64_t more, uint8_t turn)
{
	bool late, first;

	if (!over(s, more, 1) || atomic_load_explicit(&s->upgrade, memory_order_relaxed))
		return;
	first = note(s, s->seen_bytes + more > shim_tunables()->earn_bytes ? shim_tunables()->earn_bytes : s->seen_bytes + more);
	late = over(s, more, EARN_MUCH);
	if (!late && wary(s)) {
		if (first)
			stat_row_reason(s->row, REASON_SHORT_LIVED);
		return;
	}
	if (s->searched && !over(s, more, times(s->searched)))
		return;
	if (late && !more)
		judge(s, true);
	stream_earned(s);
	if (turn == 1 && s->seen_bytes + more >= shim_tunables()->earn_bytes)
		hold_begin(s);
}

void earn_moved(struct stream *s, uint64_t moved, uint8_t turn)
{
	s->seen_bytes += moved;
	if (s->last_turn != turn) {
		s->last_turn = turn;
		s->seen_rounds++;
	}
	if (s->seen_rounds >= MARK_TURNS || s->seen_bytes >= MARK_BYTES)
		stream_mark(s);
	maybe(s, 0, turn);
}

void earn_will_move(struct stream *s, uint64_t n, uint8_t turn) { maybe(s, n, turn); }

void earn_asked(struct stream *s) { note(s, s->seen_bytes); }

bool earn_again(struct stream *s)
{
	uint8_t n = (uint8_t)(s->searched + 1);

	while (n < SEARCHES && over(s, 0, times(n)))
		n++;
	if (n >= SEARCHES)
		return false;
	s->searched = n;
	return true;
}

void earn_over(struct stream *s)
{
	uint64_t all = 0;

	if (!s->place || s->row == stat_row_none())	/* all that have no row share that one */
		return;
	for (int i = 0; i < PATH_KINDS; i++)
		all += atomic_load_explicit(&s->row->tx_bytes[i], memory_order_relaxed) + atomic_load_explicit(&s->row->rx_bytes[i], memory_order_relaxed);
	judge(s, all / EARN_MUCH >= s->earned_with);
}

void earn_anew(struct stream *s)
{
	s->seen_bytes = s->seen_rounds = 0;
	s->place = 0;
	s->judged = s->searched = 0;
}
