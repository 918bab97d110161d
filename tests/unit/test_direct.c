/*
 * test_direct.c - a block that is withdrawn while the receiver copies it
 * (shim/conn/stream_direct.c): the copy does not count, whatever it was; one that had ended
 * counts once; the snapshot is released once. And what nobody takes is not offered every time.
 * Both ends are in this process; what the sender does meanwhile is done in place of
 * process_vm_readv(2), or of the copy from the device.
 *
 * LINK: shim/base/usermem.c
 */
#include <check.h>
#include <sys/uio.h>

#include "../../shim/base/sys.h"

static long test_sys(long n, long a, long b, long c, long d, long e, long f);
#undef SYS_ARGS_
#define SYS_ARGS_(n, a, b, c, d, e, f, ...) test_sys((n), (long)(a), (long)(b), (long)(c), \
	(long)(d), (long)(e), (long)(f))
#include "../../shim/base/shim.h"
#include "../../shim/conn/stream_wake.h"
/* A clock of its own: a microsecond for each look. */
static uint64_t test_now(void) { static uint64_t ns; return ns += 1000; }
#define now_ns() test_now()
#define now_us() (test_now() / 1000)
#include "../../shim/link/peer_memory.c"
#include "../../shim/conn/stream_direct.c"

#define N (256 * 1024)

_Thread_local struct thread_signals thread_signals;
void critical_done(void) { }
void lock_slow(struct lock *l) { (void)l; ck_abort_msg("nobody else has a lock"); }
_Atomic int gpu_receives, gpu_live;
_Atomic int shim_pid;
static bool copied;			/* this process is a copy of another's memory */
bool memory_is_ours(void) { return !copied; }

static struct ring_shared sh, back;	/* and the other direction */
static struct link peer_of_tx, peer_of_rx;
static struct stream tx, rx;
static struct stat_row row;
static uint8_t block[N], buffer[N], second[N];
static struct iovec iov = { buffer, N };

static void (*meanwhile)(void);
static long readv_says;			/* a negative errno, or 0: it copies */
static int begun, ended, dropped, release, release_read;
static bool goes_on;			/* copies from the peer's device last beyond the take ... */
static bool read_ends;			/* ... but no longer */
static bool ends_meanwhile;		/* ... than the copy to the buffer */
static bool elsewhere;			/* the next one is in another stream */
static int waited, looks, held;
static uint64_t held_to;

/* What /proc says of us, and of the peer, who is our own process here. */
static struct peer_rights ours, theirs;
static bool unknown;
static int looks_at_rights;
static bool gone;			/* the process that was pinned */

bool peer_rights_look(pid_t pid, struct peer_rights *ret)
{
	ck_assert(!pid || pid == getpid());
	looks_at_rights++;
	*ret = pid ? theirs : ours;
	return !unknown;
}

void fd_number_lock(void) { ck_abort_msg("no link is made"); }
bool fd_may_make(void) { return false; }
int fd_internal_made(int fd, bool counted) { (void)counted; return fd; }
void fd_internal_close(int fd) { (void)fd; }

static long test_sys(long n, long a, long b, long c, long d, long e, long f)
{
	if (n == SYS_ppoll)
		return gone;
	if (n != SYS_process_vm_readv)
		return sys6(n, a, b, c, d, e, f);
	if (meanwhile)
		meanwhile();
	return readv_says ? readv_says
			  : process_vm_readv(getpid(), (void *)b, (unsigned long)c, (void *)d,
					     (unsigned long)e, 0);
}

/* As a receive call does. */
static ssize_t take(const struct iovec *v, int n)
{
	ssize_t r;

	lock_take(&rx.rcv.lock);
	r = direct_read(&rx, v, n);
	lock_give(&rx.rcv.lock);
	return r;
}

static int offers;
static bool takes;

struct event stream_steps;
void stream_wake(struct stream *s) { (void)s; event_ring(&stream_steps); }
static int rung, told;	/* threads that wait for another's block; a sender that has released its
			 * lock */
void event_ring_slow(struct event *e) { (void)e; rung++; }
void stream_consumed(struct stream *s) { ck_assert(s == &rx); told++; }

bool stream_notify_peer(struct stream *s)
{
	if (s != &tx || !direct_offered(&rx.rcv.ring))
		return false;
	offers++;
	if (takes)
		ck_assert_int_eq(take(&iov, 1), N);
	return false;
}

