/*
 * world.h - the library inside a fuzz target: all of it but the wrappers, which would take
 * libc's names away from the fuzzer, and the background thread, whose rounds the target makes
 * itself by pump(). The clock stands under the target's hand (`skew`, by the linker's --wrap),
 * so that time limits cost no time.
 *
 * A target that includes this has `LINK: SHIM` in its head, and the --wrap.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include "../../shim/libc/libc.h"
#include "../../shim/base/loop.c"
#include "../../shim/main/bg.c"
#include "../../shim/discovery/identity.h"
#include "../../shim/conn/stream_life.h"
#include "../../shim/conn/stream_slab.h"
#include "../../shim/discovery/search.h"
#include <linux/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* ---- what init.c, libc.c and the wrappers would give */
bool shim_on = true;
_Atomic(const struct policy *) shim_policy;
_Atomic(const struct policy_tunables *) shim_tun;
char shim_program[64] = "fuzz", shim_policy_file[256];
struct policy_deps shim_policy_deps;
_Atomic int shim_pid;
_Atomic bool shim_active = true;
bool shim_reload_policy(void) { return false; }
void shim_log_start(void) { }
void shim_stat_first(int fd) { (void)fd; }
void shim_stat_reopen(bool again) { (void)again; }
__typeof__(real_ppoll) real_ppoll = ppoll;
__typeof__(real_epoll_wait) real_epoll_wait = epoll_wait;
__typeof__(real_epoll_pwait) real_epoll_pwait = epoll_pwait;
__typeof__(real_epoll_pwait2) real_epoll_pwait2 = epoll_pwait2;
__typeof__(real_sigaction) real_sigaction = sigaction;
bool libc_sigaction_is_libcs = true;

/* ---- the clock */
static uint64_t skew;		/* us */
int __real_clock_gettime(clockid_t c, struct timespec *t);
int __wrap_clock_gettime(clockid_t c, struct timespec *t);
int __wrap_clock_gettime(clockid_t c, struct timespec *t)
{
	int r = __real_clock_gettime(c, t);

	t->tv_sec += (time_t)(skew / 1000000);
	t->tv_nsec += (long)(skew % 1000000 * 1000);
	if (t->tv_nsec >= 1000000000) {
		t->tv_nsec -= 1000000000;
		t->tv_sec++;
	}
	return r;
}

static void world_policy(const struct policy *p)
{
	atomic_store(&shim_tun, policy_tunables(p));
	atomic_store(&shim_policy, p);
}

static void world_make(const char *text)
{
	struct policy_error err;
	struct policy *p;

	if (policy_parse(text, strlen(text), "fuzz", &p, &err))
		abort();
	world_policy(p);
	atomic_store(&shim_pid, getpid());
	me = true;
	loop_serve(&bg_duties);
	link_serve(&bg_link_user);
	bell_tell(&link_bell_events);
	gpu_serve(&device_user);
	stream_serve(&ready_pollers);
	if (make_epoll())
		abort();
	atomic_store(&running, 1);
	signal(SIGPIPE, SIG_IGN);
}

/* Rounds of the background thread until there is nothing to do at this moment. */
static void pump(void)
{
	struct epoll_event ev[16];
	struct timespec zero = { 0, 0 };
	long n = 1;

	for (int i = 0; i < 20 && n > 0; i++) {
		round_of_work();
		flush_links();
		search_pending_expire(now_us());
		net_expire(now_us());
		n = sys(SYS_epoll_pwait2, ep, ev, 16, &zero, NULL, 0);
		for (long k = 0; k < n; k++)
			one_event(ev[k].data.u64);
	}
}

/* ---- what must not leak */
static int next_low(void)
{
	int fd = dup(2);

	close(fd);
	return fd;
}

static int next_high(void)
{
	int fd = fcntl(2, F_DUPFD_CLOEXEC, 200);

	close(fd);
	return fd;
}

static bool all_gone(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) != LINK_FREE)
			return false;
	for (uint32_t i = 0; i < streams_top(); i++)
		if (atomic_load(&stream_at(i)->mode) != MODE_FREE)
			return false;
	return true;
}

