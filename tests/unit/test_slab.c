/*
 * test_slab.c - memory of streams (shim/conn/stream_slab.c): what is free goes back to the kernel,
 * and threads that come too late, with a pointer of an earlier life, do no harm at any moment: they
 * count in no life but one that they hold, and each lock has one owner.
 *
 * LINK: shim/conn/stream_lock.c shim/base/lock.c
 * LIBS: -Wl,--wrap=stat_trim
 */
#include <check.h>
#include <pthread.h>
#include <sys/mman.h>

#include "../../shim/base/shim.h"
#include "../../shim/conn/holders.h"
#include "../../shim/conn/stream_life.h"
#include "../../shim/conn/stream_slab.h"
#include "suite.h"

/* What happens just before pages go. */
static void (*before)(void *pages, size_t n);

static long call(long n, long a, long b, long c, long d, long e, long f)
{
	if (n == SYS_madvise && before)
		before((void *)a, (size_t)b);
	return sys6(n, a, b, c, d, e, f);
}

#define sys6 call
#include "../../shim/conn/stream_slab.c"
#include "../../shim/conn/stream_plain.c"
#undef sys6

/* What other files have, and is not come to from here: an illegal instruction. */
#define NEVER(name) __asm__(".globl " #name "\n" #name ": ud2");
NEVER(earn_moved) NEVER(earn_will_move) NEVER(fork_child_touch) NEVER(stream_look_for_reset)
NEVER(stream_mark) NEVER(loop_only_other_thread)

bool shim_on = true;
void fork_drop(struct stream *s) { (void)s; }
ssize_t stream_kernel_read(struct stream *s, ssize_t n) { (void)s; return n; }
void loop_post(struct work *w) { (void)stream_of_work(w); }

/* A handler that forked in the middle of it would come back to it in a child with other rows. */
void __real_stat_trim(void);
void __wrap_stat_trim(void)
{
	ck_assert_uint_gt(thread_signals.critical, 0);
	__real_stat_trim();
}

#undef STREAMS
#define STREAMS 3000
static uint32_t top;

static struct stream *begin(void)
{
	struct stream *s = stream_slab_take();

	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(atomic_load(&s->mode), MODE_FREE);
	stream_lock(s);		/* as blank() */
	atomic_store(&s->dead, 0);
	stream_unlock(s);
	stream_slab_begin(s);
	s->row = stat_row_none();
	atomic_store(&s->mode, MODE_NEW);
	if (top <= s->index)
		top = s->index + 1;
	return s;
}

static void end(struct stream *s)
{
	uint32_t gen = atomic_load(&s->gen);

	ck_assert(gen_lives(gen));
	atomic_store(&s->dead, 1);
	stream_try_free(s, gen);	/* or who is counted there does */
}

static size_t resident(void)
{
	unsigned char there;
	size_t n = 0;
	uintptr_t page, last = 0;

	for (uint32_t i = 0; i < top; i++) {
		page = (uintptr_t)stream_at(i) & ~4095ull;
		for (; page < (uintptr_t)(stream_at(i) + 1); page += 4096)
			if (page != last) {
				last = page;
				ck_assert_int_eq(mincore((void *)page, 4096, &there), 0);
				n += there & 1;
			}
	}
	return n * 4096;
}

START_TEST(closed_ones_are_given_back)
{
	static struct stream *s[STREAMS];
	uint32_t gen[STREAMS];
	size_t all;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < STREAMS; i++) {
			s[i] = begin();
			gen[i] = atomic_load(&s[i]->gen);
		}
		all = resident();
		ck_assert_uint_ge(all, STREAMS * sizeof(struct stream));
		for (int i = 0; i < STREAMS; i++)
			end(s[i]);
		ck_assert_uint_le(resident(), all / 2);
		for (int i = 0; i < STREAMS; i++) {
			struct stream *late = s[i];

			ck_assert_uint_ne(atomic_load(&late->gen), gen[i]);
			ck_assert(!stream_plain_tx(late, 0));
			ck_assert(!stream_plain_rx(late, 0));
			ck_assert_ptr_eq(stream_row(late), stat_row_none());
			ck_assert_uint_eq((uint32_t)atomic_load(&late->life), 0);
			ck_assert(stream_try_free(late, atomic_load(&late->gen)));
			bg_look(late);
		}
	}
	ck_assert_uint_le(top, STREAMS + 1);
}
END_TEST

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In random order; the seconds that the ends cost. */
static double begin_and_end(uint32_t n)
{
	static struct stream *s[64000];
	uint32_t x = 1;
	double from;

	for (uint32_t i = 0; i < n; i++)
		s[i] = begin();
	from = cpu();
	for (uint32_t i = n, k; i; i--) {
		x = x * 1664525 + 1013904223;
		k = (x >> 8) % i;
		end(s[k]);
		s[k] = s[i - 1];
	}
	return cpu() - from;
}

