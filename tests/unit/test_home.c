/*
 * test_home.c - who waits for a stream to be on TCP (shim/conn/stream.c) is woken by all
 * that ends it, and answers an ARM that comes at any moment. The machine is the real one, the
 * background thread and the peer are this test's; who would sleep while nobody has anything to
 * say fails.
 *
 * LINK: shim/conn/stream_cut.c shim/conn/stream_close.c shim/conn/stream_wake.c
 * LINK: shim/conn/stream_view.c shim/conn/stream_lock.c shim/cut/cut.c shim/cut/cut_tx.c
 * LINK: shim/cut/cut_rx.c shim/conn/stream_final.c shim/conn/stream_arm.c
 * LINK: shim/conn/stream_end.c
 * LINK: shim/base/lock.c
 */
#include <check.h>

#include "../../shim/base/loop.h"
#include "../../shim/base/shim.h"
#include "../../shim/conn/stream_cut.h"
#include "../../shim/conn/stream_end.h"
#include "../../shim/conn/stream_life.h"
#include "../../shim/conn/stream_recv.h"
#include "../../shim/conn/stream_send.h"
#include "../../shim/conn/stream_slab.h"
#include "../../shim/conn/stream_wake.h"
#include "../../shim/base/sys.h"

/* A clock of its own: a microsecond for each look. */
static uint64_t clock_us = 1000;
static uint64_t test_us(void) { return clock_us += 1; }
#define now_us() test_us()
#include "../../shim/conn/stream.c"
#include "suite.h"

/* What other files have, and is not come to from here: an illegal instruction. */
#define NEVER(name) __asm__(".globl " #name "\n" #name ": ud2");
NEVER(device_held) NEVER(direct_offered) NEVER(earn_early) NEVER(fd_internal_dup)
NEVER(fork_child_touch) NEVER(fork_child_touch_until) NEVER(hold_again)
NEVER(loop_thread_left) NEVER(loop_watch_fd) NEVER(link_peer_ending) NEVER(shim_stat_first)
NEVER(stream_count_tcp_only) NEVER(stream_earned)
NEVER(stream_free) NEVER(stream_kernel_offset) NEVER(stream_mark) NEVER(stream_overtaken)
NEVER(stream_pauses)
NEVER(stream_show_unread) NEVER(stream_slab_take)
NEVER(stream_slab_begin) NEVER(stream_tcp_state) NEVER(ring_memory_take)
NEVER(stream_unread_count) NEVER(link_ring_peer) NEVER(fd_internal_close) NEVER(direct_settle)
NEVER(pull_puts_off) NEVER(pull_over) NEVER(pull_frozen)

#define FD 7

static struct link l;
static struct stream *_Atomic streams[1];
static struct stream st, *s = &st;
static struct ring_shared sh[2];
static struct stat_row row;
static struct policy_tunables tunables;
static int said_frozen, asked, arm_at, naps, waits;
static bool stopped;			/* the peer: it says nothing */
static uint32_t frozen_epoch;

