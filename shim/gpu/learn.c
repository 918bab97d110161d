/*
 * learn.c - what was learned: of ranges of host memory, whether what is copied there is sent (or
 * what is received there is copied to a device), and of the places in the program that copy. And
 * what became of each place's bytes, for rdmastat.
 *
 * A snapshot costs little, but every page of a watched buffer that the CPU then writes costs a
 * fault: more than what is saved on several pages. So a range is learned when it was used as
 * hoped, and given up at the first surprise, each time for longer: for four times as many uses,
 * or, where many pages were written, sixteen. A call site whose ranges were all used as hoped is
 * trusted with its next range from the start; one that never sends is looked at every 16th time
 * only.
 *
 * A call site is a stack. It is unwound (glibc's backtrace(): the unwinder comes in with the
 * GPU path) when a thread is there for the first time and once in a while; else its stack pointer
 * and return address tell it. A mistake there makes learning slower, never a byte wrong.
 * libunwind is not used: it keeps a pipe under two descriptors of its own, and when the program
 * has closed those and opened others in their place, it reads and writes the program's.
 *
 * Lock: gpu_lock for everything but the counters. None is held while the loader is asked.
 */
#include "gpu/learn.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <string.h>

#include "base/shim.h"
#include "gpu/state.h"
#include "policy/stat.h"
#include "policy/words.h"

enum { SITE_SMALL, SITE_REST = 2, SITE_FIRST = 4 };	/* + 1 for those that copy to the device */
#define SITES 64
#define FRAMES 16
#define SHOWN 4
#define TRUST 4			/* uses in a row after which a site is trusted */
#define DULL 64			/* copies without any use */

static struct site {
	uint64_t hash;
	struct stat_call_site *_Atomic stat;
	_Atomic uint32_t idle;	/* copies since the last use */
	uint8_t trust;
	bool rx;
} sites[SITES];
static _Atomic int ncall_sites = SITE_FIRST;

/* ---- which one ---- */

void gpu_site_open(void)
{
	void *v[2];

	backtrace(v, 2);	/* loads the unwinder, while no lock is held */
}

static uint64_t hash_of(void *const *v, int n)
{
	uint64_t h = 14695981039346656037ull;

	for (int i = 0; i < n; i++)
		h = (h ^ (uintptr_t)v[i]) * 1099511628211ull;
	return h;
}

/* The functions of these say nothing about the program. */
static bool telling(const char *base)
{
	for (const char *const *of = gpu->libraries; *of; of++)
		if (!strncmp(base, *of, strlen(*of)))
			return false;
	return strncmp(base, "libc.so", 7) && strncmp(base, "libpthread", 10);
}

static void describe(void *const *v, int n, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = 0;
	for (int i = 0, shown = 0; i < n && shown < SHOWN && at + 1 < len; i++) {
		const char *base = "?";
		Dl_info d;

		if (dladdr(v[i], &d) && d.dli_fname) {
			base = strrchr(d.dli_fname, '/');
			base = base ? base + 1 : d.dli_fname;
			if (!telling(base) && i + 1 < n)
				continue;
			if (d.dli_sname)
				at += fmt_string(buf + at, len - at, "%s%s+0x%zx", shown ? " < "
						 : "", d.dli_sname,
						 (size_t)((char *)v[i] - (char *)d.dli_saddr));
			else
				at += fmt_string(buf + at, len - at, "%s%s+0x%zx", shown ? " < "
						 : "", base,
						 (size_t)((char *)v[i] - (char *)d.dli_fbase));
		} else {
			at += fmt_string(buf + at, len - at, "%s?", shown ? " < " : "");
		}
		shown++;
	}
}

static int site_with(uint64_t hash, bool rx)
{
	for (int i = SITE_FIRST; i < atomic_load(&ncall_sites); i++)
		if (sites[i].hash == hash && sites[i].rx == rx)
			return i;
	return -1;
}

static int site_find(struct gpu_from f, bool rx)
{
	void *v[FRAMES + 8];
	char where[STAT_CALL_SITE_NAME];
	int n = backtrace(v, FRAMES + 8), first = 0, site;
	uint64_t hash;

	while (first < n && v[first] != f.ra)	/* ours */
		first++;
	if (first == n) {
		v[0] = (void *)(uintptr_t)f.ra;
		first = 0;
		n = 1;
	}
	n -= first;
	if (n > FRAMES)
		n = FRAMES;
	hash = hash_of(v + first, n);
	lock_take(&gpu_lock);
	site = site_with(hash, rx);
	lock_give(&gpu_lock);
	if (site >= 0 || atomic_load(&ncall_sites) == SITES)
		return site >= 0 ? site : SITE_REST + rx;
	describe(v + first, n, where, sizeof where);
	lock_take(&gpu_lock);
	site = site_with(hash, rx);
	if (site < 0 && atomic_load(&ncall_sites) < SITES) {
		site = atomic_load(&ncall_sites);
		sites[site].hash = hash;
		sites[site].rx = rx;
		atomic_store(&sites[site].stat, stat_call_site_add(rx, where));
		atomic_store(&ncall_sites, site + 1);
	}
	lock_give(&gpu_lock);
	return site >= 0 ? site : SITE_REST + rx;
}