/* Whichever go first: a page goes with the last of its own. */
START_TEST(closed_in_any_order)
{
	(void)begin_and_end(STREAMS);
	ck_assert_uint_le(resident(), FREE_MOST * sizeof(struct stream));
}
END_TEST

/* Eight times as many cost about eight times as much, not 64 times. */
START_TEST(many_in_any_order)
{
	double few = begin_and_end(8000);

	ck_assert_double_le(begin_and_end(64000), 24 * few);
}
END_TEST

/* One between two that live keeps its page, and is used again. */
START_TEST(neighbours_stay)
{
	static struct stream *s[STREAMS];
	uint32_t was;

	for (int i = 0; i < STREAMS; i++) {
		s[i] = begin();
		atomic_store(&s[i]->err, i + 1);
	}
	for (int i = 0; i < STREAMS; i++)
		if (i % 8)
			end(s[i]);
	for (int i = 0; i < STREAMS; i += 8) {
		ck_assert(gen_lives(atomic_load(&s[i]->gen)));
		ck_assert_int_eq(atomic_load(&s[i]->err), i + 1);
		ck_assert_int_eq(atomic_load(&s[i]->mode), MODE_NEW);
	}
	was = top;
	for (int i = 0; i < STREAMS; i++)
		if (i % 8)
			s[i] = begin();
	ck_assert_uint_eq(top, was);
	for (int i = 0; i < STREAMS; i++)
		end(s[i]);
}
END_TEST

/* ---- too late ---- */

static struct stream *victim;
static uint32_t victims_gen;
static int gone;

static bool on_them(const void *pages, size_t n, const void *p)
{
	return p >= pages && (const char *)p < (const char *)pages + n;
}

/* Another thread has seen that the victim is a stream on TCP, and goes on now. */
static void counts_late(void *pages, size_t n)
{
	if (!on_them(pages, n, &victim->life))
		return;
	gone++;
	victims_gen = (uint32_t)(atomic_fetch_add(&victim->life, 1ull << PLAIN_TX) >> LIFE_GEN);
}

/* Another would have one of its locks. */
static void locks_late(void *pages, size_t n)
{
	struct lock *of[] = { &victim->rcv.lock, &victim->snd.lock, &victim->reg.lock };

	for (int i = 0; i < 3; i++)
		if (on_them(pages, n, of[i])) {
			gone++;
			ck_assert(!lock_try(of[i]));
		}
}

static void open_and_close_all(void (*opened)(int i), int what)
{
	static struct stream *s[STREAMS];

	gone = 0;
	for (int i = 0; i < STREAMS; i++)
		s[i] = begin();
	victim = s[STREAMS / 4];
	if (opened)
		opened(what);
	for (int i = 0; i < STREAMS; i++)
		end(s[i]);
}

START_TEST(a_count_that_comes_too_late)
{
	struct stream *s;
	uint32_t gen;

	before = counts_late;
	open_and_close_all(NULL, 0);
	before = NULL;
	ck_assert_int_eq(gone, 1);
	ck_assert(!gen_lives(victims_gen));
	do
		s = begin();
	while (s != victim);
	gen = atomic_load(&s->gen);
	ck_assert(stream_plain_tx(s, 0));
	uncount_late(s, PLAIN_TX, victims_gen);
	ck_assert_uint_eq(atomic_load(&s->plain.tx), 1);
	ck_assert_uint_eq(atomic_load(&s->gen), gen);
	stream_plain_tx_leave(s, 0);
	ck_assert_uint_eq(atomic_load(&s->plain.tx), 0);
}
END_TEST

START_TEST(a_lock_that_comes_too_late)
{
	before = locks_late;
	open_and_close_all(NULL, 0);
	before = NULL;
	ck_assert_int_eq(gone, 3);
	for (uint32_t i = 0; i < top; i++) {
		ck_assert(stream_try_lock(stream_at(i)));
		stream_unlock(stream_at(i));
	}
	ck_assert_uint_eq(thread_signals.critical, 0);
}
END_TEST

