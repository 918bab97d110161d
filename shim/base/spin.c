/*
 * spin.c - how long to poll before sleeping.
 *
 * A wake-up costs tens of microseconds, so a waiter whose peer answers soon should not sleep.
 * But a spinner that has no CPU to spare keeps the very thread from running that it waits for.
 * What is decided by that, and its bounds: spin_rule.h. How it is observed, without clocks on the
 * hot path:
 *   hit_rate  per waiter: up by much when a spin was answered, down by a little when not;
 *   yield  while spinning, sched_yield() is called every few microseconds; if it takes long,
 *          another thread had use for this CPU: perhaps the very peer. To sleep and be woken on the
 *          same CPU costs less than to spin until the yield: 2.8 us a round trip against 5.7 (TCP
 *          4.4). Who computes instead keeps the CPU for a whole slice, a millisecond or more.
 * On RDMA it is mostly the device's driver (its softirq, its workers) that had use for it, for
 * the very message that is waited for: there ("patient") the spin goes on, and only one that
 * ends without an answer counts as crowded, for one sleep at first. A yield takes long beside
 * what it waits for if the device is software, so there are fewer. Thread-safety: all state is
 * per caller; a lost update of the word does no harm.
 */
#include "base/spin.h"

#include <sched.h>

#include "base/seen.h"
#include "base/shim.h"
#include "base/spin_rule.h"
#include "base/sys.h"
#include "policy/stat.h"

#define YIELD_EVERY_NS 2000
#define YIELD_PATIENT_NS 10000

static uint64_t ticks(void)
{
#ifdef ARCH_TICKS
	return arch_ticks();
#else
	return now_ns();
#endif
}

/* Ticks per microsecond, measured once against the clock over at least 20 us. */
static uint64_t tick_rate(void)
{
	static _Atomic uint64_t rate;
	uint64_t r = atomic_load_explicit(&rate, memory_order_relaxed);

	if (!r) {
		uint64_t n0 = now_ns(), t0 = ticks(), n1;
		int looks = 0;

		do
			n1 = now_ns();
		while (n1 - n0 < 20000 && ++looks < 100000);
		/* A clock that stands still is a program's or a preloaded library's, for tests. */
		r = n1 > n0 ? (ticks() - t0) * 1000 / (n1 - n0) : 1000;
		if (!r)
			r = 1;
		atomic_store(&rate, r);
	}
	return r;
}

#define YIELD_LONG_NS 1500

bool spin_cpu_spare(void)
{
	uint64_t t = now_ns();

	sys(SYS_sched_yield);
	return now_ns() - t < YIELD_LONG_NS;
}

static uint64_t spin_limit(bool net)
{
	const struct policy_tunables *t = shim_tunables();

	return net && t->spin && t->spin < t->rdma_spin ? t->rdma_spin : t->spin;
}

static uint64_t yield_ticks(bool patient, uint64_t rate)
{
	return (patient ? YIELD_PATIENT_NS : YIELD_EVERY_NS) * rate / 1000;
}

bool spin_begin(struct spin *sp, _Atomic uint32_t *hit_rate, bool net)
{
	uint32_t w = atomic_load_explicit(hit_rate, memory_order_relaxed), was = w;
	uint64_t limit = spin_limit(net), us = spin_rule_wait(&w, limit);

	SEEN("spin", hit_rate, "wait", limit, was, us);
	if (w != was)
		atomic_store_explicit(hit_rate, w, memory_order_relaxed);
	if (!us)
		return false;
	sp->end_tsc = ticks() + us * tick_rate();
	sp->hit_rate = hit_rate;
	sp->patient = net;
	sp->crowd = false;
	sp->next_yield = ticks() + yield_ticks(net, tick_rate());
	return true;
}

static void crowded(_Atomic uint32_t *hit_rate, uint32_t first, uint64_t lost_us)
{
	uint32_t w = atomic_load_explicit(hit_rate, memory_order_relaxed);
	uint32_t now = spin_rule_crowded(w, first, lost_us);

	SEEN("spin", hit_rate, "crowded", first, lost_us, now);
	atomic_store_explicit(hit_rate, now, memory_order_relaxed);
}

bool spin_again(struct spin *sp)
{
	uint64_t t;

	/* a look at a completion queue takes longer than a pause does, and an emulated processor
	 * long for a pause */
	if (!sp->patient)
		arch_pause();
	t = ticks();
	if (t >= sp->end_tsc) {
		if (sp->crowd)
			crowded(sp->hit_rate, SPIN_LEAVE_PATIENT, 0);
		return false;
	}
	if (t >= sp->next_yield) {
		uint64_t us = tick_rate();

		sys(SYS_sched_yield);
		sp->next_yield = ticks();
		/* Somebody else ran: what we wait for may be there now; look once more, then
		 * sleep. */
		if (sp->next_yield - t > YIELD_LONG_NS * us / 1000) {
			if (sp->patient) {
				sp->crowd = true;
			} else {
				sp->end_tsc = sp->next_yield;
				crowded(sp->hit_rate, SPIN_LEAVE_FIRST, (sp->next_yield - t) / us);
			}
		}
		sp->next_yield += yield_ticks(sp->patient, us);
	}
	return true;
}

static void learn(_Atomic uint32_t *hit_rate, bool won)
{
	uint32_t w = atomic_load_explicit(hit_rate, memory_order_relaxed);
	uint32_t now = spin_rule_learned(w, won);

	SEEN("spin", hit_rate, "learned", won, 0, now);
	atomic_store_explicit(hit_rate, now, memory_order_relaxed);
}

void spin_end(_Atomic uint32_t *hit_rate, bool won)
{
	learn(hit_rate, won);
	if (won)
		stat_add(STAT_spins_won, 1);
}

void spin_slept(_Atomic uint32_t *hit_rate, uint64_t ns, bool net)
{
	uint64_t limit = spin_limit(net);

	SEEN("spin", hit_rate, "slept", ns, limit, spin_rule_short(ns, limit));
	if (spin_rule_short(ns, limit))
		learn(hit_rate, true);
}