void gpu_overwrite(const struct iovec *v, int n) { (void)v, (void)n; }

void gpu_unref(const struct gpu_ref *ref, bool taken)
{
	ck_assert_int_eq(ref->rec, 7);
	release++;
	release_read += taken;
}

bool gpu_read_over(struct gpu_read *r, bool wait)
{
	waited += wait && r->ev;
	if (r->ev && !read_ends)
		return false;
	r->ev = NULL;
	return true;
}

bool gpu_read_next(struct gpu_read *r, const struct gpu_read *next)
{
	if (r->ev && next->ev && elsewhere)
		return false;
	if (next->ev)
		*r = *next;
	return true;
}

static struct work work_of_rx;
struct work *stream_work_of(const struct stream *s) { return s == &rx ? &work_of_rx : NULL; }
void loop_post(struct work *w)
{
	ck_assert_ptr_eq(w, &work_of_rx);
	looks++;
}

static int soon, not_soon;
void gpu_ref_why(const struct gpu_ref *ref, int reason, bool s)
{
	ck_assert_int_eq(ref->rec, 7);
	ck_assert_int_eq(reason, REASON_DEVICE_NOT_TAKEN);
	soon += s;
	not_soon += !s;
}

bool device_room(struct stream *s) { return s == &tx; }

void device_settle(struct stream *s) { (void)s; }

void device_read(struct stream *s, const struct gpu_ref *ref, uint64_t to)
{
	ck_assert_ptr_eq(s, &tx);
	ck_assert_int_eq(ref->rec, 7);
	ck_assert_uint_eq(ref->len, N);
	held++;
	held_to = to;
}

bool gpu_take_finds(int pid, const struct gpu_offer *o, size_t n, struct gpu_found *f)
{
	(void)pid, (void)o, (void)n, (void)f;
	return true;
}

size_t gpu_take_begin(int pid, const struct gpu_offer *o, struct gpu_found *f, size_t n,
		       const struct iovec *v, int nv, bool early, struct gpu_take *t)
{
	(void)pid, (void)v, (void)nv, (void)f;
	ck_assert_uint_eq(o->desc, 42);
	ck_assert_uint_eq(o->ring, 43);
	ck_assert_uint_eq(o->at, 44);
	ck_assert_uint_eq(o->addr, (uint64_t)(uintptr_t)block);
	*t = (struct gpu_take){ .early = goes_on && early,
				 .read = { goes_on && early ? &rx : NULL, NULL, 0 } };
	begun++;
	if (meanwhile)
		meanwhile();
	return n;
}

int gpu_take_end(struct gpu_take *t, const struct iovec *v, int nv)
{
	(void)v, (void)nv;
	if (ends_meanwhile)
		t->read.ev = NULL;
	ended++;
	memcpy(buffer, block, N);
	return 0;
}

void gpu_take_drop(struct gpu_take *t) { (void)t; dropped++; }

/* As offer() does, inside a send call. */
static void offered(uint64_t dev)
{
	tx.direct.len = N;
	atomic_store(&sh.offer_dev, dev);
	atomic_store(&sh.offer_ring, 43);
	atomic_store(&sh.offer_at, 44);
	atomic_store(&sh.offer_addr, (uint64_t)(uintptr_t)block);
	atomic_store(&sh.offer_len, N);
	atomic_store(&sh.offer, RING_OFFERED);
}

static void begin(void)
{
	memset(&sh, 0, sizeof sh);
	memset(&back, 0, sizeof back);
	memset(&tx, 0, sizeof tx);
	memset(&rx, 0, sizeof rx);
	peer_of_tx.peer_pid = peer_of_rx.peer_pid = getpid();
	peer_of_tx.peer_uid = peer_of_rx.peer_uid = getuid();
	peer_of_tx.looked_ns = peer_of_rx.looked_ns = own.looked_ns = 0;
	ours = theirs = (struct peer_rights){ .plain = true, .uid = getuid(), .caps = 6 };
	unknown = gone = false;
	atomic_store(&tx.link, &peer_of_tx);
	atomic_store(&rx.link, &peer_of_rx);
	tx.row = rx.row = &row;
	atomic_store(&peer_of_rx.no_read, false);
	atomic_store(&peer_of_tx.no_direct, false);
	atomic_store(&peer_of_tx.withdrawn, 0);
	tx.snd.ring.sh = rx.rcv.ring.sh = &sh;
	rx.snd.ring.sh = tx.rcv.ring.sh = &back;
	atomic_store(&sh.offer_sh, (uintptr_t)&sh);
	memset(block, 'a', N);
	memset(buffer, 0, N);
	meanwhile = NULL;
	readv_says = 0;
	begun = ended = dropped = release = release_read = offers = waited = looks = held = 0;
	soon = not_soon = rung = told = 0;
	takes = goes_on = read_ends = ends_meanwhile = elsewhere = false;
	atomic_store(&gpu_receives, 1);
}

