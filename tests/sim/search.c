/*
 * search.c - who decides the order: random schedules from a seed, all schedules of small
 * configurations, and a peer that says anything.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- random --------------------------------------------------------------------------- */

static uint64_t rng_state;

/* splitmix64 (Steele, Lea, Flood 2014): every seed, also a small one, is a good one. */
static uint64_t rng(void)
{
	uint64_t z = (rng_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static unsigned below(unsigned n)
{
	return n ? (unsigned)(rng() % n) : 0;
}

/* Something with probability 1/n. */
static unsigned sometimes(unsigned n, unsigned max)
{
	return below(n) ? 0 : 1 + below(max);
}

static void random_config(struct config *c)
{
	memset(c, 0, sizeof(*c));
	c->tcp_cap = 1 + below(12);
	c->ring_cap = 1 + below(10);
	for (int i = 0; i < 2; i++) {
		c->n[i] = below(4) ? below(40) : below(4);
		if (below(3) == 0)
			c->gate[i] = below((c->n[i] < c->tcp_cap ? c->n[i] : c->tcp_cap) + 1);
	}
	c->coarse = 1 + below(6);
	c->rdma = below(4) == 0;
	c->exec_gate = below(2);
	c->earn = 1 + below(6);
	c->fallback = sometimes(2, 4);
	c->kill = sometimes(4, 1);
	c->breaks = sometimes(6, 1);
	c->exec = sometimes(4, 1);
	/* a fork after the loss: see "One case is known" in docs/cut.md */
	c->fork = c->breaks ? 0 : sometimes(4, 2);
	c->stop = sometimes(3, 3);
	c->full_close = sometimes(6, 1);
	c->path_death = c->rdma ? sometimes(2, 2) : 0;
	c->abort = c->rdma || c->breaks ? 0 : sometimes(6, 1);
	c->edge = below(3) == 0;
	c->proxy = below(8) == 0;
	c->claim = sometimes(8, 1);
	c->bypass = c->abort ? 0 : sometimes(8, 1);
	c->offer = sometimes(2, 4);
	c->urgent = c->proxy ? 0 : sometimes(4, 1);
}

/* Optional things happen rarely, and each kind as rarely as the others. */
static int pick(const struct step *s, int n)
{
	int must = 0, may = 0, k;

	for (int i = 0; i < n; i++)
		if (step_optional[s[i].kind])
			may++;
		else
			must++;
	if (!must)
		return -1;
	if (may && below(10) == 0) {
		k = below(may);
		for (int i = 0; i < n; i++)
			if (step_optional[s[i].kind] && k-- == 0)
				return i;
	}
	k = below(must);
	for (int i = 0; i < n; i++)
		if (!step_optional[s[i].kind] && k-- == 0)
			return i;
	return -1;
}

static void print_config(const struct config *c, uint64_t seed)
{
	printf("seed %llu: bytes %d/%d tcp %d ring %d gates %d/%d %s earn %d fallback %d kill %d "
	       "break %d "
	       "exec %d%s fork %d stop %d path %d close %d abort %d offer %d urgent "
	       "%d%s%s%s%s\n",
	       (unsigned long long)seed, c->n[0], c->n[1], c->tcp_cap, c->ring_cap, c->gate[0],
	       c->gate[1], c->rdma ? "rdma" : "shm", c->earn, c->fallback, c->kill, c->breaks,
	       c->exec, c->exec_gate ? "+gate" : "", c->fork, c->stop, c->path_death,
	       c->full_close, c->abort, c->offer, c->urgent, c->edge ? " edge-triggered" : "",
	       c->proxy ? " proxy" : "", c->claim ? " claim" : "", c->bypass ? " bypass" : "");
}

int run_random(uint64_t seed, bool verbose, uint8_t *ret_fail)
{
	struct config c;
	struct world w;
	struct step s[STEPS_MAX];
	int steps;

	rng_state = seed;
	random_config(&c);
	world_init(&w, &c);
	if (verbose)
		print_config(&c, seed);
	for (steps = 0; !w.fail; steps++) {
		int n = world_steps(&w, s), i = pick(s, n);

		if (i < 0) {
			if (!world_done(&w))
				world_fail(&w, FAIL_STUCK);
			break;
		}
		if (steps > 20000)
			world_fail(&w, FAIL_ENDLESS);
		s[i].n = 1 + below(c.coarse);
		if (verbose)
			world_print(&w, s[i]);
		world_do(&w, s[i]);
		world_check_delta(&w);
		app_check_peek(&w, 0);
		app_check_peek(&w, 1);
	}
	if (verbose) {
		world_print(&w, (struct step){ .kind = S_WRITE, .n = 0 });
		printf("after %d steps: %s\n", steps, fail_name[w.fail]);
	}
	*ret_fail = w.fail;
	return w.fail != FAIL_NONE;
}

int search_random(uint64_t first, uint64_t count, bool quiet, uint64_t *ret_seed, uint8_t *ret_fail)
{
	for (uint64_t i = 0; i < count; i++) {
		/* neighbouring numbers make unrelated schedules: run_random() mixes them */
		if (run_random(first + i, false, ret_fail)) {
			*ret_seed = first + i;
			if (!quiet)
				printf("seed %llu: %s (replay: sim --replay %llu -v)\n",
				       (unsigned long long)*ret_seed, fail_name[*ret_fail],
				       (unsigned long long)*ret_seed);
			return 1;
		}
	}
	return 0;
}

/* ---- exhaustive ----------------------------------------------------------------------- */

struct small {
	const char *name;
	struct config c;
};

/* One direction unless n[1] is given. A gated direction has its reader wait for its own writes. */
static const struct small smalls[] = {
	{ "two epochs, both rewind",	{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 1,
					  .earn = 2, .fallback = 2 } },
	{ "three epochs",		{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 3, .fallback = 2 } },
	{ "wider",			{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 3, .ring_cap = 2,
					  .earn = 2, .fallback = 2 } },
	{ "killed",			{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 1, .kill = 1 } },
	{ "killed, control lost",	{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 1, .kill = 1, .breaks = 1 } },
	{ "control gone",		{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 2, .fallback = 1, .breaks = 1 } },
	{ "control gone, then killed",	{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 1, .kill = 1, .breaks = 1 } },
	{ "exec or fd passed",		{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 1, .exec = 1, .exec_gate = 1 } },
	{ "fork, stop",			{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 2, .ring_cap = 1,
					  .earn = 2, .fork = 1, .stop = 1 } },
	{ "rdma, path dies",		{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .rdma = 1, .path_death = 1 } },
	{ "rdma, control gone",	{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 2, .rdma = 1, .path_death = 1, .breaks = 1 } },
	{ "rdma, killed",		{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 2, .rdma = 1, .path_death = 1, .kill = 1 } },
	{ "both ways",			{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 2,
					  .fallback = 1 } },
	{ "both ways, killed",		{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 1,
					  .fallback = 1, .kill = 1 } },
	{ "both ways, control gone",	{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 2,
					  .breaks = 1 } },
	{ "both ways, two bytes",	{ .n = { 2, 2 }, .tcp_cap = 2, .ring_cap = 1, .earn = 2 } },
	{ "four bytes",			{ .one_way = 1, .n = { 4, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 3, .fallback = 2 } },
	{ "killed in three epochs",	{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 1, .ring_cap = 2,
					  .earn = 3, .fallback = 2, .kill = 1 } },
	{ "killed, exec",		{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 1, .fallback = 1, .kill = 1,
						  .exec = 1 } },
	{ "full close, two bytes",	{ .n = { 2, 1 }, .tcp_cap = 2, .ring_cap = 1, .earn = 2,
					  .full_close = 1 } },
	{ "both send before reading",	{ .n = { 2, 2 }, .tcp_cap = 2, .ring_cap = 1,
					  .gate = { 2, 2 }, .earn = 1 } },
	{ "both send first, control gone", { .n = { 2, 2 }, .tcp_cap = 2, .ring_cap = 1,
					     .gate = { 2, 2 }, .earn = 1, .breaks = 1 } },
	{ "aborted",			{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 2, .abort = 1 } },
	{ "both ways, aborted",		{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 1,
					  .fallback = 1, .abort = 1 } },
	{ "edge-triggered readers",	{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 1, .edge = 1 } },
	{ "edge-triggered, killed",	{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 1, .ring_cap = 2,
					  .earn = 2, .fallback = 1, .kill = 1, .edge = 1 } },
	{ "blocks offered",		{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 2, .offer = 2 } },
	{ "blocks offered, killed",	{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 1,
					  .earn = 2, .fallback = 1, .offer = 2, .kill = 1 } },
	{ "blocks offered, gone",	{ .one_way = 1, .n = { 2, 0 }, .tcp_cap = 1, .ring_cap = 1,
					  .earn = 1, .fallback = 1, .offer = 1, .breaks = 1 } },
	{ "both ways, blocks offered",	{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 1,
					  .offer = 1 } },
	{ "rdma, blocks read",		{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 1, .fallback = 1, .rdma = 1, .offer = 2 } },
	{ "rdma, blocks read, path dies", { .one_way = 1, .n = { 2, 0 }, .tcp_cap = 2,
					    .ring_cap = 1, .earn = 2, .rdma = 1, .offer = 1,
						    .path_death = 1 } },
	{ "rdma, blocks read, stop",	{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 3, .ring_cap = 1,
					  .earn = 1, .rdma = 1, .offer = 1, .stop = 1 } },
	{ "urgent byte",		{ .one_way = 1, .n = { 3, 0 }, .tcp_cap = 2, .ring_cap = 2,
					  .earn = 2, .fallback = 1, .urgent = 1 } },
	{ "both ways, urgent byte",	{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 1,
					  .urgent = 1 } },
	{ "full close",			{ .n = { 1, 1 }, .tcp_cap = 1, .ring_cap = 1, .earn = 1,
					  .full_close = 1 } },
};

enum { SEEN_BITS = 24, DEPTH_MAX = 4000 };

#define NEXT_SIZE (sizeof(struct world) * STEPS_MAX * (DEPTH_MAX + 1))

static struct {
	uint64_t *seen;		/* hashes of visited states, open addressing; 0 = free */
	uint64_t states, limit;
	struct step path[DEPTH_MAX];
	struct world *next;	/* what may follow each state of the path, as a stack */
	uint8_t fail;
	int depth;
} ex;

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ h >> 32;
}

static uint64_t word(const unsigned char *p, size_t n)
{
	uint64_t v = 0;

	memcpy(&v, p, n);
	return v;
}

/* Four at once: each waits for its own multiplication. */
static uint64_t hash_world(const struct world *w)
{
	uint64_t a = 0x243f6a8885a308d3ull, b = 0x13198a2e03707344ull, c = 0xa4093822299f31d0ull,
		 d = 0x082efa98ec4e6c89ull;
	const unsigned char *p = (const unsigned char *)w, *end = p + sizeof(*w);

	for (; end - p >= 32; p += 32) {
		a = mix(a, word(p, 8));
		b = mix(b, word(p + 8, 8));
		c = mix(c, word(p + 16, 8));
		d = mix(d, word(p + 24, 8));
	}
	for (; p < end; p += 8)
		a = mix(a, word(p, end - p < 8 ? (size_t)(end - p) : 8));
	a = mix(mix(mix(a, b), c), d);
	return a ? a : 1;
}

enum { SEEN_MASK = (1 << SEEN_BITS) - 1 };

/* Returns true if the state of that hash is new. */
static bool see(uint64_t h)
{
	uint64_t mask = SEEN_MASK;

	for (uint64_t i = h & mask;; i = (i + 1) & mask) {
		if (ex.seen[i] == h)
			return false;
		if (!ex.seen[i]) {
			ex.seen[i] = h;
			ex.states++;
			return true;
		}
	}
}

/* What no later step depends on is cleared, so that equal futures are one state. */
static void forget(struct world *w)
{
	for (int d = 0; d < 2; d++) {
		struct dir *x = &w->d[d];

		x->tx.delta = x->rx.delta = 0;
		x->tcp.put = x->tcp.taken = 0;
		if (x->tx.state < CUT_TX_CUT_SENT)
			x->tx.resend = 0;
		if (x->rx.state < CUT_RX_RING)
			x->rx.frozen_at = x->rx.back_at = 0;
	}
}

/* All that may follow a state are made before the first is looked up: each look is a miss in the
 * cache, and they are under way together. */
static bool explore(const struct world *w, struct world *next, int depth)
{
	struct step s[STEPS_MAX];
	uint64_t h[STEPS_MAX];
	int n, must = 0;

	ex.depth = depth;
	if (ex.states > ex.limit || depth >= DEPTH_MAX) {
		ex.fail = FAIL_ENDLESS;
		return false;
	}
	n = world_steps(w, s);
	for (int i = 0; i < n; i++)
		must += !step_optional[s[i].kind];
	if (!must && !world_done(w)) {
		ex.fail = FAIL_STUCK;
		return false;
	}
	for (int i = 0; i < n; i++) {
		memcpy(&next[i], w, sizeof(*w));
		world_do(&next[i], s[i]);
		app_check_peek(&next[i], 0);
		app_check_peek(&next[i], 1);
		forget(&next[i]);
		if (next[i].fail) {
			ex.path[depth] = s[i];
			ex.depth = depth + 1;
			ex.fail = next[i].fail;
			return false;
		}
		h[i] = hash_world(&next[i]);
		__builtin_prefetch(&ex.seen[h[i] & SEEN_MASK], 1);
	}
	for (int i = 0; i < n; i++) {
		ex.path[depth] = s[i];
		if (see(h[i]) && !explore(&next[i], next + n, depth + 1))
			return false;
	}
	return true;
}

static void print_path(const struct small *sm)
{
	struct world w;

	world_init(&w, &sm->c);
	for (int i = 0; i < ex.depth; i++) {
		world_print(&w, ex.path[i]);
		world_do(&w, ex.path[i]);
	}
	world_print(&w, (struct step){ .kind = S_WRITE, .n = 0 });
}

int search_exhaustive(bool quiet, const char **ret_name, uint8_t *ret_fail)
{
	uint64_t total = 0;
	int failed = 0;

	/* On huge pages: a look is a miss in the cache, and need not be one in the TLB, too. */
	ex.seen = aligned_alloc(2 << 20, sizeof(*ex.seen) << SEEN_BITS);
	if (!ex.seen)
		return -1;
	madvise(ex.seen, sizeof(*ex.seen) << SEEN_BITS, MADV_HUGEPAGE);
	ex.next = mmap(NULL, NEXT_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ex.next == MAP_FAILED)
		return -1;
	ex.limit = (1ull << SEEN_BITS) / 4 * 3;
	for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]) && !failed; i++) {
		struct world w;

		memset(ex.seen, 0, sizeof(*ex.seen) << SEEN_BITS);
		ex.states = 0;
		ex.fail = FAIL_NONE;
		world_init(&w, &smalls[i].c);
		failed = see(hash_world(&w)) && !explore(&w, ex.next, 0);
		total += ex.states;
		if (!quiet)
			printf("%-26s %9llu states  %s\n", smalls[i].name,
			       (unsigned long long)ex.states, fail_name[ex.fail]);
		if (failed) {
			*ret_name = smalls[i].name;
			*ret_fail = ex.fail;
			if (!quiet)
				print_path(&smalls[i]);
		}
	}
	if (!quiet)
		printf("%-26s %9llu states\n", "all", (unsigned long long)total);
	munmap(ex.next, NEXT_SIZE);
	free(ex.seen);
	return failed;
}

