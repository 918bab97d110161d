/*
 * test_gpu_ring.c - room for snapshots: given out in turn, what is held is stepped over, and
 * who is in nobody's way any more goes first. The driver's copies are complete or not, as the
 * test says.
 *
 * LINK: shim/gpu/send.c shim/gpu/range.c shim/gpu/state.c shim/gpu/busy.c shim/gpu/deferred.c
 */
#include <check.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../../policy/log.h"
#include "../../shim/gpu/hooks.h"
#include "../../shim/gpu/learn.h"
#include "../../shim/gpu/net.h"
#include "../../shim/gpu/range.h"
#include "../../shim/gpu/take.h"
#include "../../shim/gpu/track.h"
#include "../../shim/base/shim.h"
#include "../../shim/base/event.h"
#include "../../shim/conn/stream.h"

#define MB (1024 * 1024ul)
#define SIZE (16 * MB)

bool shim_on = true;
_Atomic int shim_pid;
_Atomic(const struct policy_tunables *) shim_tun;
_Thread_local struct thread_signals thread_signals __attribute__((tls_model("initial-exec")));

static bool busy[3 * RANGES + 1];	/* by the number of the record's event */
static enum outcome outcomes[RANGES];
static int learned, filled;
static bool alone = true;	/* nobody has pages pinned */
static bool much_written;

void critical_done(void) {}
void lock_slow(struct lock *l) { (void)l; }
bool gpu_expected(uintptr_t lo, size_t n, int site)
{
	(void)lo, (void)n, (void)site;
	return false;
}
void gpu_learn(const struct gpu_range *r, enum outcome outcome)
{
	outcomes[r - gpu_ranges] = outcome;
	learned++;
}
void gpu_sending(uintptr_t lo) { (void)lo; }
int gpu_site(struct gpu_from f, size_t n, bool rx) { (void)f, (void)n, (void)rx; return 0; }
void gpu_site_copy(int site, uintptr_t lo, size_t n) { (void)site, (void)lo, (void)n; }
bool gpu_site_dull(int site) { (void)site; return false; }
void gpu_site_not(int site, enum reason why, size_t n) { (void)site, (void)why, (void)n; }
void gpu_site_open(void) {}
void gpu_site_taken(int site, size_t n) { (void)site, (void)n; }
bool gpu_track_begin(uintptr_t lo, uintptr_t hi) { (void)lo, (void)hi; return true; }
bool gpu_track_alone(uintptr_t lo, uintptr_t hi) { (void)lo, (void)hi; return alone; }
size_t gpu_track_clean(uintptr_t lo, uintptr_t hi, uintptr_t *next) { *next = hi; return hi - lo; }
void gpu_track_fork(bool child) { (void)child; }
bool gpu_track_guards(void) { return false; }
int gpu_track_open(bool guard) { (void)guard; return 0; }
bool gpu_track_pause(uintptr_t lo, uintptr_t hi) { (void)lo, (void)hi; return true; }
bool gpu_track_written(uintptr_t lo, uintptr_t hi, size_t limit)
{
	(void)lo, (void)hi, (void)limit;
	return much_written;
}
void gpu_reads_end(void) {}
void gpu_windows_end(void) {}

static void leave_room(struct gpu_range *r)
{
	filled++;
	r->veils = 0;
}

static int queries, events;

static enum gpu_state query(gpu_event e)
{
	queries++;
	return busy[(uintptr_t)e] ? GPU_UNDER_WAY : GPU_ENDED;
}

static gpu_result create(gpu_event *e)
{
	*e = (gpu_event)(uintptr_t)(RANGES + 1 + events++);
	return 0;
}

static gpu_result record(gpu_event e, gpu_stream st)
{
	(void)st;
	busy[(uintptr_t)e] = true;
	return 0;
}

static const struct gpu_ops driver = {
	.name = "a table", .event = query, .event_new = create, .record = record,
};

