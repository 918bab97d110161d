/*
 * wrap_socket.c - wrappers of the calls that make, connect and configure sockets.
 *
 * Turns negative errno into -1 and errno. Holds no lock; the stream functions take what they need.
 */
#include "base/sock.h"
#include "conn/stream_learn.h"
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "discovery/identity.h"
#include "policy/log.h"
#include "wrap/wrap.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "arch/newer.h"

#define ALIAS(alias, name, where) ALIAS_##where(alias, name)
#define ALIAS_socket(alias, name) WRAP_ALIAS(alias, name)
#define ALIAS_send(alias, name)
#define ALIAS_recv(alias, name)
#define ALIAS_fd(alias, name)
#define ALIAS_stdio(alias, name)
#define ALIAS_wait(alias, name)
#define ALIAS_clone(alias, name)
#define ALIAS_signal(alias, name)

/* Enters a fresh TCP socket. NULL: the library will not know it, which is always safe. */
static struct stream *enter(int fd, enum stream_role role, bool nonblock,
			    const struct sockaddr *peer)
{
	struct stream *s = stream_new(fd, role, nonblock, peer);

	/* 0, 1 and 2 are stdio's; it reads and writes from inside libc. */
	if (s && fd <= 2)
		(void)stream_make_tcp_only(s, REASON_STDIO);
	return s;
}

static void count_new(enum call_id id, struct stream *s)
{
	if (s)
		count_call(id, s);
}

int wrap_socket(int domain, int type, int protocol)
{
	int fd = REAL(socket)(domain, type, protocol);
	int e = errno;

	if (fd < 0 || !shim_on)
		return fd;
	fd_fresh(fd);
	if ((domain == AF_INET || domain == AF_INET6) &&
	    (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
	    (protocol == 0 || protocol == IPPROTO_TCP))
		count_new(ID_socket, enter(fd, ROLE_CLIENT, type & SOCK_NONBLOCK, NULL));
	errno = e;
	return fd;
}

int wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	int r, e;

	if (!s || len > sizeof(struct sockaddr_storage) || usermem_bad(addr, len ? len : 1, false))
		return REAL(connect)(fd, addr, len);
	count_call(ID_connect, s);
	if ((len >= sizeof(addr->sa_family) && addr->sa_family == AF_UNSPEC) ||
	    (!stream_tcp_only(s) && !stream_before_connect(s, gen, fd))) {
		if (!fall_back_now(s, REASON_SOCKOPT)) {
			errno = ETIMEDOUT;
			return -1;
		}
	}
	r = REAL(connect)(fd, addr, len);
	if (!stream_tcp_only(s)) {
		e = errno;
		stream_connect_result(s, gen, r ? e : 0);
		errno = e;
	}
	return r;
}

/* Listeners that bear our mark, by number, so that what they accept has it. An old number with a
 * new listener on it may stand here wrongly: its connections are searched for less long. */
#define NUMBERS 65536
typedef _Atomic uint64_t number_set[NUMBERS / 64];
static number_set marked, keeps_syn;	/* keeps_syn: the same with what connections between
					 * hosts are known by */

static void add(number_set set, int fd)
{
	if ((unsigned)fd < NUMBERS)
		atomic_fetch_or(&set[fd / 64], 1ull << fd % 64);
}

static bool has(number_set set, int fd)
{
	return (unsigned)fd < NUMBERS &&
	       atomic_load_explicit(&set[fd / 64], memory_order_relaxed) >> fd % 64 & 1;
}

static void forget_listener(int fd)
{
	if ((unsigned)fd >= NUMBERS)
		return;
	atomic_fetch_and(&marked[fd / 64], ~(1ull << fd % 64));
	atomic_fetch_and(&keeps_syn[fd / 64], ~(1ull << fd % 64));
}

static void mark_listener(int fd)
{
	add(marked, fd);
	socket_mark(fd);
}

