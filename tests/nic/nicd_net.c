/*
 * nicd_net.c - ports, wires and the switch. When a packet is put on its wire it is decided when it
 * will be there:
 *
 *   sender's port (mbps) --> switch --> queue of the receiver's port (mbps, buffer) --> delay_ns
 * --> due
 *
 * A port's packets are due in the order in which they were sent to it, so each node has one queue.
 * Faults take packets out.
 */
#include "nicd.h"

#include <errno.h>

#define LOOKAHEAD_NS 3000	/* so much of its wire's time a port has in hand */
#define POOL_MOST    4096
#define TCP_NS       5000000	/* until a lost segment of iWARP's has been sent again */

static struct pool {
	_Atomic uint32_t lock;
	struct pkt *free;
	unsigned n;
} pools[2];

static struct {
	_Atomic long skip, count;
} drops[P_CNP + 2];		/* by type; the last: of any */

static const char *const kinds[] = { "req", "read",	     "atomic",		"ack",
				     "nak", "read-response", "atomic-response", "cnp",
				     "any" };

struct pkt *pkt_new(uint32_t payload)
{
	bool big = payload > PKT_SMALL;
	struct pool *o = &pools[big];
	struct pkt *p;

	spin_lock(&o->lock);
	p = o->free;
	if (p) {
		o->free = p->next;
		o->n--;
	}
	spin_unlock(&o->lock);
	if (!p)
		p = malloc(sizeof *p + (big ? 1u << 20 : PKT_SMALL));
	if (!p)
		abort();
	memset(p, 0, sizeof *p);
	p->big = big;
	return p;
}

void pkt_free(struct pkt *p)
{
	struct pool *o = &pools[p->big];
	bool keep;

	spin_lock(&o->lock);
	keep = o->n < (p->big ? 256 : POOL_MOST);
	if (keep) {
		p->next = o->free;
		o->free = p;
		o->n++;
	}
	spin_unlock(&o->lock);
	if (!keep)
		free(p);
}

static uint64_t random_bits(void)
{
	static __thread uint64_t x;

	if (!x)
		x = (uint64_t)K.seed * 0x9e3779b97f4a7c15u + (uintptr_t)&x * (K.seed ? 0 : 1) + 1;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

static uint32_t packets_of(const struct pkt *p)
{
	return p->len <= 4096 ? 1 : (p->len + 4095) / 4096;
}
static uint64_t wire_bytes(const struct pkt *p)
{
	return p->len + (uint64_t)K.header * packets_of(p);
}
static uint64_t ns_of(uint64_t bytes) { return K.mbps ? bytes * 1000 / (uint64_t)K.mbps : 0; }

bool net_room(struct node *src, struct node *dst, uint64_t now)
{
	uint64_t free_at = __atomic_load_n(&dst->rx_free, __ATOMIC_RELAXED);

	if (src->tx_free > now + LOOKAHEAD_NS)
		return false;
	if (K.buffer && K.pause && free_at > now &&
	    free_at - now > ns_of((uint64_t)K.buffer)) {
		src->paused++;
		return false;
	}
	return true;
}

static bool counted_out(unsigned i)
{
	if (atomic_load_explicit(&drops[i].count, memory_order_relaxed) <= 0)
		return false;
	if (atomic_fetch_sub(&drops[i].skip, 1) > 0)
		return false;
	return atomic_fetch_sub(&drops[i].count, 1) > 0;
}

static bool is_lost(const struct pkt *p)
{
	if (counted_out(p->type) || counted_out(P_CNP + 1))
		return true;
	for (uint32_t i = 0; K.loss_ppm && i < packets_of(p); i++)
		if (random_bits() % 1000000 < (uint64_t)K.loss_ppm)
			return true;
	return false;
}

static void enqueue(struct node *dst, struct pkt *p)
{
	p->next = NULL;
	__atomic_store_n(dst->in_end, p, __ATOMIC_RELAXED); /* looked at without the lock */
	dst->in_end = &p->next;
}

void net_send(struct node *src, struct node *dst, struct pkt *p)
{
	uint64_t now = now_ns(), bytes = wire_bytes(p), out, in;
	bool again;
	bool lost = is_lost(p) || src->port_down || dst->port_down;

	spin_lock(&src->lock);
	src->tx_free = out = (src->tx_free > now ? src->tx_free : now) + ns_of(bytes);
	src->tx_bytes += bytes;
	src->packets += packets_of(p);
	spin_unlock(&src->lock);

	spin_lock(&dst->lock);
	in = dst->rx_free + ns_of(bytes); /* its port is as fast as others' */
	in = in > out ? in : out;
	if (K.buffer && !K.pause && in - out > ns_of((uint64_t)K.buffer))
		lost = true;
	again = lost && K.iwarp && !src->port_down && !dst->port_down; /* by its TCP */
	lost = lost && !again;
	if (!lost) {
		__atomic_store_n(&dst->rx_free, in, __ATOMIC_RELAXED);
		dst->queued += in - out;
		dst->queued_n++;
		if (K.ecn && in - out > ns_of((uint64_t)K.ecn)) {
			p->marked = 1;
			dst->marked++;
		}
		p->due = in + (uint64_t)K.delay_ns + (again ? TCP_NS : 0) +
			 (p->type == P_ACK ? (uint64_t)K.late_ack_ns : 0);
		if (K.jitter_ns)
			p->due += random_bits() % (uint64_t)K.jitter_ns;
		if (p->due < dst->last_due)
			p->due = dst->last_due;
		dst->last_due = p->due;
		enqueue(dst, p);
	} else {
		dst->lost++;
	}
	spin_unlock(&dst->lock);
	if (lost)
		pkt_free(p);
	else if (dst->engine != src->engine)
		engine_wake(dst->engine);
}

struct pkt *net_receive(struct node *n, uint64_t now)
{
	struct pkt *p;

	if (!__atomic_load_n(&n->in, __ATOMIC_RELAXED))
		return NULL;
	spin_lock(&n->lock);
	p = n->in;
	if (p && p->due <= now) {
		__atomic_store_n(&n->in, p->next, __ATOMIC_RELAXED);
		if (!n->in)
			n->in_end = &n->in;
		n->rx_bytes += wire_bytes(p);
		n->chunks++;
		if (now - p->due > n->late_max)
			n->late_max = now - p->due;
		if (now - p->due > 1000)
			n->late++;
	} else {
		p = NULL;
	}
	spin_unlock(&n->lock);
	return p;
}

uint64_t net_next(struct node *n)
{
	uint64_t at;

	spin_lock(&n->lock);
	at = n->in ? n->in->due : NEVER;
	spin_unlock(&n->lock);
	return at;
}

int net_fault(const char *kind, long skip, long count)
{
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kind, kinds[i])) {
			atomic_store(&drops[i].count, 0);
			atomic_store(&drops[i].skip, skip);
			atomic_store(&drops[i].count, count);
			return 0;
		}
	return EINVAL;
}
