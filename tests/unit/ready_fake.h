/*
 * ready_fake.h - a stream layer for the tests of ready*.c: streams whose views the test sets,
 * bells that are plain eventfds, a dirty list in place of the links. Included by one file per
 * test program.
 */
#include <check.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "../../shim/conn/stream_learn.h"
#include "../../shim/poll/ready_int.h"
#include "tests/older.h"

/* A program of this one case: its exit status. */
static int run_case(const char *name, TCase *c)
{
	Suite *s = suite_create(name);
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

#define STREAMS 256

static struct stream streams[STREAMS];
static struct fake {
	_Atomic uint32_t kern, synth, coming;
	_Atomic bool cut, dirty;
	_Atomic bool room_soon;		/* the next stream_want_room() finds room */
	_Atomic int wants, told, fell_back;
	_Atomic uint32_t told_events;
	void (*on_told)(int i);
} fakes[STREAMS];
static _Atomic int any_dirty;
static _Atomic uint64_t spin_ns;	/* 0: no spinning */
static _Atomic uint64_t spin_rounds;
static void (*on_spin)(void);		/* called once there is nothing to see, before the bell
					 * is armed */

_Atomic bool stream_learned_any;
bool stream_true_error(struct stream *s, uint32_t gen) { (void)s, (void)gen; return true; }

static _Atomic int naps;		/* sleeps in the kernel */

static void (*on_woken)(void);		/* called once, when the next one has brought events */

static int count_epoll_wait(int ep, struct epoll_event *ev, int max, int ms)
{
	void (*f)(void) = on_woken;
	int r;

	naps++;
	r = epoll_wait(ep, ev, max, ms);
	if (r > 0 && f) {
		on_woken = NULL;
		f();
	}
	return r;
}

static void (*on_nap)(void);		/* called just before one */

static int count_ppoll(struct pollfd *f, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	naps++;
	if (on_nap)
		on_nap();
	return ppoll(f, n, t, mask);
}

int (*real_epoll_wait)(int, struct epoll_event *, int, int) = count_epoll_wait;
int (*real_epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *) = epoll_pwait;
int (*real_epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *,
			 const sigset_t *) = epoll_pwait2;
int (*real_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) = count_ppoll;

static struct fake *fake_of(struct stream *s) { return &fakes[s - streams]; }

/* ---- stream.h ---- */

_Atomic bool stream_past_us;
_Atomic int shim_pid;
bool shim_on = true;

static void (*on_view)(void);		/* called once, by the next look at a stream */

struct stream_view stream_view(struct stream *s)
{
	struct fake *f = fake_of(s);
	void (*meanwhile)(void) = on_view;

	on_view = NULL;
	if (meanwhile)
		meanwhile();
	return (struct stream_view){ .kern = f->kern, .synth = f->cut ? f->synth : 0,
				     .coming = f->coming, .cut = f->cut };
}

bool stream_at_end(struct stream *s)
{
	return s->rcv.eof;
}

void stream_told_full(struct stream *s) { (void)s; }

void stream_want_room(struct stream *s)
{
	struct fake *f = fake_of(s);

	f->wants++;
	if (atomic_exchange(&f->room_soon, false))
		f->synth |= EPOLLOUT;
}

void stream_bell_add(struct stream *s, struct bell *b, bool epoll)
{
	(void)epoll;
	atomic_fetch_or(&s->bells, 1ull << b->idx);
}

void stream_bell_del(struct stream *s, struct bell *b) { atomic_fetch_and(&s->bells,
	~(1ull << b->idx)); }

void stream_waits_seen(struct stream *s, int fd) { s->waits_seen = fdtab_stream(fd) == s; }

void stream_home_event(struct stream *s, uint32_t events)
{
	struct fake *f = fake_of(s);

	f->told++;
	f->told_events |= events;
	if (f->on_told)
		f->on_told((int)(s - streams));
}

bool fork_shared(struct stream *s)
{
	(void)s;
	return false;
}

void stream_leave_path(struct stream *s, enum reason r) { atomic_store(&s->earn.stopped,
	(uint8_t)r); }
int stream_fall_back(struct stream *s, enum reason r);
int stream_fall_back_since(struct stream *s, enum reason r, uint64_t since)
{
	(void)since;
	return stream_fall_back(s, r);
}

void stream_ask_fallback(struct stream *s) { (void)s; }

int stream_fall_back(struct stream *s, enum reason r)
{
	struct fake *f = fake_of(s);

	(void)r;
	f->fell_back++;
	f->cut = false;
	f->kern = EPOLLIN | EPOLLOUT;
	atomic_store(&s->mode, MODE_TCP_ONLY);
	return 0;
}

bool stream_plain_wait(struct stream *s)
{
	if (s->mode != MODE_NEW && s->mode != MODE_TCP_FOR_NOW)
		return false;
	atomic_fetch_add(&s->plain.rx, 1);
	return true;
}

void stream_plain_wait_leave(struct stream *s)
{
	atomic_fetch_sub(&s->plain.rx, 1);
}

void link_read_enter(void) {}
void link_read_leave(void) {}

static void (*on_drain)(void);		/* called by each */
static void (*on_taken)(void);		/* a dirty bit is taken, and not queued yet */

static bool take_dirty(void)
{
	bool any = false;

	if (!atomic_exchange(&any_dirty, 0))
		return false;
	for (int i = 0; i < STREAMS; i++) {
		if (fakes[i].dirty && atomic_exchange(&fakes[i].dirty, false)) {
			if (on_taken)
				on_taken();
			ready_attention(&streams[i]);
			any = true;
		}
	}
	return any;
}

bool links_drain(struct lock *taking)
{
	bool any;

	if (on_drain)
		on_drain();
	if (!atomic_load(&any_dirty))
		return false;
	if (taking)
		lock_take(taking);
	any = take_dirty();
	if (taking)
		lock_give(taking);
	return any;
}

/* ---- link.h, between hosts: one link, whose completion channel is an eventfd. What came is
 * seen when its event is taken. ---- */

static int channel = -1;
static uint64_t channel_id = 1;
static _Atomic int channel_takes;
static void (*on_channel)(void);

static struct stream *stream_at_link(struct link *_Atomic *at)
{
	return (struct stream *)((char *)at - offsetof(struct stream, link));
}

static const struct path_wire wire;
const struct path path_shm = { .kind = PATH_SHM };
const struct path path_rdma = { .kind = PATH_RDMA, .far = true, .wire = &wire };
const struct path *const paths[PATH_KINDS] = { &path_shm, &path_shm, &path_rdma };

int wire_channel(struct link *_Atomic *at, uint64_t *ret_id)
{
	struct stream *s = stream_at_link(at);

	*ret_id = channel_id;
	return stream_sought(s)->wire ? channel : -1;
}

int wire_channel_of(uint64_t id) { return id == channel_id ? channel : -1; }

int wire_sleep_on(struct link *_Atomic *at, const struct bell *b, uint64_t id)
{
	struct stream *s = stream_at_link(at);

	ck_assert_int_eq(atomic_load(&b->sleeping), 0);	/* first this, then the bell */
	return stream_sought(s)->wire && (!id || id == channel_id) ? channel : -1;
}

void wires_woken(void)
{
	uint64_t n;

	if (channel < 0 || read(channel, &n, sizeof n) < 0)
		return;
	channel_takes++;
	if (on_channel)
		on_channel();
}

void wire_woken(struct link *_Atomic *at, int fd)
{
	struct stream *s = stream_at_link(at);

	ck_assert(stream_sought(s)->wire);
	ck_assert_int_eq(fd, channel);
	wires_woken();
}

__attribute__((unused)) static void channel_new(void)
{
	channel = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	channel_id++;
}

__attribute__((unused)) static void channel_says(void)
{
	uint64_t one = 1;

	if (write(channel, &one, sizeof one) < 0)
		abort();
}

bool spin_begin(struct spin *sp, _Atomic uint32_t *hit_rate, bool net)
{
	(void)hit_rate;
	(void)net;
	if (on_spin)
		on_spin();
	sp->end_tsc = now_ns() + spin_ns;
	return spin_ns != 0;
}

bool spin_again(struct spin *sp)
{
	spin_rounds++;
	return now_ns() < sp->end_tsc;
}

void spin_end(_Atomic uint32_t *hit_rate, bool won) { (void)hit_rate; (void)won; }
void spin_slept(_Atomic uint32_t *hit_rate, uint64_t ns, bool net)
{
	(void)hit_rate;
	(void)ns;
	(void)net;
}

/* ---- bell.h ---- */

struct bell bells[BELL_MAX];
_Atomic bool bells_mixed, bells_deaf;
static _Atomic int bells_made, bells_left = BELL_MAX;

struct bell *bell_new(void)
{
	struct bell *b;

	if (atomic_fetch_sub(&bells_left, 1) <= 0)
		return NULL;
	b = &bells[atomic_fetch_add(&bells_made, 1)];
	b->idx = (uint8_t)(b - bells);
	b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return b;
}

void bell_free(struct bell *b) { atomic_store(&b->sleeping, 0); }

struct bell *bell_thread(void)
{
	static __thread struct bell *mine;

	if (!mine)
		mine = bell_new();
	return mine;
}

void bell_sleep(struct bell *b) { bell_arm(b); }
void bell_arm(struct bell *b)
{
	atomic_store(&b->sleeping, 1);
}

void bell_disarm(struct bell *b) { atomic_store(&b->sleeping, 0); }

void bell_ring(uint64_t mask)
{
	for (; mask; mask &= mask - 1) {
		struct bell *b = &bells[__builtin_ctzll(mask)];
		uint64_t one = 1;

		if (atomic_exchange(&b->sleeping, 0) && write(b->fd, &one, sizeof one) < 0)
			abort();
	}
}

void bell_drain(struct bell *b)
{
	uint64_t n;

	if (read(b->fd, &n, sizeof n) < 0 && errno != EAGAIN)
		abort();
}

/* ---- what tests do ---- */

/* As the peer does: the state first, then the dirty bit, the bells; all sequentially consistent
 * here. */
static void notify(int i)
{
	fakes[i].dirty = true;
	any_dirty = 1;
	bell_ring(atomic_load(&streams[i].bells));
}

static void shows(int i, uint32_t synth)
{
	fakes[i].synth = synth;
	notify(i);
}

/* A stream on a connected pair; the other end in *peer. */
static int stream_fd(int i, int mode, int *peer)
{
	int fd[2];
	bool ok;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	memset(&streams[i], 0, sizeof streams[i]);
	memset(&fakes[i], 0, sizeof fakes[i]);
	atomic_store(&shim_pid, (int)getpid());
	atomic_store(&streams[i].mode, (uint8_t)mode);
	fakes[i].kern = EPOLLIN | EPOLLOUT;
	fdtab_set(fd[0], FD_STREAM, &streams[i], &ok);
	ck_assert(ok);
	*peer = fd[1];
	return fd[0];
}

static void cut(int i)
{
	fakes[i].cut = true;
	fakes[i].kern = 0;
	ready_attention(&streams[i]);
}

static uint64_t in_ms(unsigned ms) { return now_ns() + ms * 1000000ull; }

/* From now on this thread's system call `nr` fails with ENOSYS and is counted. */
static volatile int forbidden_calls;

static void on_sys(int sig, siginfo_t *si, void *uc)
{
	(void)sig, (void)si;
	forbidden_calls++;
	ARCH_RESULT(uc) = -ENOSYS;
}

__attribute__((unused)) static void forbid(const int *nr, int n)
{
	struct sock_filter f[16];
	struct sock_fprog prog = { .filter = f };
	struct sigaction sa = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
	int k = 0;

	sigaction(SIGSYS, &sa, NULL);
	f[k++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					      offsetof(struct seccomp_data, nr));
	for (int i = 0; i < n; i++) {
		f[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr[i], 0,
						      1);
		f[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
	}
	f[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = (unsigned short)k;
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

static void on_alrm(int sig) { (void)sig; }

__attribute__((unused)) static void alarm_in_ms(int ms)
{
	struct sigaction sa = { .sa_handler = on_alrm };
	struct itimerval t = { .it_value = { 0, ms * 1000 } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}
