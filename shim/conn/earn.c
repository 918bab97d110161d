/*
 * earn.c - when a connection has moved so much that it is worth an upgrade, and what became of
 * those that were upgraded.
 *
 * An upgrade and its end cost both ends some hundred microseconds of CPU. A request and its answer
 * win back a few of them at a time. Nobody knows whether a connection lives on after its first 16
 * requests, but it is known how long others to the same port lived. If an end has seen most of them
 * end before they had moved EARN_MUCH times what they had when they earned, it makes the next ones
 * move as much first. Connections that end then pay nothing, and those that live on lose little.
 *
 * Both ends see the same lengths, so they mostly decide alike. Where they do not, and there is a
 * link, the client that has earned asks over it, and the server answers even if its end has not
 * earned. Without a link they meet only when both search. So if nobody was found, the search is
 * repeated when the connection has moved EARN_MUCH times as much (search.c), which is when an end
 * that holds back searches, too. It is repeated twice more after that: the process at the other end
 * may stand still or have no CPU for a while, and what the kernel's buffers take from us meanwhile
 * does not show that it lives.
 *
 * A place is a port and a program. At the end that accepted the port is its own; at the end that
 * connected it is the peer's, with the address. Places are kept by a hash, and two of them may
 * share one entry, which the later one takes. All counts are approximate. With `earn_share` they
 * are exchanged with a file that all processes of the user on this host share (policy/places.h). A
 * process reads it when it has its first socket, and whenever it has learned something itself.
 * Wrong words in it cost a search, or make a connection earn later.
 *
 * If EARLY connections more lived on than ended, where one that ended counts as four, the next ones
 * are upgraded at once: at accept(), connect(), or their first byte. They are judged as if they had
 * earned by as much as the last connection that earned by its own bytes.
 *
 * Locks: `shared.lock`, a leaf but for fd_number_lock(); it is only ever tried. Files are used with
 * no lock of a stream held.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/lock.h"
#include "base/shim.h"
#include "base/sock.h"
#include "base/sys.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "policy/places.h"
#include "policy/trust.h"

#define ENDED   1	/* soon after it had earned: one point; */
#define LIVED   4	/* on: so many less */
#define WARY    16	/* points from which on more is asked for */
#define POINTS  32	/* most */
#define EARLY   4	/* that lived on, from which on the next ones are upgraded at once; */
#define GOOD    15	/* most */
#define SEARCHES 4	/* with 1, 16, 256 and 4096 times the figures */
#define NOWHERE 1u	/* a place of which nothing is learned */

static _Atomic uint64_t known[PLACES];		/* key << 32, and what is known */
static _Atomic uint64_t changed[PLACES / 64];	/* those that the others have not been told yet */
static _Atomic bool untold;			/* there are such */

static struct {
	struct lock lock;
	_Atomic bool on;
	uid_t uid;
	bool begun;
	uint64_t words[PLACES], bits[PLACES / 64];	/* no stack: a handler's may be small */
} shared;

struct known { uint32_t points, good, size; };	/* size: log2 of the bytes that they had when
						 * they earned, 0: not known */

static bool over(const struct stream *s, uint64_t more, uint64_t times)
{
	const struct policy_tunables *t = shim_tunables();
	uint64_t bytes = t->earn_bytes, rounds = t->earn_rounds;

	if (times > 1) {	/* of a figure that is 0 there is no multiple */
		bytes = (bytes ? bytes : MARK_BYTES) * times;
		rounds = (rounds ? rounds : 1) * times;
	}
	return s->earn.bytes + more >= bytes || s->earn.rounds / 2 >= rounds;
}

/* For the search after so many in vain. */
static uint64_t times(uint8_t searched)
{
	uint64_t n = 1;

	while (searched--)
		n *= EARN_MUCH;
	return n;
}