static void keep_syn(int fd)
{
	if (!shim_tunables()->discovery_port &&
	    !*policy_cross_ns_dir(atomic_load(&shim_policy)))
		return;
	add(keeps_syn, fd);
	identity_save_syn(fd);
}

static void becomes_listener(int fd)
{
	mark_listener(fd);
	keep_syn(fd);
}

int wrap_listen(int fd, int backlog)
{
	struct stream *s = shim_on ? fdtab_stream(fd) : NULL;
	int r, e;
	/* One that is connected, perhaps no more, by the kernel: only when that has said so. */
	bool early = s && !atomic_load(&s->connected);

	if (early)
		becomes_listener(fd);
	r = REAL(listen)(fd, backlog);
	e = errno;
	if (r && early)
		forget_listener(fd);
	if (r == 0 && s && !early)
		becomes_listener(fd);
	if (r == 0 && s)
		stream_fd_stale(s, fd);	/* not a stream after all */
	errno = e;
	return r;
}

static bool address_refused(const struct sockaddr *addr, const socklen_t *len)
{
	size_t most = sizeof(struct sockaddr_storage);

	return usermem_bad(len, sizeof(*len), true) || (int)*len < 0 ||
	       (*len && usermem_bad(addr, *len < most ? *len : most, true));
}

/* The peer's address goes into `own` whenever the application's buffer might be too small to
 * show it. */
static int accept_any(int fd, struct sockaddr *addr, socklen_t *len, int flags, bool four)
{
	struct sockaddr_storage own;
	socklen_t own_len = sizeof(own), cut;
	struct stream *s;
	int r, e;

	/* Without shim, or with arguments for which the kernel has an error of its own. */
	if (!shim_on || (addr && address_refused(addr, len))) {
		r = four ? REAL(accept4)(fd, addr, len, flags) : REAL(accept)(fd, addr, len);
		if (r >= 0 && shim_on)	/* there was room enough for it */
			fd_fresh(r);
		return r;
	}

	own.ss_family = AF_UNSPEC;
	r = four ? REAL(accept4)(fd, (struct sockaddr *)&own, &own_len, flags) :
		   REAL(accept)(fd, (struct sockaddr *)&own, &own_len);
	if (r < 0)
		return r;
	e = errno;
	if (addr) {
		cut = *len < own_len ? *len : own_len;
		memcpy(addr, &own, cut);
		*len = own_len;
	}
	fd_fresh(r);
	if (own.ss_family == AF_INET || own.ss_family == AF_INET6) {
		if (!has(marked, fd)) {	/* inherited */
			mark_listener(fd);
			socket_mark(r);
		}
		if (!has(keeps_syn, fd))	/* or the policy has changed */
			keep_syn(fd);
		s = enter(r, ROLE_SERVER, flags & SOCK_NONBLOCK, (struct sockaddr *)&own);
		count_new(four ? ID_accept4 : ID_accept, s);
	}
	errno = e;
	return r;
}

int wrap_accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept_any(fd, addr, len, 0, false);
}

int wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return accept_any(fd, addr, len, flags, true);
}

int wrap_shutdown(int fd, int how)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);

	if (!s || how < SHUT_RD || how > SHUT_RDWR)
		return REAL(shutdown)(fd, how);
	count_call(ID_shutdown, s);
	return (int)outside(stream_shutdown(s, gen, fd, how));
}

/* Options that a stream may have on a fast path: the kernel acts on them on the home socket, or
 * stream_setsockopt() follows them, or they do not matter to bytes. Anything else makes it
 * TCP-only. */