/* The take lasts; the sender has released its lock, and now cannot wait any longer. Then the
 * program uses its buffer. */
static void withdraws(void)
{
	tx.direct.stuck = 1;
	if (atomic_load(&sh.offer_dev))
		tx.direct.held = (struct direct_held){ .rec = 7, .held = 1 };
	ck_assert(!direct_settle(&tx, false));
	ck_assert(tx.direct.stuck);
	ck_assert(direct_settle(&tx, true));
	ck_assert(!tx.direct.stuck);
	memset(block, 'x', N);
}

static void withdraws_and_offers(void)
{
	withdraws();
	offered(0);
}

static void nothing_counts(void)
{
	ck_assert_uint_eq(rx.rcv.ring.rd, 0);
	ck_assert_uint_eq(rx.rcv.cut.rd, 0);
	ck_assert_uint_eq(atomic_load(&sh.rd), 0);
	ck_assert_uint_eq(tx.snd.cut.wr, 0);
	ck_assert_uint_eq(tx.snd.ring.wr, 0);
	ck_assert_uint_eq(tx.direct.done, 0);
}

START_TEST(withdrawn_in_a_copy)
{
	begin();
	offered(0);
	meanwhile = withdraws;
	ck_assert_int_eq(take(&iov, 1), 0);
	nothing_counts();
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_OFFER_NONE);
}
END_TEST

START_TEST(withdrawn_in_a_copy_of_the_device)
{
	begin();
	offered(42);
	meanwhile = withdraws;
	ck_assert_int_eq(take(&iov, 1), 0);
	nothing_counts();
	ck_assert_int_eq(begun, 1);
	ck_assert_int_eq(dropped, 1);
	ck_assert_int_eq(ended, 0);
	ck_assert_int_eq(release, 1);
	ck_assert_int_eq(release_read, 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_OFFER_NONE);
}
END_TEST

/* The next block is offered already when the copy of the one before ends. */
START_TEST(withdrawn_and_another_offered)
{
	begin();
	offered(0);
	meanwhile = withdraws_and_offers;
	ck_assert_int_eq(take(&iov, 1), 0);
	nothing_counts();
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_OFFERED);
	meanwhile = NULL;
	ck_assert_int_eq(take(&iov, 1), N);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_TAKEN);
	ck_assert_uint_eq(rx.rcv.cut.rd, N);
	ck_assert_mem_eq(block, buffer, N);
}
END_TEST

/* It fails, too late to be refused. */
START_TEST(withdrawn_and_not_permitted)
{
	static const int how[] = { -EPERM, -EFAULT, -ESRCH };

	for (int i = 0; i < 3; i++) {
		begin();
		offered(0);
		meanwhile = withdraws;
		readv_says = how[i];
		ck_assert_int_eq(take(&iov, 1), 0);
		nothing_counts();
		ck_assert_uint_eq(atomic_load(&sh.offer), RING_OFFER_NONE);
	}
}
END_TEST

#include "direct_rights.h"

/* ---- the lock is free while it is read ---- */

static void looks_in(void)
{
	ck_assert(lock_try(&rx.rcv.lock));
	lock_give(&rx.rcv.lock);
}

START_TEST(free_in_a_copy)
{
	begin();
	offered(0);
	meanwhile = looks_in;
	ck_assert_int_eq(take(&iov, 1), N);
}
END_TEST

/* What others do meanwhile: then nothing of the copy counts, nor is the stream touched. */
static int how;

