/*
 * calls_stub.c - stands for everything behind the wrappers, so that they can be loaded alone.
 *
 * Every TCP socket becomes a stream that stays on the kernel: each call takes the wrappers'
 * plain branch, so the branch "it is a stream" runs too. CALLS_STUB=tcp_only keeps each on TCP,
 * CALLS_STUB=off switches the library off, CALLS_STUB=fast makes the plain branch refuse and
 * answers the fast one with kernel calls. With CALLS_STUB_LOG=1 the time of libc_bind_all() goes
 * to fd 2.
 */
#include "../../shim/base/loop.h"
#include "../../shim/wrap/wrap.h"
#include "../../shim/base/lock.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

bool shim_on;
_Atomic int shim_pid;
static const struct policy_tunables tunables;	/* no port: no SYN is kept */
_Atomic(const struct policy_tunables *) shim_tun = &tunables;
_Atomic(const struct policy *) shim_policy;
const char *policy_cross_ns_dir(const struct policy *p) { (void)p; return ""; }
_Atomic(_Atomic uintptr_t *) fdtab_chunk[FDTAB_MAX / FDTAB_CHUNK];
uint32_t fdtab_closing;
struct event fdtab_closes;
void event_wait(struct event *e, uint32_t seen, uint64_t until)
{
	(void)e;
	(void)seen;
	(void)until;
}
__thread uint32_t fdtab_kernel_calls;
static _Atomic uintptr_t low[FDTAB_CHUNK];
static struct stream slots[FDTAB_CHUNK];
static uint64_t moves[STAT_MOVES];
static char epolls[FDTAB_CHUNK][8];
static bool fast, tcp_only;
struct stat_call_block stat_no_calls;
__thread struct stat_call_block *stat_my_calls = &stat_no_calls;
void stat_calls_take(void) {}

__attribute__((constructor)) static void start(void)
{
	const char *how = getenv("CALLS_STUB");
	const char *s;
	uint64_t t = now_ns();
	char line[80];

	libc_bind_all();
	if (getenv("CALLS_STUB_LOG")) {
		int n = snprintf(line, sizeof(line), "libc_bind_all: %lu ns\n",
				 (unsigned long)(now_ns() - t));

		sys(SYS_write, 2, line, n);
	}
	shim_pid = (int)sys(SYS_getpid);
	fdtab_chunk[0] = low;
	tcp_only = how && !strcmp(how, "tcp_only");
	fast = how && !strcmp(how, "fast");
	shim_on = !(how && !strcmp(how, "off"));
	s = getenv("CALLS_STUB_INTERNAL");	/* an fd number that is the library's own */
	if (s && shim_on)
		low[atoi(s)] = 4 | FD_INTERNAL;
}

uintptr_t fdtab_set(int fd, enum fd_kind kind, void *obj, bool *ok)
{
	if (ok)
		*ok = fd < FDTAB_CHUNK;
	return fd < FDTAB_CHUNK ? atomic_exchange(&low[fd], kind ? (uintptr_t)obj | kind : 0) : 0;
}

int fdtab_top(void) { return FDTAB_CHUNK; }
int fdtab_next(int fd) { return fd; }

int fd_internal_move(int fd)
{
	fdtab_set(fd, FD_NONE, NULL, NULL);
	return fd + 100;
}

struct stream *stream_new(int fd, enum stream_role role, bool nonblock, const struct sockaddr *peer)
{
	struct stream *s;

	if (fd >= FDTAB_CHUNK)
		return NULL;
	s = &slots[fd];
	s->moves.tx = s->moves.rx = moves;
	s->role = (uint8_t)role;
	s->nonblock = nonblock;
	s->connected = peer != NULL;
	if (peer)
		memcpy(&s->addr.peer, peer, sizeof(struct sockaddr_in));
	s->mode = tcp_only ? MODE_TCP_ONLY : MODE_NEW;
	fdtab_set(fd, FD_STREAM, s, NULL);
	return s;
}

void socket_mark(int fd) { (void)fd; }
void identity_save_syn(int fd) { (void)fd; }
void identity_leave_syn(void) { }

bool stream_before_connect(struct stream *s, uint32_t gen, int fd)
{
	(void)s, (void)gen, (void)fd;
	return true;
}

bool stream_dup(struct stream *s, uint32_t gen, int fd, int to)
{
	(void)gen, (void)fd;
	fdtab_set(to, FD_STREAM, s, NULL);
	return true;
}