static bool socket_option_ok(int name, const void *val, socklen_t len)
{
	switch (name) {
	case SO_RCVLOWAT: {
		int n = 0;

		if (len >= sizeof(n) && !usermem_bad(val, sizeof(n), false))
			memcpy(&n, val, sizeof(n));
		return n <= 1 && n >= 0;
	}
	case SO_DEBUG: case SO_REUSEADDR: case SO_REUSEPORT: case SO_TYPE: case SO_ERROR:
	case SO_DONTROUTE: case SO_BROADCAST: case SO_SNDBUF: case SO_RCVBUF: case SO_SNDBUFFORCE:
	case SO_RCVBUFFORCE: case SO_KEEPALIVE: case SO_OOBINLINE: case SO_PRIORITY: case SO_LINGER:
	case SO_RCVTIMEO_OLD: case SO_SNDTIMEO_OLD: case SO_RCVTIMEO_NEW: case SO_SNDTIMEO_NEW:
	case SO_SNDLOWAT:
	case SO_BINDTODEVICE:
	case SO_MARK:
	case SO_BUSY_POLL:
	case SO_INCOMING_CPU:
	case SO_PREFER_BUSY_POLL: case SO_BUSY_POLL_BUDGET: case SO_ATTACH_REUSEPORT_CBPF:
	case SO_ATTACH_REUSEPORT_EBPF: case SO_DETACH_FILTER: case SO_LOCK_FILTER: case SO_PASSCRED:
	case SO_TXREHASH: case SO_BUF_LOCK: case SO_BINDTOIFINDEX:
	case SO_ZEROCOPY:	/* alone it does nothing: sends ask with MSG_ZEROCOPY */
		return true;
	default:
		return false;
	}
}

static bool tcp_option_ok(int name)
{
	switch (name) {
	case TCP_NODELAY: case TCP_MAXSEG: case TCP_CORK: case TCP_KEEPIDLE: case TCP_KEEPINTVL:
	case TCP_KEEPCNT:
	case TCP_SYNCNT:
	case TCP_LINGER2:
	case TCP_DEFER_ACCEPT:
	case TCP_WINDOW_CLAMP:
	case TCP_QUICKACK: case TCP_CONGESTION: case TCP_THIN_LINEAR_TIMEOUTS: case TCP_THIN_DUPACK:
	case TCP_USER_TIMEOUT: case TCP_FASTOPEN: case TCP_NOTSENT_LOWAT: case TCP_SAVE_SYN:
	case TCP_FASTOPEN_CONNECT: case TCP_FASTOPEN_KEY: case TCP_FASTOPEN_NO_COOKIE: case TCP_INQ:
		return true;
	default:
		return false;
	}
}

static bool option_ok(int level, int name, const void *val, socklen_t len)
{
	switch (level) {
	case SOL_SOCKET:
		return socket_option_ok(name, val, len);
	case IPPROTO_TCP:
		return tcp_option_ok(name);
	case IPPROTO_IP:
		return name != IP_RECVERR;
	case IPPROTO_IPV6:
		/* IPV6_ADDRFORM turns the socket into an AF_INET one */
		return name != IPV6_RECVERR && name != IPV6_ADDRFORM;
	default:
		return false;
	}
}

static bool delay_option(int level, int name)
{
	return (level == IPPROTO_TCP && (name == TCP_NOTSENT_LOWAT || name == TCP_NODELAY)) ||
	       (level == SOL_SOCKET && name == SO_MAX_PACING_RATE);
}

/* A cut, and a rewind, set TCP_NODELAY for a moment, and a search the other (stream_hold.c), and
 * put back what was there: nobody may look, or set it, meanwhile. */
static void delay_hold(struct stream *s, int level, int name)
{
	stream_lock(s);
	if (level == IPPROTO_TCP && name == TCP_NODELAY)
		return;
	hold_end(s);
	s->snd.hold.never = 1;
}

/* What is answered in the kernel's error queue, and a filter, which there is one of. */
static bool ends_learning(int level, int name)
{
	switch (level) {
	case SOL_SOCKET:
		return name == SO_ZEROCOPY || name == SO_TIMESTAMPING_OLD ||
		       name == SO_TIMESTAMPING_NEW || name == SO_ATTACH_FILTER ||
		       name == SO_ATTACH_BPF || name == SO_DETACH_FILTER || name == SO_LOCK_FILTER;
	case IPPROTO_IP:
		return name == IP_RECVERR;
	case IPPROTO_IPV6:
		return name == IPV6_RECVERR;
	default:
		return false;
	}
}