/* Who has a lock, or an item in an epoll instance, keeps the page. */
static void uses(int i)
{
	if (i == 3)
		atomic_store(&victim->reg.n, 1);
	else
		lock_take(lock_of(victim, i));
	atomic_store(&victim->err, 77);
}

START_TEST(what_is_used_stays)
{
	open_and_close_all(uses, _i);
	ck_assert_int_eq(atomic_load(&victim->err), 77);
	ck_assert_int_eq(atomic_load(&victim->mode), MODE_FREE);
	if (_i < 3)
		lock_give(lock_of(victim, _i));
	ck_assert_uint_eq(thread_signals.critical, 0);
}
END_TEST

/* A lock that is waited for while its page goes. */
static void *waits_for(void *arg)
{
	(void)arg;
	lock_take(&victim->snd.lock);
	lock_give(&victim->snd.lock);
	return NULL;
}

static pthread_t waiter;

static void waited_for(void *pages, size_t n)
{
	if (!on_them(pages, n, &victim->snd.lock))
		return;
	gone++;
	pthread_create(&waiter, NULL, waits_for, NULL);
	while (!atomic_load(&lock_sleepers) || atomic_load(&victim->snd.lock.v) != 2)
		sched_yield();
}

START_TEST(who_waits_is_woken)
{
	before = waited_for;
	open_and_close_all(NULL, 0);
	before = NULL;
	ck_assert_int_eq(gone, 1);
	pthread_join(waiter, NULL);
	ck_assert_uint_eq(lock_sleepers, 0);
}
END_TEST

#define THREADS 3
#define ROUNDS 40
static _Atomic bool over;
static uint32_t inside[STREAMS + 1];	/* each guarded by the lock of that stream */
static _Atomic uint32_t counted, taken;

static void *late(void *arg)
{
	uint32_t x = (uint32_t)(uintptr_t)arg * 2654435761u + 1, i, gen;
	struct stream *s;

	while (!atomic_load(&over)) {
		x = x * 1664525 + 1013904223;
		i = (x >> 8) % STREAMS;
		s = stream_at(i);
		if (x >> 31) {
			if (!stream_plain_tx(s, 0))
				continue;
			gen = atomic_load(&s->gen);
			ck_assert(gen_lives(gen));
			atomic_fetch_add(&counted, 1);
			sched_yield();
			ck_assert_uint_eq(atomic_load(&s->gen), gen);
			stream_plain_tx_leave(s, 0);
		} else {
			lock_take(&s->snd.lock);
			ck_assert_uint_eq(inside[i]++, 0);
			atomic_fetch_add(&taken, 1);
			if (x & 1 << 30)
				sched_yield();
			ck_assert_uint_eq(--inside[i], 0);
			lock_give(&s->snd.lock);
		}
	}
	return NULL;
}

START_TEST(who_comes_too_late)
{
	static struct stream *s[STREAMS];
	pthread_t thread[THREADS];

	for (int i = 0; i < STREAMS; i++)
		s[i] = begin();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, late, (void *)i);
	for (int round = 0; round < ROUNDS || !atomic_load(&counted) || !atomic_load(&taken);
	     round++) {
		for (int i = 0; i < STREAMS; i++)
			end(s[i]);
		for (int i = 0; i < STREAMS; i++)
			s[i] = begin();
	}
	for (int i = 0; i < STREAMS; i++)
		end(s[i]);
	atomic_store(&over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < top; i++) {
		ck_assert_uint_eq((uint32_t)atomic_load(&stream_at(i)->life), 0);
		ck_assert(!gen_lives(atomic_load(&stream_at(i)->gen)));
		ck_assert(stream_try_lock(stream_at(i)));
		stream_unlock(stream_at(i));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slab");
	TCase *t = tcase_create("slab");

	tcase_set_timeout(t, 20);
	suite_add_tcase(s, t);
	tcase_add_test(t, closed_ones_are_given_back);
	tcase_add_test(t, closed_in_any_order);
	tcase_add_test(t, many_in_any_order);
	tcase_add_test(t, neighbours_stay);
	tcase_add_test(t, a_count_that_comes_too_late);
	tcase_add_test(t, a_lock_that_comes_too_late);
	tcase_add_loop_test(t, what_is_used_stays, 0, 4);
	tcase_add_test(t, who_waits_is_woken);
	tcase_add_test(t, who_comes_too_late);
	return run_suite(s);
}