/* FNV-1a, 32 bits. */
static uint32_t program_hash(void)
{
	uint32_t h = 2166136261u;

	for (const char *p = shim_program; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	return h;
}

static uint32_t hashed(const struct ctl_tuple *t, bool server)
{
	const uint8_t *p = server ? (const uint8_t *)&t->lport : (const uint8_t *)t->paddr;
	size_t n = server ? sizeof t->lport : sizeof t->paddr;
	uint32_t h = program_hash() ^ (server ? 0 : t->pport);

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

static unsigned entry(uint32_t place) { return place / 4 % PLACES; }

/* shared.lock is held. Who has become another user, or has moved to another root directory, neither
 * tells nor asks any more. */
static void exchange(void)
{
	int err = errno;

	for (unsigned i = 0; i < PLACES / 64; i++)
		shared.bits[i] = atomic_exchange(&changed[i], 0);
	for (unsigned i = 0; i < PLACES; i++)
		shared.words[i] = atomic_load_explicit(&known[i], memory_order_relaxed);
	if ((uid_t)sys(SYS_geteuid) != shared.uid || trust_root_moved()) {
		atomic_store(&shared.on, false);
	} else if (places_exchange(shared.uid, shared.bits, shared.words)) {
		for (unsigned i = 0; i < PLACES; i++)
			if (!(atomic_load(&changed[i / 64]) >> i % 64 & 1))
				atomic_store_explicit(&known[i], shared.words[i],
						      memory_order_relaxed);
		atomic_store(&shared.on, true);
	}
	errno = err;
}

void earn_share_begin(void)
{
	if (!lock_try(&shared.lock))
		return;
	if (!shared.begun) {	/* a child has its parent's */
		shared.begun = true;
		shared.uid = (uid_t)sys(SYS_geteuid);
		exchange();
	}
	lock_give(&shared.lock);
}

void earn_after_fork(void) { atomic_store(&shared.lock.v, 0); }

static void note_change(uint32_t place)
{
	unsigned i = entry(place);

	atomic_fetch_or(&changed[i / 64], 1ull << i % 64);
	atomic_store(&untold, true);
}

void earn_tell(void)
{
	if (!atomic_load_explicit(&untold, memory_order_relaxed) || !shim_tunables()->earn_share ||
	    !atomic_load(&shared.on) || !lock_try(&shared.lock))
		return;
	atomic_store(&untold, false);
	exchange();
	lock_give(&shared.lock);
}

static uint32_t at_most(uint32_t n, uint32_t most) { return n < most ? n : most; }

/* Whatever the word is, these are within their bounds. */
static struct known known_of(uint32_t place)
{
	uint64_t e = atomic_load_explicit(&known[entry(place)], memory_order_relaxed);

	if (e >> 32 != place)
		return (struct known){ 0 };
	return (struct known){ at_most(e & 0xff, POINTS), at_most(e >> 8 & 0xff, GOOD),
			       at_most(e >> 16 & 0xff, 40) };
}

static void know(uint32_t place, struct known k)
{
	uint64_t e = (uint64_t)place << 32 | k.size << 16 | k.good << 8 | k.points;

	if (atomic_exchange_explicit(&known[entry(place)], e, memory_order_relaxed) != e)
		note_change(place);
}

static bool wary(const struct stream *s)
{
	return s->earn.place != NOWHERE && shim_tunables()->earn_lifetime &&
	       known_of(s->earn.place).points >= WARY;
}

/* Only with the others' experience: a process that has just begun has none of its own. */
bool earn_early(struct stream *s)
{
	const struct policy_tunables *t = shim_tunables();
	struct known k;
	uint32_t place;

	if (s->earn.looked_up || s->earn.place || !t->earn_lifetime || !t->earn_share ||
	    !t->earn_bytes || !t->earn_rounds ||
	    !atomic_load_explicit(&shared.on, memory_order_relaxed))
		return false;
	s->earn.looked_up = 1;
	place = place_of(s);
	k = known_of(place);
	if (place == NOWHERE || k.good < EARLY || k.points || !k.size)
		return false;
	s->earn.place = place;
	s->earn.with = 1ull << k.size;
	s->earn.firm = 1;
	stat_row_event(s->row, EVENT_PLACE, k.good);
	return true;
}

/* It has earned by the policy's own figures, with so many bytes. False: that is known. */
static bool note(struct stream *s, uint64_t bytes)
{
	const struct policy_tunables *t = shim_tunables();

	if (s->earn.place)
		return false;
	s->earn.with = bytes ? bytes : 1;
	s->earn.firm = over(s, bytes, 1);
	/* all at once: no length says anything of that */
	s->earn.place = t->earn_bytes && t->earn_rounds ? place_of(s) : NOWHERE;
	return true;
}

static void judge(struct stream *s, bool lived)
{
	struct known k = known_of(s->earn.place);

	if (s->earn.judged || s->earn.place == NOWHERE)
		return;
	s->earn.judged = 1;
	k.points = lived ? k.points - at_most(LIVED, k.points) : at_most(k.points + ENDED, POINTS);
	if (!lived) {
		k.good -= at_most(LIVED, k.good);
	} else if (s->earn.firm) {	/* one that was only asked for had not earned: that it
					 * went on says little */
		k.good = at_most(k.good + 1, GOOD);
		k.size = 63 - (uint32_t)__builtin_clzll(s->earn.with);
	}
	know(s->earn.place, k);
}

/* turn: who moves them, 1 we. */
static void maybe(struct stream *s, uint64_t more, uint8_t turn)
{
	bool late, first;

	if (atomic_load_explicit(&s->upgrade, memory_order_relaxed)) {
		/* upgraded at once, and not there yet */
		if (turn == 1 && !s->snd.hold.bulk &&
		    s->earn.bytes + more >= shim_tunables()->earn_bytes)
			hold_begin(s);
		return;
	}
	if (earn_early(s)) {
		stream_earned(s);
		return;
	}
	if (!over(s, more, 1))
		return;
	first = note(s, s->earn.bytes + more > shim_tunables()->earn_bytes
				? shim_tunables()->earn_bytes
				: s->earn.bytes + more);
	late = over(s, more, EARN_MUCH);
	if (!late && wary(s)) {
		if (first)
			stat_row_reason(s->row, REASON_SHORT_LIVED);
		return;
	}
	if (s->earn.searched && !over(s, more, times(s->earn.searched)))
		return;
	if (late && !more) {
		judge(s, true);
		earn_tell();
	}
	stream_earned(s);
	if (turn == 1 && s->earn.bytes + more >= shim_tunables()->earn_bytes)
		hold_begin(s);
}

void earn_moved(struct stream *s, uint64_t moved, uint8_t turn)
{
	s->earn.bytes += moved;
	if (s->last_turn != turn) {
		s->last_turn = turn;
		s->earn.rounds++;
	}
	if (s->earn.rounds >= MARK_TURNS || s->earn.bytes >= MARK_BYTES)
		stream_mark(s);
	maybe(s, 0, turn);
}

void earn_will_move(struct stream *s, uint64_t n, uint8_t turn) { maybe(s, n, turn); }

void earn_asked(struct stream *s) { note(s, s->earn.bytes); }

bool earn_again(struct stream *s)
{
	uint8_t n = (uint8_t)(s->earn.searched + 1);

	while (n < SEARCHES && over(s, 0, times(n)))
		n++;
	if (n >= SEARCHES)
		return false;
	s->earn.searched = n;
	return true;
}

void earn_over(struct stream *s)
{
	uint64_t all = 0;

	/* all that have no row share that one */
	if (!s->earn.place || s->row == stat_row_none())
		return;
	for (int i = 0; i < PATH_KINDS; i++)
		all += atomic_load_explicit(&s->row->tx_bytes[i], memory_order_relaxed) +
		       atomic_load_explicit(&s->row->rx_bytes[i], memory_order_relaxed);
	judge(s, all / EARN_MUCH >= s->earn.with);
}

void earn_anew(struct stream *s)
{
	s->earn.bytes = s->earn.rounds = 0;
	s->earn.place = 0;
	s->earn.judged = s->earn.searched = s->earn.firm = s->earn.looked_up = 0;
}