/* One that a fast path cannot have. */
static int kernels_option(struct stream *s, uint32_t gen, int fd, int level, int name,
			  const void *val, socklen_t len)
{
	int r = fallback_while(s, REASON_SOCKOPT) ? REAL(setsockopt)(fd, level, name, val, len)
						  : -1;

	stream_fallback_over(s, gen, r < 0, REASON_SOCKOPT);
	if (r == 0)
		log_line(3, "fd %d: option %d of level %d is the kernel's alone, staying on TCP",
			 fd, name, level);
	return r;
}

/* Of those of delay_option() the kernel looks at so much, if there is. SO_MAX_PACING_RATE may be an
 * unsigned long. */
static socklen_t option_size(int level, socklen_t len)
{
	return level == SOL_SOCKET && len >= sizeof(uint64_t) ? sizeof(uint64_t) : sizeof(int);
}

int wrap_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	uint64_t word;
	socklen_t n;
	bool own;
	int r, e;

	if (level == IPPROTO_TCP && name == TCP_SAVE_SYN && shim_on)
		identity_leave_syn();
	if (!s)
		return REAL(setsockopt)(fd, level, name, val, len);
	count_call(ID_setsockopt, s);
	if (ends_learning(level, name))
		stream_learn_leave(s, gen);
	if (!option_ok(level, name, val, len))
		return kernels_option(s, gen, fd, level, name, val, len);
	/* no lock is held while the kernel touches the program's memory */
	n = option_size(level, len);
	own = delay_option(level, name) && (int)len >= (int)n && !usermem_bad(val, n, false);
	if (own) {
		val = memcpy(&word, val, n);
		len = n;
		delay_hold(s, level, name);
	}
	r = REAL(setsockopt)(fd, level, name, val, len);
	e = errno;
	if (r == 0 && !stream_tcp_only(s))
		stream_setsockopt(s, gen, level, name, val, len);
	if (own)
		stream_unlock(s);
	errno = e;
	return r;
}

int wrap_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	uint32_t gen;
	struct stream *s = live_stream_gen(fd, &gen);
	socklen_t n;
	uint64_t word;
	int err, r;

	if (!s)
		return REAL(getsockopt)(fd, level, name, val, len);
	count_call(ID_getsockopt, s);
	if (level == SOL_SOCKET && name == SO_GET_FILTER)
		stream_learn_leave(s, gen);
	if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE) {
		r = fallback_to_read(s, REASON_SOCKOPT) ?
			    REAL(getsockopt)(fd, level, name, val, len) :
			    -1;
		stream_fallback_over(s, gen, r < 0, REASON_SOCKOPT);
		return r;
	}
	if (level == SOL_SOCKET && name == SO_ERROR && !usermem_bad(len, sizeof(*len), true) &&
	    (int)*len >= 0 && !usermem_bad(val, sizeof(err), true)) {
		err = stream_take_error(s, gen);
		if (err) {
			n = *len < sizeof(err) ? *len : sizeof(err);
			memcpy(val, &err, n);
			*len = n;
			return 0;
		}
	}
	if (!delay_option(level, name) || usermem_bad(len, sizeof(*len), true) || (int)*len < 0)
		return REAL(getsockopt)(fd, level, name, val, len);
	n = option_size(level, *len);
	n = *len < n ? *len : n;
	if (n && usermem_bad(val, n, true))
		return REAL(getsockopt)(fd, level, name, val, len);
	delay_hold(s, level, name);
	r = REAL(getsockopt)(fd, level, name, &word, &n);
	err = errno;
	stream_unlock(s);
	if (!r) {
		memcpy(val, &word, n);
		*len = n;
	}
	errno = err;
	return r;
}

#include "libc/calls.def"