#define UNWIND_EVERY 250
#define DEBT_MOST 512	/* a thread that is never twice in one place is not unwound for ever */

int gpu_site(struct gpu_from f, size_t n, bool rx)
{
	static _Thread_local struct seen { const void *ra, *sp; uint8_t site, left;
					   } seen[16] __attribute__((tls_model("initial-exec")));
	static _Thread_local unsigned debt __attribute__((tls_model("initial-exec")));
	struct seen *e;

	if (n < GPU_PATH_MIN)
		return SITE_SMALL + rx;
	e = &seen[(((uintptr_t)f.ra ^ (uintptr_t)f.sp >> 3) * 0x9e3779b97f4a7c15ull) >> 60];
	if (e->ra == f.ra && e->sp == f.sp && e->left) {
		e->left--;
		debt -= debt > 0;
		return e->site;
	}
	if (debt > DEBT_MOST) {
		debt--;
		return SITE_REST + rx;
	}
	debt += 8;
	*e = (struct seen){ f.ra, f.sp, (uint8_t)site_find(f, rx), UNWIND_EVERY };
	return e->site;
}

bool gpu_site_dull(int site)
{
	unsigned idle = atomic_fetch_add_explicit(&sites[site].idle, 1, memory_order_relaxed);

	return site >= SITE_FIRST && idle >= DULL && idle % 16;
}

/* ---- what became of its bytes ---- */

static struct stat_call_site *stat_of(int site)
{
	static const char *const shared[] = { "(copies of less than 128 KiB)", "(other places)" };
	struct stat_call_site *s = atomic_load_explicit(&sites[site].stat, memory_order_acquire);

	if (s)
		return s;
	lock_take(&gpu_lock);
	s = atomic_load(&sites[site].stat);
	if (!s) {
		s = stat_call_site_add(site & 1, shared[site / 2]);
		atomic_store(&sites[site].stat, s);
	}
	lock_give(&gpu_lock);
	return s;
}

