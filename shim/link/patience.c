/* patience.c - see patience.h. */
#include "link/patience.h"

#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"

#define OWN_NS    1000000000	/* our own user's and root's processes could stop us anyway, ... */
#define OTHERS_NS 80000000	/* ... another user's shall hardly be noticed */
#define ONCE_NS   2000000	/* one that has never been waited for in vain: a rewind takes some 100 us */
#define REFILL    20

enum { OWN, HOSTS, OTHERS, STORES = OTHERS + 16 };

/* The store is what has come since then, up to its size. */
static _Atomic uint64_t since_ns[STORES];

static unsigned store_of(const struct link *l)
{
	if (!l)
		return OTHERS;
	if (l->net)
		return HOSTS;
	if (!l->peer_uid || l->peer_uid == (uid_t)sys(SYS_geteuid))
		return OWN;
	return OTHERS + l->peer_uid % (STORES - OTHERS);
}

static uint64_t size_of(unsigned store) { return store < OTHERS ? OWN_NS : OTHERS_NS; }

static uint64_t left_in(unsigned store, uint64_t now)
{
	uint64_t since = atomic_load_explicit(&since_ns[store], memory_order_relaxed);
	uint64_t ns = now > since ? (now - since) / REFILL : 0;

	return ns < size_of(store) ? ns : size_of(store);
}

uint64_t patience_ns(const struct link *l, uint64_t most)
{
	uint64_t ns = left_in(store_of(l), now_ns());

	if (ns < ONCE_NS && l && !atomic_load_explicit(&l->vain, memory_order_relaxed))
		ns = ONCE_NS;
	return ns < most ? ns : most;
}

void patience_spent(const struct link *l, uint64_t ns)
{
	unsigned store = store_of(l);
	uint64_t now = now_ns(), whole = size_of(store) * REFILL, full = now > whole ? now - whole : 0;
	uint64_t since = atomic_load_explicit(&since_ns[store], memory_order_relaxed), to;

	do {
		to = (since < full ? full : since) + ns * REFILL;
		to = to < now ? to : now;	/* no debts */
	} while (since < now && !atomic_compare_exchange_weak(&since_ns[store], &since, to));
}