static void begin(void)
{
	static struct deferred_ops ops;

	ops = *deferred;
	ops.leave_room = leave_room;
	deferred_serve(&ops);
	gpu = &driver;
	gpu_rings[0] = (struct gpu_ring){ .ctx = (gpu_ctx)1, .size = SIZE, .all = SIZE };
	gpu_rings[1] = (struct gpu_ring){ .ctx = (gpu_ctx)2, .size = SIZE, .all = SIZE };
}

/* A snapshot that is complete and of a buffer, or of none any more. */
static int made(int ring, size_t n, uintptr_t buf)
{
	struct gpu_range *r = range_new(ring, n);

	if (!r)
		return -1;
	range_live(r, buf, buf ? buf + n : 0, r->off);
	return (int)(r - gpu_ranges);
}

static void held(int rec, bool on) { gpu_ranges[rec].pins += on ? 1 : -1; }

static void running(int rec, bool on)
{
	gpu_ranges[rec].ev = (gpu_event)(uintptr_t)(rec + 1);
	gpu_ranges[rec].done = !on;
	busy[rec + 1] = on;
}

/* No two that are in use share a byte, and none is beyond the end. */
static void sound(void)
{
	for (int i = 0; i < RANGES; i++) {
		struct gpu_range *a = &gpu_ranges[i];

		if (a->state == RANGE_FREE)
			continue;
		if (a->off + a->len > gpu_rings[a->ring].size)
			ck_abort_msg("beyond the end");
		for (int k = 0; k < i; k++) {
			struct gpu_range *b = &gpu_ranges[k];

			if (b->state != RANGE_FREE && a->ring == b->ring &&
			    a->off < b->off + b->len && b->off < a->off + a->len)
				ck_abort_msg("a byte of two");
		}
	}
}

/* One that a peer holds costs its own room, and no more. */
START_TEST(held_one)
{
	int first = made(0, 3 * MB, 0x1000000), rec;

	held(first, true);
	for (int i = 0; i < 50; i++) {
		rec = made(0, 4 * MB, 0x2000000 + (uintptr_t)i * 4 * MB);
		ck_assert_int_ge(rec, 0);
		ck_assert_int_ne(rec, first);
		sound();
	}
	ck_assert_uint_eq(gpu_ranges[first].hi - gpu_ranges[first].lo, 3 * MB);	/* still true */
	held(first, false);
}
END_TEST

/* So does one whose copy is still under way; and nothing is released for a place that cannot be
 * had. */
START_TEST(running_one)
{
	int a = made(0, 4 * MB, 0x1000000), b = made(0, 4 * MB, 0x2000000),
	    c = made(0, 4 * MB, 0x3000000), rec;

	running(b, true);
	rec = made(0, 6 * MB, 0x4000000);	/* only behind b */
	ck_assert_int_ge(rec, 0);
	ck_assert_uint_eq(gpu_ranges[rec].off, 8 * MB);
	ck_assert_uint_eq(gpu_ranges[a].hi, 0x1000000 + 4 * MB);
	ck_assert_uint_eq(gpu_ranges[b].hi, 0x2000000 + 4 * MB);
	ck_assert_uint_eq(learned, 1);		/* c made room */
	ck_assert_int_eq(outcomes[c], outcome_EVICTED);
	running(b, false);
	rec = made(0, 6 * MB, 0x5000000);
	ck_assert_uint_eq(gpu_ranges[rec].off, 0);
	sound();
}
END_TEST

/* Nothing fits: none, and everything is as it was. */
START_TEST(full)
{
	int a = made(0, 4 * MB, 0x1000000), b, c;

	ck_assert_ptr_null(range_new(0, SIZE / 2 + 1));
	b = made(0, 4 * MB, 0x2000000);
	c = made(0, 4 * MB, 0x3000000);
	held(b, true);
	running(c, true);
	ck_assert_ptr_null(range_new(0, 6 * MB));
	ck_assert_int_eq(learned, 0);
	ck_assert_uint_eq(gpu_ranges[a].hi, 0x1000000 + 4 * MB);
	ck_assert_int_ge(made(0, 4 * MB, 0x4000000), 0);
	ck_assert_int_ge(made(1, 8 * MB, 0x5000000), 0);	/* the other device's */
	sound();
}
END_TEST

