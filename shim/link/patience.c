/* patience.c - see patience.h. */
#include "link/patience.h"

#include "base/seen.h"
#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"
#include "link/path.h"

#define MS     1000000ull
#define REFILL 20

enum { OWN, HOSTS, REST, ALONE = REST };

/* Our own user's and root's processes could stop us anyway, another user's shall hardly be noticed.
 * Who was never waited for in vain has a rewind's time, some 100 us, and longer in a crowd.
 * `grows`: so much is there at first, and the rest as the time goes by that the link is there. */
static const struct rule {
	uint64_t size, never_vain, vain, grows;
} rules[PATIENCES][2] = {
	[PATIENCE_CALL] = { { 1000 * MS, 2 * MS, 0, 0 }, { 80 * MS, 2 * MS, 0, 0 } },
	[PATIENCE_FALLBACK] = { { 30000 * MS, 1000 * MS, 50 * MS, 0 },
				{ 1000 * MS, 100 * MS, 20 * MS, 0 } },
	[PATIENCE_START] = { { 30000 * MS, 1000 * MS, 50 * MS, 0 },
			     { 1000 * MS, 20 * MS, 20 * MS, 100 * MS } },
	[PATIENCE_EXEC] = { { 30000 * MS, 30000 * MS, 30000 * MS, 0 },
			    { 1000 * MS, 20 * MS, 20 * MS, 0 } },
};

/* The store is what has come since then, up to its size. */
static _Atomic uint64_t since_ns[PATIENCES][ALONE + 1];

/* Other users': uid << 32 | ticks since when; 0: nobody's (root's are among our own). One whose
 * store is full again is as good as none. */
#define USERS	 16
#define TICK_NS	 (1ull << 24)
static _Atomic uint64_t users[PATIENCES][USERS];

static uint32_t ticks(uint64_t ns) { return (uint32_t)(ns / TICK_NS); }
static uint32_t ticks_up(uint64_t ns) { return (uint32_t)((ns + TICK_NS - 1) / TICK_NS); }

/* One of just now may be of a thread that looked at the clock later. */
static uint32_t age_of(uint64_t row, uint32_t now)
{
	uint32_t age = now - (uint32_t)row;

	return age > UINT32_MAX / 2 ? 0 : age;
}

static unsigned who(const struct link *l)
{
	if (!l)
		return REST;
	if (l->path->far)
		return HOSTS;
	if (!l->peer_uid || l->peer_uid == (uid_t)sys(SYS_geteuid))
		return OWN;
	return ALONE + 1;
}

/* His row, or the one that he can have, of whose user nothing need be known any more; NULL: there
 * are too many that spend. *ret: what is in it. */
static _Atomic uint64_t *row_of(enum patience for_, uid_t uid, uint32_t now, uint64_t *ret)
{
	uint32_t full = ticks_up(rules[for_][1].size * REFILL), age, oldest = 0;
	_Atomic uint64_t *free_ = NULL;

	for (unsigned i = 0; i < USERS; i++) {
		uint64_t row = atomic_load_explicit(&users[for_][i], memory_order_relaxed);

		if (row && row >> 32 == uid) {
			*ret = row;
			return &users[for_][i];
		}
		age = row ? age_of(row, now) : UINT32_MAX;
		if (age >= full && age > oldest) {
			*ret = row;
			oldest = age;
			free_ = &users[for_][i];
		}
	}
	return free_;
}

/* Since when the store of a user fills up of whom no row tells. */
static uint32_t unspent(enum patience for_, const struct link *l, uint64_t now)
{
	uint64_t whole = rules[for_][1].size * REFILL, here = now - l->since_us * 1000;

	if (rules[for_][1].grows && l->since_us * 1000 <= now && here < whole)
		whole = here;
	return ticks(now) - ticks_up(whole);
}

/* What is in the store, not more than it holds. */
static uint64_t in_store(enum patience for_, const struct link *l, uint64_t now)
{
	uint64_t grows = rules[for_][1].grows, row = 0, since, ns;
	unsigned w = who(l);

	if (w > ALONE && !row_of(for_, l->peer_uid, ticks(now), &row))
		w = REST;
	if (w <= ALONE) {
		since = atomic_load_explicit(&since_ns[for_][w], memory_order_relaxed);
		return now > since ? (now - since) / REFILL : 0;
	}
	if (row && row >> 32 == l->peer_uid)
		return age_of(row, ticks(now)) * TICK_NS / REFILL;
	ns = age_of(unspent(for_, l, now), ticks(now)) * TICK_NS / REFILL;
	return ns > grows ? ns : grows;
}

uint64_t patience_ns(enum patience for_, const struct link *l, uint64_t most)
{
	bool vain = !l || atomic_load_explicit(&l->vain, memory_order_relaxed);
	const struct rule *r = &rules[for_][!l || who(l) > ALONE];
	uint64_t now = now_ns(), least = vain ? r->vain : r->never_vain;
	uint64_t ns = in_store(for_, l, now);

	ns = ns < r->size ? ns : r->size;
	ns = ns > least ? ns : least;
	SEEN("patience", l, "since", 0, l ? l->since_us : 0, 0);
	SEEN("patience", l, "may", for_, now, ns);
	return ns < most ? ns : most;
}

/* False: the row is somebody else's by now, or all are of users that spend. */
static bool spent_by_user(enum patience for_, const struct link *l, uint64_t ns, uint64_t now)
{
	uint32_t whole = ticks_up(rules[for_][1].size * REFILL), at, age;
	_Atomic uint64_t *row;
	uint64_t old = 0;

	do {
		row = row_of(for_, l->peer_uid, ticks(now), &old);
		if (!row)
			return false;
		at = old && old >> 32 == l->peer_uid ? (uint32_t)old : unspent(for_, l, now);
		age = age_of(at, ticks(now));
		age = age < whole ? age : whole;
		at = ns < rules[for_][1].size && ticks_up(ns * REFILL) < age
			     ? ticks(now) - age + ticks_up(ns * REFILL)
			     : ticks(now);	/* no debts */
	} while (!atomic_compare_exchange_weak(row, &old, (uint64_t)l->peer_uid << 32 | at));
	return true;
}

void patience_spent(enum patience for_, const struct link *l, uint64_t ns)
{
	uint64_t whole, now = now_ns(), since, to, full;
	unsigned w = who(l);

	SEEN("patience", l, "spent", for_, now, ns);
	if (w > ALONE && spent_by_user(for_, l, ns, now))
		return;
	w = w > ALONE ? REST : w;
	whole = rules[for_][w == REST].size * REFILL;
	full = now > whole ? now - whole : 0;
	since = atomic_load_explicit(&since_ns[for_][w], memory_order_relaxed);
	do {
		to = (since < full ? full : since) + ns * REFILL;
		to = to < now ? to : now;	/* no debts */
	} while (since < now &&
		 !atomic_compare_exchange_weak(&since_ns[for_][w], &since, to));
}