static void goes_on_without(void)
{
	lock_take(&rx.rcv.lock);
	switch (how) {
	case 0: atomic_fetch_add(&rx.gen, 2); break;
	case 1: atomic_store(&rx.link, &peer_of_tx); break;
	case 2: rx.rcv.cut.state++; break;
	case 3: rx.rcv.cut.epoch++; break;
	case 4: rx.rcv.cut.rd++; break;
	case 5: rx.rcv.ring.rd++; break;
	case 6: rx.rcv.ring.sh = &back; break;
	case 7: atomic_store(&rx.peer_gone, 1); break;
	}
	lock_give(&rx.rcv.lock);
}

START_TEST(gone_on_in_a_copy)
{
	begin();
	offered(0);
	how = _i;
	meanwhile = goes_on_without;
	ck_assert_int_eq(take(&iov, 1), -ESTALE);
	ck_assert_uint_eq(rx.rcv.cut.rd, _i == 4);
	ck_assert_uint_eq(rx.rcv.ring.rd, _i == 5);
	ck_assert_uint_eq(atomic_load(&sh.rd), 0);
	ck_assert_int_eq(buffer[0], 0);
	/* The sender is told, where there is still one. */
	ck_assert_uint_eq(atomic_load(&sh.offer),
			  _i == 0 || _i == 1 || _i == 6 ? RING_TAKING : RING_DECLINED);
}
END_TEST

/* Another thread takes the next offer, while the copy of the one that was withdrawn still goes
 * on. */
static void takes_the_next(void)
{
	meanwhile = NULL;
	withdraws();
	memset(block, 'b', N);
	offered(0);
	ck_assert_int_eq(take(&(struct iovec){ second, N }, 1), N);
}

START_TEST(overtaken_in_a_copy)
{
	begin();
	offered(0);
	meanwhile = takes_the_next;
	ck_assert_int_eq(take(&iov, 1), -ESTALE);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_TAKEN);
	ck_assert_uint_eq(rx.rcv.cut.rd, N);
	ck_assert_mem_eq(block, second, N);
	ck_assert_int_eq(buffer[0], 0);
}
END_TEST

/* What is smaller than a block is faster through the ring. */
START_TEST(in_parts)
{
	begin();
	offered(0);
	ck_assert_int_eq(take(&(struct iovec){ buffer, DIRECT_MIN - 1 }, 1), 0);
	ck_assert_uint_eq(atomic_load(&sh.offer), RING_DECLINED);
	begin();
	offered(0);
	ck_assert_int_eq(take(&(struct iovec){ buffer, DIRECT_MIN }, 1), DIRECT_MIN);
}
END_TEST

START_TEST(into_many_chunks)
{
	enum { EACH = N / (PEER_CHUNKS + 8) };
	struct iovec many[PEER_CHUNKS + 8];

	begin();
	offered(0);
	for (int i = 0; i < PEER_CHUNKS + 8; i++)
		many[i] = (struct iovec){ buffer + i * EACH, EACH };
	ck_assert_int_eq(take(many, PEER_CHUNKS + 8), PEER_CHUNKS * EACH);
	ck_assert_mem_eq(block, buffer, PEER_CHUNKS * EACH);
	ck_assert_int_eq(buffer[PEER_CHUNKS * EACH], 0);
}
END_TEST

/* Who begins to read again and again and never finishes gets no more. */
START_TEST(begun_and_not_finished)
{
	for (int i = 0; i < 2; i++) {
		begin();
		if (i)
			atomic_store(&peer_of_tx.withdrawn, 1);
		offered(0);
		atomic_store(&sh.offer, RING_TAKING);
		tx.direct.stuck = 1;
		direct_late(&tx);
		ck_assert(direct_settle(&tx, true));
		ck_assert_uint_gt(tx.direct.backoff[PLAIN_BLOCK].skip, 0);
		ck_assert(atomic_load(&peer_of_tx.no_direct) == (i > 0));
	}
}
END_TEST

/* A sender that waits for it sleeps: whatever became of the offer, it is told. */
START_TEST(the_sender_is_told)
{
	begin();
	offered(0);
	ck_assert_int_eq(take(&iov, 1), N);
	ck_assert_int_eq(told, 1);
	readv_says = -EFAULT;
	offered(0);
	ck_assert_int_eq(take(&iov, 1), 0);
	ck_assert_int_eq(told, 2);
	offered(0);
	ck_assert_int_eq(take(NULL, 0), 0);
	ck_assert_int_eq(told, 3);
}
END_TEST

