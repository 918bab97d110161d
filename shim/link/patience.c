/* patience.c - see patience.h. */
#include "link/patience.h"

#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"
#include "link/path.h"

#define MS     1000000ull
#define REFILL 20

/* Our own user's and root's processes could stop us anyway, another user's shall hardly be noticed.
 * Who was never waited for in vain has a rewind's time, some 100 us, and longer in a crowd. */
static const struct { uint64_t size, never_vain, vain; } stores[PATIENCES][2] = {
	[PATIENCE_CALL] = { { 1000 * MS, 2 * MS, 0 }, { 80 * MS, 2 * MS, 0 } },
	[PATIENCE_FALLBACK] = { { 30000 * MS, 1000 * MS, 50 * MS },
				{ 1000 * MS, 100 * MS, 20 * MS } },
	[PATIENCE_START] = { { 30000 * MS, 1000 * MS, 50 * MS }, { 100 * MS, 20 * MS, 20 * MS } },
};

enum { OWN, HOSTS, OTHERS, USERS = OTHERS + 16 };

/* The store is what has come since then, up to its size. */
static _Atomic uint64_t since_ns[PATIENCES][USERS];

static unsigned user_of(const struct link *l)
{
	if (!l)
		return OTHERS;
	if (l->path->far)
		return HOSTS;
	if (!l->peer_uid || l->peer_uid == (uid_t)sys(SYS_geteuid))
		return OWN;
	return OTHERS + l->peer_uid % (USERS - OTHERS);
}

uint64_t patience_ns(enum patience for_, const struct link *l, uint64_t most)
{
	bool vain = !l || atomic_load_explicit(&l->vain, memory_order_relaxed);
	uint64_t now = now_ns(), since, ns, least, size;
	unsigned user = user_of(l);

	since = atomic_load_explicit(&since_ns[for_][user], memory_order_relaxed);
	size = stores[for_][user >= OTHERS].size;
	least = vain ? stores[for_][user >= OTHERS].vain : stores[for_][user >= OTHERS].never_vain;
	ns = now > since ? (now - since) / REFILL : 0;
	ns = ns < size ? ns : size;
	ns = ns > least ? ns : least;
	return ns < most ? ns : most;
}

void patience_spent(enum patience for_, const struct link *l, uint64_t ns)
{
	unsigned user = user_of(l);
	uint64_t whole = stores[for_][user >= OTHERS].size * REFILL, now = now_ns(), since, to;
	uint64_t full = now > whole ? now - whole : 0;

	since = atomic_load_explicit(&since_ns[for_][user], memory_order_relaxed);
	do {
		to = (since < full ? full : since) + ns * REFILL;
		to = to < now ? to : now;	/* no debts */
	} while (since < now &&
		 !atomic_compare_exchange_weak(&since_ns[for_][user], &since, to));
}