_Atomic(const struct policy_tunables *) shim_tun = &tunables;
const struct path path_shm = { .kind = PATH_SHM };
const struct path *const paths[PATH_KINDS] = { [PATH_SHM] = &path_shm };
_Atomic(_Atomic uintptr_t *) fdtab_chunk[FDTAB_MAX / FDTAB_CHUNK];
uint32_t fdtab_closing;
static _Atomic uintptr_t numbers[FDTAB_CHUNK];
_Atomic bool loop_left, tracing;
_Atomic int shim_pid;
bool loop_is_me(void) { return false; }
bool loop_step_here(uint64_t end_us) { (void)end_us; return false; }
struct bell *loop_bell(void) { return NULL; }
void bell_ring(uint64_t set) { (void)set; }
void link_read_enter(void) { }
void link_read_leave(void) { }
void link_streams(struct link *of, int more) { (void)of, (void)more; }
bool link_ended(struct link *of) { (void)of; return false; }
struct stream *stream_at(uint32_t i) { return streams[i]; }
void stream_count_ring(struct stream *x) { (void)x; }
void stream_give_large(struct stream *x) { (void)x; }
void stream_in_vain(struct stream *x, enum patience p, uint64_t ns) { (void)x, (void)p, (void)ns; }
bool stream_try_free(struct stream *x, uint32_t gen) { (void)x, (void)gen; return false; }
void stream_fell_back(struct stream *x) { (void)x; }
int64_t stream_kernel_received(int fd) { (void)fd; return 1 << 20; }
void ring_memory_unused(struct stream *x) { (void)x; }
void ring_memory_free(struct stream *x) { (void)x; }
void ring_memory_received(struct stream *x) { (void)x; }
void learn_check_end(int fd) { (void)fd; }
void hold_end(struct stream *x) { (void)x; }
void hold_over(struct stream *x) { (void)x; }
void earn_asked(struct stream *x) { (void)x; }
void earn_over(struct stream *x) { (void)x; }
void earn_tell(void) { }
void device_detach(struct stream *x) { (void)x; }
void direct_forget(struct stream *x) { (void)x; }
bool direct_read_over(struct stream *x, bool all) { (void)x, (void)all; return true; }
bool fork_shared(struct stream *x) { (void)x; return false; }
bool fork_may_cut(struct stream *x) { (void)x; return true; }
uintptr_t fdtab_set(int fd, enum fd_kind kind, void *obj, bool *ok)
{
	if (ok)
		*ok = true;
	return atomic_exchange(&numbers[fd], kind == FD_NONE ? 0 : (uintptr_t)obj | kind);
}

void fdtab_stays(int fd, struct stream *x) { (void)fd, (void)x; }
void fdtab_closed(int fd) { (void)fd; }
int fdtab_top(void) { return 0; }
int fdtab_next(int fd) { (void)fd; return 0; }

uint64_t stream_patience(struct stream *x, enum patience p, uint64_t most)
{
	(void)x, (void)p;
	return most;
}

static void forget(struct stream *x, int fd, bool last) { (void)x, (void)fd, (void)last; }
static void attention(struct stream *x) { (void)x; }
static const struct stream_pollers pollers = { .forget = forget, .attention = attention };

void link_send_cut(struct link *of, uint32_t slot, unsigned msg, uint32_t epoch, uint64_t off)
{
	(void)of, (void)slot, (void)off;
	if (msg == CUT_MSG_FROZEN) {
		said_frozen = 1;
		frozen_epoch = epoch;
	}
}

static void comes(enum cut_ev ev, uint32_t epoch)
{
	lock_take(&s->rcv.lock);
	stream_rx_event(s, ev, epoch, 0);
	lock_give(&s->rcv.lock);
}

struct work *stream_work_of(const struct stream *x) { (void)x; return NULL; }
/* The stream is asked to fall back. The peer's ARM comes right after the `arm_at`-th time. */
void loop_post(struct work *w)
{
	(void)w;
	if (++asked == arm_at)
		comes(CUT_EV_ARM, 1);
}

void event_ring_slow(struct event *e)
{
	uint32_t v = atomic_load(&e->v);

	if (v & 1)
		atomic_store(&e->v, v + 1);
}

/* It sleeps: so the peer has its turn, if it was asked anything. */
void event_wait(struct event *e, uint32_t seen, uint64_t until_ns)
{
	waits++;
	if (atomic_load(&e->v) != seen)
		return;
	naps++;
	if (stopped) {
		clock_us = until_ns / 1000 + 1;
		return;
	}
	ck_assert_msg(said_frozen, "sleeps until %lu, and nobody will ring: T%d, T%d, ARM %d",
		      until_ns, s->snd.cut.state, s->rcv.cut.state, s->rcv.cut.arm_pending);
	said_frozen = 0;
	comes(CUT_EV_BACK, frozen_epoch);
}

static void setup(void)
{
	memset(&st, 0, sizeof st);
	memset(&l, 0, sizeof l);
	memset(sh, 0, sizeof sh);
	said_frozen = asked = arm_at = naps = waits = 0;
	stopped = false;
	sh[0].final = sh[1].final = RING_NO_FINAL;
	stream_serve(&pollers);
	streams[0] = s;
	l.streams = streams;
	l.path = &path_shm;
	atomic_store(&l.state, LINK_UP);
	cut_tx_init(&s->snd.cut);
	cut_rx_init(&s->rcv.cut);
	s->snd.ring.sh = &sh[0];
	s->rcv.ring.sh = &sh[1];
	s->path = PATH_SHM;
	s->row = &row;
	s->moves.fast_bytes = &row.tx_bytes[PATH_SHM];
	atomic_store(&s->fd, -1);
	atomic_store(&s->nfds, 1);
	atomic_store(&s->mode, MODE_ATTACHED);
	atomic_store(&s->upgrade, 1);
	atomic_store(&s->link, &l);
	atomic_store(&stream_steps.v, 0);
	fdtab_chunk[0] = numbers;
	fdtab_set(FD, FD_STREAM, s, NULL);
}