void stream_forget_fd(struct stream *s, int fd) { (void)s; fdtab_set(fd, FD_NONE, NULL, NULL); }
void stream_vacate_fd(struct stream *s, int fd) { stream_forget_fd(s, fd); }
void fdtab_closed(int fd) { (void)fd; }
bool fd_is_tcp(int fd) { (void)fd; return true; }
struct lock fd_number_word;
int fd_high(void) { return 500; }
bool fd_may_make(void) { return true; }
void fd_number_lock(void) { }
void fd_number_unlock(void) { }
bool fd_number(int fd, const struct stream *of) { (void)fd; (void)of; return false; }
void fd_number_over(int fd) { (void)fd; }
void fd_number_close(int fd) { (void)fd; }
void stream_fd_stale(struct stream *s, int fd) { stream_forget_fd(s, fd); }
int stream_close(struct stream *s, int fd)
{
	stream_forget_fd(s, fd);
	return (int)sys(SYS_close, fd);
}
void log_line(int level, const char *fmt, ...) { (void)level; (void)fmt; }
void stream_connect_result(struct stream *s, uint32_t gen, int err)
{
	(void)gen;
	s->connected = !err;
}
int stream_take_error(struct stream *s, uint32_t gen) { (void)s; (void)gen; return 0; }
void stream_keep_error(struct stream *s, uint32_t gen, int err) { (void)s; (void)gen; (void)err; }
bool stream_wants_inq(struct stream *s, int fd) { (void)s; (void)fd; return false; }
_Atomic bool loop_left;
void loop_thread_left(void) { }
bool stream_plain_tx(struct stream *s, size_t n)
{
	(void)n;
	if (!fast)
		s->plain.tx++;
	return !fast;
}
bool stream_plain_rx(struct stream *s, size_t n)
{
	(void)n;
	if (!fast)
		s->plain.rx++;
	return !fast;
}
void stream_plain_tx_leave(struct stream *s, ssize_t n) { (void)n; s->plain.tx--; }
ssize_t stream_plain_rx_leave(struct stream *s, ssize_t n) { s->plain.rx--; return n; }
ssize_t stream_kernel_read(struct stream *s, ssize_t n) { (void)s; return n; }
int stream_shutdown(struct stream *s, uint32_t gen, int fd, int how)
{
	(void)s;
	(void)gen;
	return (int)sys(SYS_shutdown, fd, how);
}
int stream_fall_back(struct stream *s, enum reason r)
{
	(void)r;
	s->mode = MODE_TCP_ONLY;
	errno = 0;
	return 0;
}
bool stream_make_tcp_only(struct stream *s, enum reason r)
{
	(void)r;
	s->mode = MODE_TCP_ONLY;
	return true;
}
void stream_set_nonblock(struct stream *s, uint32_t gen, bool on) { (void)gen; s->nonblock = on; }
void stream_lock(struct stream *s) { (void)s; }
void stream_unlock(struct stream *s) { (void)s; }
void hold_end(struct stream *s) { (void)s; }
void link_read_enter(void) {}
void link_read_leave(void) {}

struct stream_view stream_view(struct stream *s)
{
	(void)s;
	return (struct stream_view){ .kern = EPOLLIN | EPOLLOUT };
}

int stream_ioctl_count(struct stream *s, uint32_t gen, int fd, unsigned long req)
{
	(void)s; (void)gen; (void)fd;
	/* shows the oracle's "internal" part which fds are followed */
	return req == SIOCOUTQNSD && getenv("CALLS_STUB_INTERNAL") ? 99 : -ENOENT;
}

void stream_setsockopt(struct stream *s, uint32_t gen, int level, int name, const void *val,
		       socklen_t len)
{
	(void)s; (void)gen; (void)level; (void)name; (void)val; (void)len;
	errno = 0;
}

int signals_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	return real_sigaction(sig, act, old) ? -errno : 0;
}

ssize_t stream_send(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };

	(void)s;
	return sys(SYS_sendmsg, fd, &m, flags);
}

ssize_t stream_recv(struct stream *s, int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };

	(void)s;
	return sys(SYS_recvmsg, fd, &m, flags);
}

ssize_t stream_sendfile(struct stream *s, int fd, int in_fd, int64_t *off, size_t count)
{
	(void)s;
	return sys(SYS_sendfile, fd, in_fd, off, count);
}

static struct timespec *left(uint64_t end, struct timespec *t)
{
	uint64_t now = now_ns();
	uint64_t ns = end > now ? end - now : 0;

	if (end == UINT64_MAX)
		return NULL;
	t->tv_sec = (time_t)(ns / 1000000000u);
	t->tv_nsec = (long)(ns % 1000000000u);
	return t;
}

enum ready_need ready_poll_needed(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fdtab_stream(fds[i].fd))
			return READY_NEEDED;
	return READY_NOT;
}

enum ready_need ready_select_needed(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	for (int i = 0; i < n; i++)
		if (((r && FD_ISSET(i, r)) || (w && FD_ISSET(i, w)) || (x && FD_ISSET(i, x))) &&
		    fdtab_stream(i))
			return READY_NEEDED;
	return READY_NOT;
}

int ready_poll(struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask)
{
	struct timespec t;

	return (int)sys(SYS_ppoll, fds, n, left(deadline_ns, &t), mask, 8);
}

