/*
 * spin.c - how long to poll before sleeping.
 *
 * A wake-up costs tens of microseconds, so a waiter whose peer answers soon should not sleep.
 * But a spinner that has no CPU to spare keeps the very thread from running that it waits for.
 * Two feedbacks decide, without clocks on the hot path:
 *   luck   per waiter: 0..255, up by much when a spin was answered, down by a little when not;
 *          the limit is the policy's `spin` scaled by it, so an idle program stops spinning.
 *   yield  while spinning, sched_yield() is called every few microseconds; if it takes long,
 *          another thread had use for this CPU: perhaps the very peer. The spin ends, and the waiter's next ones are
 *          sleeps, 16 at first and twice as many each time that it happens again. To sleep and be woken on the same CPU
 *          costs less than to spin until the yield: 2.8 us a round trip against 5.7 (TCP 4.4).
 *          Who computes instead keeps the CPU for a whole slice, a millisecond or more: then it is as many sleeps as make that
 *          small beside what a wait costs, SLEEPS_PER_US for each microsecond.
 * On RDMA it is mostly the device's driver (its softirq, its workers) that had use for it, for the very message that is waited
 * for: there ("patient") the spin goes on, and only one that ends without an answer counts as crowded, for one sleep at first. A yield takes
 * long beside what it waits for if the device is software, so there are fewer.
 * The caller's word: bits 0-8 luck, bits 9-12 how often it was crowded, the rest how many spins to leave out.
 * Thread-safety: all state is per caller; a lost update of the word does no harm.
 */
#include "base/spin.h"

#include <sched.h>

#include "base/shim.h"
#include "base/sys.h"
#include "policy/stat.h"

#define LUCK_START 128
#define YIELD_EVERY_NS 2000
#define YIELD_PATIENT_NS 10000
#define LUCK(w)    ((w) & 0x1ff)
#define CROWD(w)   ((w) >> 9 & 15)
#define LEAVE(w)   ((w) >> 13)
#define LEAVE_MAX  0x7ffffu
#define LEAVE_FIRST 16
#define LEAVE_PATIENT 1
#define SLICE_US   1000		/* less is a peer that had work to do */
#define SLEEPS_PER_US 4		/* a wait takes some 5 us then, so that no more than a twentieth of the time goes so */
#define WORD(luck, crowd, leave) ((luck) | (crowd) << 9 | (leave) << 13)

static uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
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

static uint64_t yield_ticks(bool patient, uint64_t rate) { return (patient ? YIELD_PATIENT_NS : YIELD_EVERY_NS) * rate / 1000; }

bool spin_begin(struct spin *sp, _Atomic uint32_t *luck, bool net)
{
	uint32_t w = atomic_load_explicit(luck, memory_order_relaxed);
	uint64_t limit = spin_limit(net), l = LUCK(w);

	if (!limit)
		return false;
	if (LEAVE(w)) {
		atomic_store_explicit(luck, WORD(LUCK(w), CROWD(w), LEAVE(w) - 1), memory_order_relaxed);
		return false;
	}
	if (!l)		/* fresh: 0 means not yet known */
		l = LUCK_START;
	limit = limit * l / 256;
	if (limit < 2)
		return false;
	sp->end_tsc = ticks() + limit * tick_rate();
	sp->luck = luck;
	sp->patient = net;
	sp->crowd = false;
	sp->next_yield = ticks() + yield_ticks(net, tick_rate());
	return true;
}

/* first: as how many sleeps it counts the first time. */
static void crowded(_Atomic uint32_t *luck, uint32_t first, uint64_t lost_us)
{
	uint32_t w = atomic_load_explicit(luck, memory_order_relaxed), n = CROWD(w), leave = first << n;

	if (lost_us > LEAVE_MAX / SLEEPS_PER_US)
		lost_us = LEAVE_MAX / SLEEPS_PER_US;
	if (lost_us >= SLICE_US && leave < lost_us * SLEEPS_PER_US)
		leave = (uint32_t)lost_us * SLEEPS_PER_US;
	atomic_store_explicit(luck, WORD(LUCK(w), n < 8 ? n + 1 : 8, leave), memory_order_relaxed);
}

bool spin_again(struct spin *sp)
{
	uint64_t t;

	if (!sp->patient)	/* a look at a completion queue takes longer than a pause does, and an emulated processor long for a pause */
		__builtin_ia32_pause();
	t = ticks();
	if (t >= sp->end_tsc) {
		if (sp->crowd)
			crowded(sp->luck, LEAVE_PATIENT, 0);
		return false;
	}
	if (t >= sp->next_yield) {
		uint64_t us = tick_rate();

		sys(SYS_sched_yield);
		sp->next_yield = ticks();
		/* Somebody else ran: what we wait for may be there now; look once more, then sleep. */
		if (sp->next_yield - t > YIELD_LONG_NS * us / 1000) {
			if (sp->patient) {
				sp->crowd = true;
			} else {
				sp->end_tsc = sp->next_yield;
				crowded(sp->luck, LEAVE_FIRST, (sp->next_yield - t) / us);
			}
		}
		sp->next_yield += yield_ticks(sp->patient, us);
	}
	return true;
}

static void learn(_Atomic uint32_t *luck, bool won)
{
	uint32_t w = atomic_load_explicit(luck, memory_order_relaxed), l = LUCK(w), n = CROWD(w);

	if (!l)
		l = LUCK_START;
	if (won)
		l = l + 32 > 256 ? 256 : l + 32;
	else
		l = l > 16 ? l - l / 8 : 16;
	if (won && n && !LEAVE(w))	/* one that was answered while nobody else wanted the CPU */
		n--;
	atomic_store_explicit(luck, WORD(l, n, LEAVE(w)), memory_order_relaxed);
}

void spin_end(_Atomic uint32_t *luck, bool won)
{
	learn(luck, won);
	if (won)
		stat_add(STAT_spins_won, 1);
}

void spin_slept(_Atomic uint32_t *luck, uint64_t ns, bool net)
{
	/* Half of such a short sleep was the wake-up itself: a peer that busy is worth a spin. */
	if (ns < spin_limit(net) * 2000)
		learn(luck, true);
}