/* More buffers than records: the one whose room would be used next goes, not the newest, and not
 * one that is held. */
START_TEST(many)
{
	int recs[RANGES], rec;

	for (int i = 0; i < RANGES; i++) {
		recs[i] = made(0, 128 * 1024, 0x1000000 + (uintptr_t)i * MB);
		ck_assert_int_ge(recs[i], 0);
	}
	held(recs[0], true);
	rec = made(0, 128 * 1024, 0x9000000);
	ck_assert_int_eq(rec, recs[1]);
	ck_assert_int_eq(learned, 1);
	ck_assert_int_eq(outcomes[rec], outcome_EVICTED);
	ck_assert_uint_eq(gpu_ranges[rec].off, RANGES * 128 * 1024ul);
	/* of no use any more: before others that are */
	ranges_drop(0x1000000 + 40 * MB, 0x1000000 + 41 * MB);
	learned = 0;
	ck_assert_int_eq(made(0, 128 * 1024, 0xa000000), recs[40]);
	ck_assert_int_eq(learned, 0);
	sound();
}
END_TEST

/* Veils whose bytes are in the room are lifted first. */
START_TEST(veiled)
{
	int a = made(0, 8 * MB, 0x1000000);

	gpu_ranges[a].veils = 1;
	ck_assert_int_ge(made(0, 8 * MB, 0x2000000), 0);
	ck_assert_int_eq(filled, 0);
	ck_assert_int_ge(made(0, 8 * MB, 0x3000000), 0);
	ck_assert_int_eq(filled, 1);
}
END_TEST

/* Everything at random. */
START_TEST(random_use)
{
	bool pin[RANGES] = { false };
	int got = 0;

	srand(_i);
	for (int step = 0; step < 20000; step++) {
		int i = rand() % RANGES;

		switch (rand() % 4) {
		case 0:
			if (gpu_ranges[i].state == RANGE_LIVE && pin[i] == gpu_ranges[i].pins) {
				pin[i] = !pin[i] && rand() % 4 == 0;
				gpu_ranges[i].pins = pin[i];
			}
			break;
		case 1:
			if (gpu_ranges[i].state == RANGE_LIVE)
				running(i, rand() % 8 == 0);
			break;
		default:
			i = made(rand() % 2, 1 + (size_t)rand() % (rand() % 4 ? 300000 : 8 * MB),
				 rand() % 4 ? 0x1000000 + (uintptr_t)(rand() % 100) * 16 * MB : 0);
			ck_assert(i < 0 || !pin[i]);
			got += i >= 0;
			sound();
		}
	}
	ck_assert_int_gt(got, 1000);
}
END_TEST

/* What an offer says of a snapshot, by its two words and by the description: the place of the
 * block's own first byte, also when a neighbour has taken pages from the buffer's beginning, and
 * while others hold the snapshot. */
START_TEST(place_of_a_block)
{
	static const struct policy_tunables on = { .device = 1 };
	const uintptr_t buf = 0x1000000, p = buf + 300000;
	struct gpu_ref ref[3];
	struct gpu_desc d;
	int first, rec;

	atomic_store(&shim_tun, &on);
	gpu_rings[0].id = 99;
	first = made(0, MB, 0x8000000);
	rec = made(0, 2 * MB, buf);
	for (int i = 0; i < 3; i++) {
		ck_assert(gpu_find((void *)p, MB, &ref[i]));
		memcpy(&d, (void *)(uintptr_t)ref[i].desc, sizeof d);
		ck_assert_uint_eq(ref[i].len, MB);
		ck_assert_uint_eq(ref[i].ring, 99);
		ck_assert_uint_eq(d.ring_id, 99);
		ck_assert_uint_eq(ref[i].at, gpu_ranges[rec].off + 300000);
		ck_assert_uint_eq(d.off + (p - d.host), ref[i].at);
		if (i == 1)
			gpu_unref(&ref[0], false);
		range_watch(&gpu_ranges[first], buf - MB, buf + 65536 * (unsigned)(i + 1));
		ck_assert_uint_eq(gpu_ranges[rec].lo, buf + 65536 * (unsigned)(i + 1));
	}
	gpu_unref(&ref[1], false);
	gpu_unref(&ref[2], false);
	ck_assert_uint_eq(gpu_ranges[rec].pins, 0);
}
END_TEST