/* ---- a hostile peer ------------------------------------------------------------------- */

static uint64_t nasty(uint64_t near)
{
	static const uint64_t edge[] = { 0, 1, UINT32_MAX - 1, UINT32_MAX, UINT64_MAX - 1,
					 UINT64_MAX };

	return below(3) ? near + below(5) - 2 : edge[below(6)];
}

static bool sane_tx(const struct cut_tx *m, const struct cut_out *o)
{
	return m->state < CUT_TX_STATES && m->credit <= m->wr && m->cut_at <= m->wr &&
	       m->resend <= m->wr && m->epoch && o->n < CUT_ACT_MAX &&
	       (m->state != CUT_TX_RESENDING || m->resend >= m->cut_at);
}

static bool sane_rx(const struct cut_rx *m, const struct cut_out *o)
{
	return m->state < CUT_RX_STATES && m->epoch && o->n < CUT_ACT_MAX &&
	       (m->state != CUT_RX_FROZEN || m->frozen_at <= m->rd);
}

/* Random events with random values: nothing but bad, ignored or a sane state may come of it. */
int search_hostile(uint64_t seed, uint64_t count)
{
	uint64_t bad = 0, ignored = 0;

	rng_state = seed;
	for (uint64_t i = 0; i < count; i++) {
		struct cut_tx tx, tx0;
		struct cut_rx rx, rx0;
		struct cut_out o;

		cut_tx_init(&tx);
		cut_rx_init(&rx);
		for (int k = 0; k < 60; k++) {
			unsigned ev = below(CUT_EV_MAX + 2);

			if (cut_tx_on_tcp(&tx) || cut_tx_on_ring(&tx))
				tx.wr += below(3);
			tx0 = tx;
			cut_tx_step(&tx, ev, (uint32_t)nasty(tx.epoch), nasty(tx.wr), &o);
			bad += o.bad;
			ignored += o.ignored;
			if (!sane_tx(&tx, &o) || (o.bad && memcmp(&tx, &tx0, sizeof(tx)))) {
				printf("hostile: sender half broken by %s\n", cut_ev_name(ev));
				return 1;
			}
			rx.rd += below(3);
			rx0 = rx;
			ev = below(CUT_EV_MAX + 2);
			cut_rx_step(&rx, ev, (uint32_t)nasty(rx.epoch), nasty(rx.rd), &o);
			bad += o.bad;
			ignored += o.ignored;
			if (!sane_rx(&rx, &o) || (o.bad && memcmp(&rx, &rx0, sizeof(rx)))) {
				printf("hostile: receiver half broken by %s\n", cut_ev_name(ev));
				return 1;
			}
		}
	}
	printf("hostile: %llu runs, %llu events called bad, %llu ignored\n",
	       (unsigned long long)count, (unsigned long long)bad, (unsigned long long)ignored);
	return 0;
}