/* It is on a path in one direction, so that there is something to wait for. */
static void cut_over(void)
{
	comes(CUT_EV_ARM, 1);
	comes(CUT_EV_NO_WAITERS, 0);
	comes(CUT_EV_CUT, 1);
	ck_assert_int_eq(s->rcv.cut.state, CUT_RX_RING);
}

START_TEST(an_arm_is_answered)
{
	arm_at = _i;
	ck_assert_int_eq(stream_fall_back_until(s, REASON_STDIO, 1000000), 0);
	ck_assert(stream_tcp_only(s) && stream_both_on_tcp(s));
	ck_assert_int_eq(naps, arm_at ? 1 : 0);
}
END_TEST

START_TEST(it_goes_fallback_from_the_path)
{
	cut_over();
	ck_assert_int_eq(stream_fall_back_until(s, REASON_STDIO, 1000000), 0);
	ck_assert(stream_tcp_only(s) && stream_both_on_tcp(s));
	ck_assert_int_eq(naps, 1);
}
END_TEST

/* The peer says nothing: what is asked of it again changes nothing, so nobody is woken for it,
 * least of all who asks. */
START_TEST(it_sleeps_while_the_peer_is_stopped)
{
	if (_i & 1)
		cut_over();
	if (_i & 2) {
		lock_take(&s->snd.lock);
		stream_tx_event(s, CUT_EV_EARNED, 0, 0);
		stream_tx_event(s, CUT_EV_ARMED, s->snd.cut.epoch, 0);
		stream_tx_event(s, CUT_EV_CUT_OK, s->snd.cut.epoch, 0);
		lock_give(&s->snd.lock);
		ck_assert_int_eq(s->snd.cut.state, CUT_TX_RING);
	}
	stopped = true;
	ck_assert_int_eq(stream_fall_back_until(s, REASON_STDIO, now_us() + 1000000), -ETIMEDOUT);
	ck_assert_int_eq(naps, 1);
	ck_assert_msg(waits <= 2, "asks %d times and sleeps once", waits);
}
END_TEST

static void reset(void) { stream_reset(s); }
static void stale(void) { stream_fd_stale(s, FD); }

static void detach(void)
{
	stream_lock(s);
	stream_detach(s);
	stream_unlock(s);
}

static void aborted(void)
{
	stream_lock(s);
	stream_abort(s);
	stream_unlock(s);
}

static void lost(void)		/* an ARM is noted, and nobody waits for an answer any more */
{
	comes(CUT_EV_CTL_LOST, 0);
}

static struct { const char *name; void (*end)(void); } ends[] = {
	{ "it leaves its link", detach },
	{ "it was reset", reset },
	{ "it was closed, and is reset", aborted },
	{ "its number is another file's", stale },
	{ "the link's socket is lost", lost },
};

START_TEST(each_end_rings)
{
	uint32_t seen;

	if (ends[_i].end == lost)
		comes(CUT_EV_ARM, 1);
	else
		cut_over();
	seen = event_look(&stream_steps);
	ck_assert(!is_on_tcp(s));
	ends[_i].end();
	ck_assert_msg(is_on_tcp(s), "%s: does not end it", ends[_i].name);
	ck_assert_msg(atomic_load(&stream_steps.v) != seen, "%s: rings nobody", ends[_i].name);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fallback");
	TCase *t = tcase_create("fallback");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, an_arm_is_answered, 0, 2);
	tcase_add_test(t, it_goes_fallback_from_the_path);
	tcase_add_loop_test(t, it_sleeps_while_the_peer_is_stopped, 1, 4);
	tcase_add_loop_test(t, each_end_rings, 0, (int)(sizeof ends / sizeof *ends));
	suite_add_tcase(suite, t);
	return run_suite(suite);
}