/* Somebody has pages of the process pinned: the buffer's own bytes are sent. */
START_TEST(pinned_by_others)
{
	static const struct policy_tunables on = { .device = 1 };
	const uintptr_t buf = 0x1000000;
	struct gpu_ref ref;
	int rec;

	atomic_store(&shim_tun, &on);
	rec = made(0, 2 * MB, buf);
	alone = false;
	ck_assert(!gpu_find((void *)buf, MB, &ref));
	ck_assert_uint_eq(ref.len, MB);
	ck_assert_int_eq(gpu_ranges[rec].why, REASON_DEVICE_UNWATCHED);
	ck_assert(!gpu_ranges[rec].sent);
	gpu_ranges[rec].veiled = true;		/* nobody can have pinned those since */
	ck_assert(gpu_find((void *)buf, MB, &ref));
	gpu_unref(&ref, false);
	gpu_ranges[rec].veiled = false;
	alone = true;
	ck_assert(gpu_find((void *)buf, MB, &ref));
	gpu_unref(&ref, true);
}
END_TEST

/* It goes out part by part, and others are written meanwhile: that is asked about each time that
 * a fourth has gone. */
START_TEST(sums_are_found_out)
{
	static const struct policy_tunables on = { .device = 1 };
	const uintptr_t buf = 0x1000000;
	struct gpu_ref ref;
	int rec;

	atomic_store(&shim_tun, &on);
	rec = made(0, 8 * MB, buf);
	much_written = true;
	for (uintptr_t i = 0; i < 2; i++) {
		ck_assert(gpu_find((void *)(buf + i * MB), MB, &ref));
		gpu_unref(&ref, true);
	}
	ck_assert(!gpu_find((void *)(buf + 2 * MB), MB, &ref));
	ck_assert_uint_eq(ref.len, MB);
	ck_assert_uint_eq(gpu_ranges[rec].hi, 0);
	ck_assert_int_eq(outcomes[rec], outcome_HARM);
	much_written = false;
	rec = made(0, 8 * MB, buf);
	for (uintptr_t i = 0; i < 8; i++) {
		ck_assert(gpu_find((void *)(buf + i * MB), MB, &ref));
		gpu_unref(&ref, true);
	}
	ck_assert_uint_ne(gpu_ranges[rec].hi, 0);
}
END_TEST

static bool rec_mark(struct gpu_range *r, gpu_stream st)
{
	uint64_t turn;
	bool ok = range_record(r, st, &turn);

	if (ok)
		range_marked(r, st, turn);
	return ok;
}

/* Records that something in a stream uses; the last argument: their bytes come in it, and
 * nothing else has used them. */
static int used_in(int ring, gpu_stream st, bool comes)
{
	int rec = made(ring, 64 * 1024, 0);

	ck_assert_int_ge(rec, 0);
	ck_assert(comes ? range_comes(&gpu_ranges[rec], st) : rec_mark(&gpu_ranges[rec], st));
	return rec;
}

static void ended(int rec) { busy[(uintptr_t)range_last(&gpu_ranges[rec])] = false; }

/* What is behind something that has ended in its stream need not be asked about; in another
 * stream, of another device or before it, it must. */