static void left_behind(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) != LINK_FREE)
			fprintf(stderr, "link %u: state %d, %u streams\n", i,
				atomic_load(&links[i].state), links[i].nstreams);
	for (uint32_t i = 0; i < streams_top(); i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) != MODE_FREE)
			fprintf(stderr,
				"stream %u: mode %d dead %d fd %d discovery %d link %d tx %d rx %d "
				"closing %d peer_gone %d unbind %d %d\n",
				i, atomic_load(&s->mode), atomic_load(&s->dead),
				atomic_load(&s->fd), s->search.state, atomic_load(&s->link) != NULL,
				s->snd.cut.state, s->rcv.cut.state, s->snd.cut.closing,
				atomic_load(&s->peer_gone), s->fallback.unbind_sent,
				s->fallback.unbind_got);
	}
	abort();
}

/* Everything has been closed: nothing may be left of it after the time that the library allows
 * itself. */
static __attribute__((unused)) void world_end(int low, int high)
{
	for (int i = 0; i < 40 && !all_gone(); i++) {
		pump();
		skew += 500000;
	}
	for (int i = 0; i < 4; i++) {	/* callers, names, calls */
		pump();
		skew += 3000000;
	}
	pump();
	if (!all_gone())
		left_behind();
	if ((low >= 0 && next_low() != low) || (high >= 0 && next_high() != high)) {
		fprintf(stderr, "descriptors: next ones are %d and %d, were %d and %d\n",
			next_low(), next_high(), low, high);
		abort();
	}
}

/* ---- the input, byte by byte; zeros at its end */
struct input { const uint8_t *p; size_t n; };

static uint64_t get(struct input *in, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes && in->n; i++, in->p++, in->n--)
		v |= (uint64_t)*in->p << 8 * i;
	return v;
}
#define get8(in) ((uint8_t)get(in, 1))

/* A value near what matters, or any. */
static __attribute__((unused)) uint64_t get_offset(struct input *in, uint64_t near)
{
	uint8_t k = get8(in);

	switch (k & 3) {
	case 0: return near;
	case 1: return near + get8(in);
	case 2: return near - get8(in);
	default: return get(in, 8);
	}
}

/* ---- TCP: two connected sockets, ours and the peer's */

/* A network of our own, where that is permitted: many of these processes would use up the ports
 * of one. */
static __attribute__((unused)) void own_network(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	int fd;

	if (unshare(CLONE_NEWNET))
		return;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r))
		abort();
	close(fd);
}

static int listener = -1;
static struct sockaddr_in listen_at_;

static __attribute__((unused)) void tcp_pair(bool we_accept, int *ours, int *theirs,
					     struct sockaddr_in *peer)
{
	struct linger reset = { 1, 0 };
	socklen_t len = sizeof listen_at_;
	sigset_t alarm, before;
	int a, b;

	sigemptyset(&alarm);		/* libFuzzer's: neither call is to be interrupted by it */
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, &before);

	if (listener < 0) {
		own_network();
		listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		identity_save_syn(listener);
		listen_at_ = (struct sockaddr_in){ .sin_family = AF_INET,
						   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		if (bind(listener, (void *)&listen_at_, len) || listen(listener, 8) ||
		    getsockname(listener, (void *)&listen_at_, &len))
			abort();
	}
	a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (a < 0 || connect(a, (void *)&listen_at_, sizeof listen_at_)) {
		perror(a < 0 ? "socket" : "connect");
		abort();
	}
	len = sizeof *peer;
	b = accept4(listener, (void *)peer, &len, SOCK_CLOEXEC);
	if (b < 0)
		abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	*ours = we_accept ? b : a;
	*theirs = we_accept ? a : b;
	if (!we_accept)
		*peer = listen_at_;
	fcntl(a, F_SETFL, O_NONBLOCK);
	fcntl(b, F_SETFL, O_NONBLOCK);
	/* no TIME-WAIT: ports are few */
	setsockopt(*theirs, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

/* Our stream on it, as the wrappers make it. */
static __attribute__((unused)) struct stream *make_stream(bool we_accept, int fd,
							  const struct sockaddr_in *peer)
{
	struct stream *s = stream_new(fd, we_accept ? ROLE_SERVER : ROLE_CLIENT, true,
				      we_accept ? (const void *)peer : NULL);

	if (!s)
		abort();
	atomic_store(&s->waits_seen, 1);
	if (!we_accept)
		stream_connect_result(s, atomic_load(&s->gen), 0);
	return s;
}

#endif