/* Another thread may not send before the block is settled, and sleeps until then. */
START_TEST(other_senders_are_told)
{
	begin();
	offered(0);
	tx.direct.stuck = 1;
	tx.direct.len = N;
	event_look(&stream_steps);
	ck_assert_int_eq(take(&iov, 1), N);
	ck_assert_int_eq(rung, 0);
	ck_assert(direct_settle(&tx, false));
	ck_assert_int_eq(rung, 1);
}
END_TEST

/* The sender cannot wait any longer, but the receiver was first. */
START_TEST(taken_just_before)
{
	for (int dev = 0; dev <= 42; dev += 42) {
		begin();
		offered((uint64_t)dev);
		ck_assert_int_eq(take(&iov, 1), N);
		tx.direct.stuck = 1;
		tx.direct.held = (struct direct_held){ .rec = 7, .held = 1 };
		ck_assert(direct_settle(&tx, true));
		ck_assert_uint_eq(tx.direct.done, N);
		ck_assert_uint_eq(tx.snd.cut.wr, N);
		ck_assert_uint_eq(tx.snd.ring.rd, N);
		ck_assert_uint_eq(rx.rcv.cut.rd, N);
		ck_assert_uint_eq(atomic_load(&sh.wr), N);
		ck_assert_uint_eq(atomic_load(&sh.rd), N);
		ck_assert_uint_eq(atomic_load(&sh.offer), RING_OFFER_NONE);
		ck_assert_int_eq(release, 1);
		ck_assert_int_eq(release_read, dev ? 1 : 0);
		ck_assert_mem_eq(block, buffer, N);
	}
}
END_TEST

#include "direct_waits.h"

int main(void)
{
	Suite *suite = suite_create("direct");
	TCase *tc = tcase_create("direct");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_add_test(tc, withdrawn_in_a_copy);
	tcase_add_test(tc, withdrawn_in_a_copy_of_the_device);
	tcase_add_test(tc, withdrawn_and_another_offered);
	tcase_add_test(tc, withdrawn_and_not_permitted);
	tcase_add_test(tc, of_another_process);
	tcase_add_test(tc, of_a_program_without_us);
	tcase_add_test(tc, a_bad_address);
	tcase_add_test(tc, of_another_user);
	tcase_add_loop_test(tc, of_another_user_by_now, 0, 2);
	tcase_add_loop_test(tc, of_lesser_rights, 0, sizeof lesser / sizeof lesser[0]);
	tcase_add_loop_test(tc, of_lesser_rights_by_now, 0, sizeof lesser / sizeof lesser[0]);
	tcase_add_test(tc, of_more_rights);
	tcase_add_test(tc, of_rights_by_exec);
	tcase_add_test(tc, of_a_copy);
	tcase_add_test(tc, rights_are_looked_at_now_and_then);
	tcase_add_test(tc, ours_had_been_more);
	tcase_add_test(tc, rights_that_nobody_tells);
	tcase_add_test(tc, of_a_process_that_has_ended);
	tcase_add_test(tc, free_in_a_copy);
	tcase_add_test(tc, in_parts);
	tcase_add_loop_test(tc, gone_on_in_a_copy, 0, 8);
	tcase_add_test(tc, overtaken_in_a_copy);
	tcase_add_test(tc, into_many_chunks);
	tcase_add_test(tc, begun_and_not_finished);
	tcase_add_test(tc, the_sender_is_told);
	tcase_add_test(tc, other_senders_are_told);
	tcase_add_test(tc, taken_just_before);
	tcase_add_test(tc, offered_in_vain);
	tcase_add_test(tc, offered_in_vain_but_veiled);
	tcase_add_test(tc, waits_for_a_late_reader);
	tcase_add_test(tc, waits_for_its_timeout);
	tcase_add_test(tc, read_beyond_the_take);
	tcase_add_test(tc, read_to_the_end_in_the_take);
	tcase_add_test(tc, read_beyond_many_takes);
	tcase_add_test(tc, read_elsewhere);
	tcase_add_test(tc, read_to_the_end_by_the_background_thread);
	tcase_add_test(tc, watched_while_it_receives);
	tcase_add_test(tc, read_beyond_a_stuck_take);
	suite_add_tcase(suite, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