START_TEST(order_of_a_stream)
{
	gpu_stream st = (gpu_stream)0x1000, other = (gpu_stream)0x2000;
	int a = used_in(0, st, true), b = used_in(0, other, true), c = used_in(1, st, false),
	    d = used_in(0, st, true), e = used_in(0, st, false);
	int f = used_in(0, st, true);

	rec_mark(&gpu_ranges[d], st);	/* the last of all: no more by its coming */
	ended(e);
	ck_assert(range_ended(&gpu_ranges[e]));
	ck_assert_int_eq(queries, 1);
	ck_assert(range_ended(&gpu_ranges[a]));
	ck_assert_int_eq(queries, 1);
	ck_assert(!range_ended(&gpu_ranges[b]));
	ck_assert(!range_ended(&gpu_ranges[c]));
	ck_assert(!range_ended(&gpu_ranges[d]));
	ck_assert(!range_ended(&gpu_ranges[f]));
	ck_assert_int_eq(queries, 5);
	range_stream_gone(st);		/* and another gets its name */
	ended(d);
	ck_assert(range_ended(&gpu_ranges[d]));
	ck_assert(!range_ended(&gpu_ranges[f]));
}
END_TEST

/* The GPU path is one vendor's: what another's hooks say is nothing to it. */
START_TEST(one_vendor)
{
	static const struct gpu_ops other = { .name = "another" };

	atomic_store(&gpu_path, GPU_PATH_ON);
	ck_assert(gpu_path_on(&driver));
	ck_assert(!gpu_path_on(&other));
	gpu_context_gone(&other);
	ck_assert(gpu_path_on(&driver));
	gpu_context_gone(&driver);
	ck_assert(!gpu_path_on(&driver));
}
END_TEST

/* Two threads put something into one stream at a time: nobody knows in which order. */
START_TEST(order_unknown)
{
	gpu_stream st = (gpu_stream)0x1000;
	int a = made(0, 64 * 1024, 0), b = made(0, 64 * 1024, 0);
	uint64_t ta, tb;

	ck_assert(range_record(&gpu_ranges[a], st, &ta));
	ck_assert(range_record(&gpu_ranges[b], st, &tb));
	range_marked(&gpu_ranges[a], st, ta);
	range_marked(&gpu_ranges[b], st, tb);
	ended(b);
	ck_assert(range_ended(&gpu_ranges[b]));
	ck_assert(!range_ended(&gpu_ranges[a]));
}
END_TEST

/* A thread's own stream has the name of every thread's. */
START_TEST(streams_without_names)
{
	for (uintptr_t st = 0; st <= (uintptr_t)GPU_STREAM_THREAD; st++) {
		int a = used_in(0, (gpu_stream)st, false), b = used_in(0, (gpu_stream)st, false);

		ended(b);
		ck_assert(range_ended(&gpu_ranges[b]));
		ck_assert(!range_ended(&gpu_ranges[a]));
	}
}
END_TEST

/* All records in use, most of them for nothing any more: one question makes room for many. */
START_TEST(youngest_first)
{
	int recs[RANGES];

	for (int i = 0; i < RANGES; i++)
		recs[i] = used_in(0, (gpu_stream)0x1000, i % 2);
	for (int i = 0; i < RANGES; i++)
		ended(recs[i]);
	for (int i = 0; i < RANGES; i++) {
		range_spare();
		ck_assert_int_ge(used_in(0, (gpu_stream)0x1000, false), 0);
	}
	ck_assert_int_eq(queries, 1);
	range_spare();		/* the youngest has not ended, nor has any: none is free */
	for (int i = 0; i < RANGES; i++)
		ck_assert_int_ne(gpu_ranges[i].state, RANGE_FREE);
	ended(recs[0]);
	range_spare();
	ck_assert_int_eq(gpu_ranges[recs[0]].state, RANGE_FREE);
	sound();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gpu_ring");
	TCase *t = tcase_create("gpu_ring");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, begin, NULL);
	tcase_add_test(t, held_one);
	tcase_add_test(t, place_of_a_block);
	tcase_add_test(t, pinned_by_others);
	tcase_add_test(t, sums_are_found_out);
	tcase_add_test(t, order_of_a_stream);
	tcase_add_test(t, one_vendor);
	tcase_add_test(t, order_unknown);
	tcase_add_test(t, streams_without_names);
	tcase_add_test(t, youngest_first);
	tcase_add_test(t, running_one);
	tcase_add_test(t, full);
	tcase_add_test(t, many);
	tcase_add_test(t, veiled);
	tcase_add_loop_test(t, random_use, 1, 6);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