static void count(_Atomic uint64_t *to, uint64_t n)
{
	atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

void gpu_site_copy(int site, uintptr_t lo, size_t n)
{
	struct stat_call_site *s = stat_of(site);

	count(&s->copies, 1);
	count(&s->bytes, n);
	atomic_store_explicit(&s->lo, lo, memory_order_relaxed);
	atomic_store_explicit(&s->hi, lo + n, memory_order_relaxed);
}

void gpu_site_not(int site, enum reason why, size_t n)
{
	struct stat_call_site *s = atomic_load_explicit(&sites[site].stat, memory_order_acquire);

	if (s && n)
		count(&s->why[why], n);
}

void gpu_site_taken(int site, size_t n)
{
	struct stat_call_site *s = atomic_load_explicit(&sites[site].stat, memory_order_acquire);

	if (s)
		count(&s->taken, n);
}

/* stat_call_site.gpu_path; a learned one is eager until it is deferred */
enum { ON_HOST, EAGER, LAZY };

static void site_gpu_path(int site, int gpu_path)
{
	struct stat_call_site *s = atomic_load_explicit(&sites[site].stat, memory_order_acquire);

	if (s)
		atomic_store_explicit(&s->gpu_path, (uint8_t)gpu_path, memory_order_relaxed);
}

/* ---- ranges ---- */

#define CANDS 128
#define NEED_MOST 1024
#define FOR_NOTHING 4		/* snapshots in a row that were sent, but fetched by nobody */
static struct cand {
	uintptr_t lo, hi;
	/* receives, then copies to the device; else copies to the host, then sends */
	bool rx;
	bool learned;
	bool seen;		/* used as hoped since the last copy or receive */
	uint8_t missed;		/* snapshots that were of no use, in a row */
	uint8_t site;		/* of its last copy */
	uint16_t times, need;	/* uses after which it is learned */
	uint16_t shy;		/* that many next ones are not deferred */
	uint8_t regrets;	/* deferred ones that were looked at, in a row */
} cands[CANDS];
static unsigned next_cand;

static struct cand *cand_at(uintptr_t p, bool rx)
{
	for (int i = 0; i < CANDS; i++)
		if (cands[i].lo <= p && p < cands[i].hi && cands[i].rx == rx)
			return &cands[i];
	return NULL;
}

/* The one that starts at lo, made if need be: in the place of one that is not learned, if there
 * is one. */
static struct cand *cand_of(uintptr_t lo, size_t n, bool rx, int site)
{
	struct cand *c = NULL;

	for (int i = 0; i < CANDS; i++)
		if (cands[i].lo == lo && cands[i].rx == rx && cands[i].hi)
			c = &cands[i];
	for (unsigned i = 0; i < CANDS && !c; i++) {
		c = &cands[(next_cand + i) % CANDS];
		if (c->learned && i + 1 < CANDS)
			c = NULL;
		else
			*c = (struct cand){ .lo = lo, .rx = rx, .need = 1 };
		if (c)
			next_cand = (unsigned)(c - cands + 1);
	}
	c->hi = lo + n;
	c->site = (uint8_t)site;
	return c;
}

static void cand_used(struct cand *c)
{
	struct site *s;

	if (!c || c->seen)
		return;
	c->seen = true;
	s = &sites[c->site];
	if (s->trust < TRUST)
		s->trust++;
	if (!c->rx)
		atomic_store_explicit(&s->idle, 0, memory_order_relaxed);
	if (!c->learned && ++c->times >= c->need)
		c->learned = true;
}

bool gpu_expected(uintptr_t lo, size_t n, int site)
{
	struct cand *c = cand_of(lo, n, false, site);

	/* cppcheck-suppress arrayIndexOutOfBoundsCond; site_find() gives those that there are */
	if (!c->times && c->need == 1 && site >= SITE_FIRST && sites[site].trust == TRUST)
		c->learned = true;
	c->seen = false;
	atomic_store_explicit(&gpu_sends, 1, memory_order_relaxed);
	site_gpu_path(site, c->learned ? EAGER : ON_HOST);
	return c->learned;
}

void gpu_sending(uintptr_t lo) { cand_used(cand_at(lo, false)); }

bool gpu_wants_watch(uintptr_t lo, size_t n)
{
	struct cand *c = cand_at(lo, true);

	(void)n;
	if (!c)
		return false;
	c->seen = false;
	atomic_store_explicit(&sites[c->site].idle, 0, memory_order_relaxed);
	site_gpu_path(c->site, c->learned ? EAGER : ON_HOST);
	return c->learned;
}

void gpu_copied_from(uintptr_t lo, size_t n, int site)
{
	cand_used(cand_of(lo, n, true, site));
}

/* What was received and not copied to a device costs little: the second time in a row. */
static bool given_up(struct cand *c, const struct gpu_range *r, enum outcome outcome)
{
	if (outcome == outcome_HARM || (outcome == outcome_OVER && !r->rx && !r->sent))
		return true;
	return ++c->missed >= (r->rx ? 2 : FOR_NOTHING);
}

void gpu_learn(const struct gpu_range *r, enum outcome outcome)
{
	struct cand *c = cand_at(r->lo, r->rx);

	if (!c || !c->learned)
		return;
	if (outcome != outcome_HARM && r->early && !r->used)
		return;
	if (outcome != outcome_HARM && r->used) {
		c->missed = 0;
	} else if (given_up(c, r, outcome)) {
		c->learned = false;
		c->times = c->missed = 0;
		c->need = (uint16_t)(c->need << (outcome == outcome_HARM ? 4 : 2));
		c->need = c->need && c->need < NEED_MOST ? c->need : NEED_MOST;
		sites[c->site].trust = 0;
	}
}

/* ---- is it worth it to put copies off? ---- */

bool gpu_site_may_defer(uintptr_t lo, bool rx)
{
	struct cand *c = cand_at(lo, rx);

	if (!c || !c->learned)
		return false;
	if (!c->shy || shim_tunables()->force_defer)
		return true;
	c->shy--;
	return false;
}

void gpu_site_put_off(uintptr_t lo, bool rx)
{
	struct cand *c = cand_at(lo, rx);

	if (c)
		site_gpu_path(c->site, LAZY);
}

void gpu_site_deferred(uintptr_t lo, bool rx, bool good)
{
	struct cand *c = cand_at(lo, rx);

	if (!c)
		return;
	if (good) {
		c->regrets = 0;
	} else {
		c->shy = (uint16_t)(2u << c->regrets);
		c->regrets += c->regrets < 7;
	}
}