int ready_select(int n, fd_set *r, fd_set *w, fd_set *x, uint64_t deadline_ns, const sigset_t *mask)
{
	struct { const sigset_t *m; size_t n; } sig = { mask, 8 };
	struct timespec t;

	return (int)sys(SYS_pselect6, n, r, w, x, left(deadline_ns, &t), &sig);
}

struct epoll *ready_epoll_new(int ep)
{
	if (ep >= FDTAB_CHUNK)
		return NULL;
	fdtab_set(ep, FD_EPOLL, epolls[ep], NULL);
	return (struct epoll *)epolls[ep];
}

uint32_t ready_epoll_gen(struct epoll *e) { (void)e; return 0; }
int ready_epoll_items(struct epoll *e) { (void)e; return 0; }
bool ready_epoll_fast(struct epoll *e) { (void)e; return false; }
void ready_shared(struct epoll *e) { (void)e; }
void ready_mark_shared(struct epoll *e) { (void)e; }
bool ready_epoll_dup(struct epoll *e, uint32_t gen, int fd, int to)
{
	(void)gen, (void)fd;
	fdtab_set(to, FD_EPOLL, e, NULL);
	return true;
}

bool ready_epoll_forget_fd(struct epoll *e, int fd, bool closing)
{
	(void)e;
	(void)closing;
	fdtab_set(fd, FD_NONE, NULL, NULL);
	errno = 0;
	return true;
}

int ready_epoll_ctl(struct epoll *e, int ep, int op, int fd, struct epoll_event *ev)
{
	(void)e;
	return (int)sys(SYS_epoll_ctl, ep, op, fd, ev);
}

int ready_epoll_wait(struct epoll *e, int ep, struct epoll_event *ev, int max, uint64_t deadline_ns,
		     const sigset_t *mask)
{
	struct timespec t;

	(void)e;
	return (int)sys(SYS_epoll_pwait2, ep, ev, max, left(deadline_ns, &t), mask, 8);
}

void shim_before_exec(void) { errno = 0; }
void exit_fallback(void) { errno = 0; }
void exit_fallback_all(void) { }
int fork_child_holds(struct stream *s) { (void)s; errno = 0; return 0; }
bool loop_only_other_thread(void) { return false; }
bool fork_keeps_fd(int fd) { (void)fd; return false; }
void fork_hold_survivors(void) { errno = 0; }
void fork_before_spawn(bool (*named)(const void *what, int fd), const void *what)
{
	(void)named;
	(void)what;
	errno = 0;
}
void fork_after_spawn(int pid) { (void)pid; errno = 0; }
void ready_park_again(void) { errno = 0; }
int stream_fallback_while(struct stream *s, enum reason r, bool nonblock)
{
	(void)s, (void)r, (void)nonblock;
	errno = 0;
	return 0;
}

int stream_fallback_to_read(struct stream *s, enum reason r, bool nonblock)
{
	return stream_fallback_while(s, r, nonblock);
}

void stream_fallback_over(struct stream *s, uint32_t gen, bool failed, enum reason r)
{
	(void)s, (void)gen, (void)failed, (void)r;
}
void streams_fallback_while(bool (*which)(struct stream *s, int fd), enum reason r)
{
	(void)which, (void)r;
	errno = 0;
}
void streams_fallback_over(void) { errno = 0; }
int process_of_pidfd(int pidfd) { (void)pidfd; return -1; }
void fork_watch(int pid) { (void)pid; errno = 0; }
void fork_failed(void) { errno = 0; }
void shim_exec_failed(void) { errno = 0; }
void shim_before_pass(const struct msghdr *msg) { (void)msg; errno = 0; }
void shim_off(enum reason r) { (void)r; shim_on = false; }
void streams_closed(void) { }
void shim_before_io_uring(void) { }
void streams_to_tcp(enum reason r) { (void)r; }
void ready_foreign(struct epoll *e) { (void)e; }
void ready_watch(struct epoll *e, bool level) { (void)e; (void)level; }
void gpu_off(const char *why) { (void)why; }
void gpu_veil_end(void) { }
void loop_pause(void) { }
void loop_resume(void) { }
bool loop_lost(void) { return false; }
bool loop_alone(void) { return false; }
uint32_t own_threads(void) { return 0; }
void own_threads_without_groups(void) { }
bool own_threads_have_groups(void) { return true; }
bool loop_can_begin(void) { return true; }
void critical_done(void) { }
_Thread_local struct thread_signals thread_signals;
bool shim_wanted(void) { return true; }
void shim_fork_prepare(void) { }
void shim_fork_parent(void) { }
void shim_fork_child(void) { }
void fork_not_seen(void) { }
struct bell *loop_bell(void) { return NULL; }
bool loop_hold(uint64_t end_us) { (void)end_us; errno = 0; return false; }
void loop_go_on(void) { }
void own_threads_hold(uint64_t end_us) { (void)end_us; errno = 0; }
void own_threads_go_on(void) { }
void stream_learn_leave(struct stream *s, uint32_t gen) { (void)s; (void)gen; }
