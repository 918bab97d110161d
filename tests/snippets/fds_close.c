/*
 * fds_close.c - descriptors that are closed or replaced while other threads use them. Calls: dup
 * dup2 dup3 fcntl close close_range
 * LIBS: -ldl
 */
#include <limits.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "arch/arch.h"
#include "snip.h"

static char t[256];

static volatile int stop;
static void *storm(void *arg)
{
	int pp[2];

	(void)arg;
	while (!stop) {
		if (pipe(pp))
			continue;
		write(pp[1], "pipe", 4);
		if (read(pp[0], page, 10) != 4 || memcmp(page, "pipe", 4))
			tell("a foreign byte in a pipe");
		close(pp[0]);
		close(pp[1]);
	}
	return NULL;
}
/* Whoever asks for a number that is closed is not told of what another thread has there for a
 * moment. */
SNIPPET(getfd_of_closed, "fcntl close")
{
	unsigned open = 0;
	int lower;

	for (int i = 0; i < 20; i++) {
		pair();
		put(a, b, "to have the library at work");
		recv(b, t, 27, MSG_WAITALL);
		lower = dup(a);		/* where the listener was */
		close(b);
		for (int k = 0; k < 4000; k++)
			open += fcntl(b, F_GETFD) >= 0;
		close(a);
		close(lower);
	}
	tell("open: %u", open);
}

SNIPPET(close_storm, "close dup dup2 recv send")
{
	pthread_t th;

	pthread_create(&th, NULL, storm, NULL);
	for (int i = 0; i < 60; i++) {
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL),
			d = dup(y);
		char v[8];

		close(l);
		nap_us(random() % 1000);
		send(x, "stream", 6, MSG_NOSIGNAL);
		close(y);
		if (recv(d, v, 6, MSG_WAITALL) != 6 || memcmp(v, "stream", 6))
			tell("%d: wrong bytes", i);
		close(x);
		close(d);
	}
	stop = 1;
	pthread_join(th, NULL);
	tell("done");
}

#define SAME 200	/* a number that nothing else takes */

static void *closes_same(void *arg)
{
	(void)arg;
	while (!stop) {
		close(SAME);
		if (dup2(0, SAME) == SAME)
			close_range(SAME, SAME, 0);
	}
	return NULL;
}

/* One number, closed and replaced by three threads as soon as it is a connection or an epoll
 * instance: each close is some thread's. */
SNIPPET(close_by_all, "close dup2 close_range epoll_create1")
{
	pthread_t th[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&th[i], NULL, closes_same, NULL);
	for (int i = 0; i < 150; i++) {
		int ep = epoll_create1(0);

		pair();
		for (int k = 0; k < 10; k++) {
			dup2(k & 1 ? ep : a, SAME);
			close(SAME);
		}
		close(ep);
		send(b, "alive", 5, MSG_NOSIGNAL);
		if (recv(a, page, 5, MSG_WAITALL) != 5 || memcmp(page, "alive", 5))
			tell("%d: wrong bytes", i);
		close(a);
		close(b);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	tell("done");
}

/* A program's file under a number that was free: the descriptors that the library makes
 * meanwhile, for new connections, never take its place. */
SNIPPET(onto_free, "dup2 dup3 close")
{
	int src = open("/dev/null", O_RDWR), bad = 0, l;
	struct sockaddr_in at;
	struct stat was, is;

	fstat(src, &was);
	pair();
	l = listener_at(&at);
	for (int i = 0; i < 150 && bad < 5; i++) {
		int x = connect_to(&at), y = accept(l, NULL, NULL), low = dup(src);
		uint64_t end = now_us() + 1500;

		close(low);
		while (now_us() < end) {
			bool right = (i & 1 ? dup3(src, low, O_CLOEXEC) : dup2(src, low)) == low;

			for (int k = 0; k < 20 && right; k++)
				right = fstat(low, &is) == 0 && is.st_rdev == was.st_rdev &&
					is.st_ino == was.st_ino;
			if ((close(low) || !right) && bad++ < 5)
				tell("%d: another file in its place, or none", i);
		}
		close(x);
		close(y);
	}
	alive("a connection from before", a, b);
}

#define MOST_MS 2500	/* on a crowded machine fewer rounds */

/* One thread closes the number that another makes a rare call on. */
static int rare_fd, rare_kind;
static _Atomic int rare_turn, rare_done;
static void *rare_calls(void *arg)
{
	int one = 1;
	struct iovec v = { "x", 1 };

	(void)arg;
	for (int seen = 0, turn; (turn = rare_turn) >= 0; ) {
		if (turn == seen) {
			sched_yield();
			continue;
		}
		for (int k = turn % 64; k; k--)
			arch_pause();
		switch (rare_kind) {
		case 0: setsockopt(rare_fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one); break;
		case 1: fcntl(rare_fd, F_SETFL, O_ASYNC); break;
		case 2: dprintf(rare_fd, "x"); break;
		case 3: shutdown(rare_fd, SHUT_WR); break;
		case 4: pwritev2(rare_fd, &v, 1, -1, RWF_NOWAIT); break;
		case 5: recv(rare_fd, t, 1, MSG_OOB | MSG_DONTWAIT); break;
		case 6: recv(rare_fd, t, 1, MSG_DONTWAIT); break;
		}
		rare_done = seen = turn;
	}
	return NULL;
}
SNIPPET(rare_beside_close, "setsockopt fcntl dprintf shutdown pwritev2 recv close")
{
	struct sockaddr_in at;
	int l = listener_at(&at);
	pthread_t th;
	uint64_t end;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	pthread_create(&th, NULL, rare_calls, NULL);
	end = now_ms() + MOST_MS;
	for (int i = 1; i <= 2100 && now_ms() < end; i++) {
		int x = connect_to(&at), y = accept(l, NULL, NULL);

		rare_fd = x;
		rare_kind = i % 7;
		send(y, "bytes", 5, MSG_NOSIGNAL);
		rare_turn = i;
		for (int k = i / 64 % 128; k; k--)
			arch_pause();
		close(x);
		while (rare_done != i)
			sched_yield();
		close(y);
	}
	rare_turn = -1;
	pthread_join(th, NULL);
	tell("done");
}

/* A call that meets SIGSYS in the kernel: when it comes back its number is closed, and another
 * connection may have all that was its own. The handler stands for the thread that closes; the
 * filter goes past the C library, so that nothing but that call is different. */
#define OTHER_FLAG 0x40000000	/* no flag of the kernel's: only that call has it */
static struct sockaddr_in reused_at;
static int reused_fd;
static void comes_between(int sig, siginfo_t *si, void *uc)
{
	(void)sig, (void)si;
	close(reused_fd);
	reused_fd = connect_to(&reused_at);
	nap_us(20000);	/* nobody asks the kernel for its flags later */
	ARCH_RESULT(uc) = 0;
}
static void *says_late(void *fd)
{
	nap_us(100000);
	send((int)(intptr_t)fd, "late", 4, MSG_NOSIGNAL);
	return NULL;
}
SNIPPET(flags_beside_close, "fcntl socket close recv")
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OTHER_FLAG | O_NONBLOCK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(*f), f };
	struct sigaction sa = { .sa_sigaction = comes_between, .sa_flags = SA_SIGINFO };
	int l = listener_at(&reused_at), y;
	pthread_t th;

	sigaction(SIGSYS, &sa, NULL);
	pair();		/* so that nothing has to be made in the handler */
	reused_fd = socket(AF_INET, SOCK_STREAM, 0);
	SAY("filter", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    sys6(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&prog, 0, 0, 0));
	SAY("O_NONBLOCK for the one that is closed",
	    fcntl(reused_fd, F_SETFL, O_NONBLOCK | OTHER_FLAG));
	y = accept(l, NULL, NULL);
	cut_wait(reused_fd);
	cut_wait(y);
	pthread_create(&th, NULL, says_late, (void *)(intptr_t)y);
	SAY("the other one waits", recv(reused_fd, t, 4, 0));
	pthread_join(th, NULL);
}

/* The copy is asked for when the library has forgotten the instance and the kernel has it still.
 * It is a copy of all, or there is none. */
static int going, copy;
static void copies_it(int sig, siginfo_t *si, void *uc)
{
	(void)sig, (void)si, (void)uc;
	copy = dup(going);
}
SNIPPET(dup_beside_close_of_epoll, "dup epoll_create1 epoll_ctl epoll_wait close")
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 300, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(*f), f };
	struct sigaction sa = { .sa_sigaction = copies_it, .sa_flags = SA_SIGINFO };
	struct epoll_event ev = { .events = EPOLLIN };
	int e = epoll_create1(0);

	pair();
	going = dup2(e, 300);
	close(e);
	epoll_ctl(going, EPOLL_CTL_ADD, b, &ev);
	SAY("nothing yet", epoll_wait(going, &ev, 1, 0));
	sigaction(SIGSYS, &sa, NULL);
	SAY("filter", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    sys6(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&prog, 0, 0, 0));
	close(going);
	put(a, b, "x");
	tell("a copy waits, or there is none: %d", copy < 0 || epoll_wait(copy, &ev, 1, 2000) == 1);
}

/* A connect() that waits, while another thread closes its number. */
static _Atomic int connects_tid;
static void *connects(void *at)
{
	connects_tid = gettid();
	if (connect(rare_fd, at, sizeof(struct sockaddr_in)))
		tell("connect fails");
	return NULL;
}
SNIPPET(connect_beside_close, "connect close")
{
	struct sockaddr_in at;
	int l = listener_at(&at), full, go[2];
	char path[64], in[16] = "";
	pthread_t th;
	pid_t p;

	listen(l, 0);
	fflush(stdout);
	if (pipe(go))
		die("pipe");
	p = fork();
	if (!p) {	/* what this process makes itself meanwhile is no part of it */
		read(go[0], in, 1);
		accept(l, NULL, NULL);
		accept(l, NULL, NULL);
		_exit(0);
	}
	close(l);
	full = connect_to(&at);		/* nobody else gets in */
	rare_fd = socket(AF_INET, SOCK_STREAM, 0);
	connects_tid = 0;
	pthread_create(&th, NULL, connects, &at);
	for (int i = 0, f; i < 100 && atoi(in) != SYS_connect; i++, close(f)) {
		nap_us(20000);
		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", connects_tid);
		f = open(path, O_RDONLY);
		read(f, in, sizeof(in) - 1);
	}
	SAY("close", close(rare_fd));
	write(go[1], "g", 1);
	pthread_join(th, NULL);
	close(full);
	waitpid(p, NULL, 0);
	tell("done");
}

/* One thread changes an instance that another closes: what has its place is another instance. */
static int ctl_ep, ctl_fd;
static void *ctl_del(void *arg)
{
	(void)arg;
	for (int seen = 0, turn; (turn = rare_turn) >= 0; ) {
		if (turn == seen)
			continue;
		for (int k = turn * 7 % 97; k; k--)
			arch_pause();
		epoll_ctl(ctl_ep, EPOLL_CTL_DEL, ctl_fd, NULL);
		rare_done = seen = turn;
	}
	return NULL;
}
SNIPPET(epoll_ctl_beside_close, "epoll_ctl epoll_create1 close")
{
	struct epoll_event ev = { EPOLLIN, { .u32 = 1 } };
	int lost = 0;
	pthread_t th;
	uint64_t end;

	pair();
	ctl_fd = b;
	rare_turn = 0;
	pthread_create(&th, NULL, ctl_del, NULL);
	end = now_ms() + MOST_MS;
	for (int i = 1; i <= 500 && now_ms() < end; i++) {
		int other;

		ctl_ep = epoll_create1(0);
		epoll_ctl(ctl_ep, EPOLL_CTL_ADD, b, &ev);
		rare_turn = i;
		for (int k = i * 13 % 211; k; k--)
			arch_pause();
		close(ctl_ep);
		dup2(0, ctl_ep);
		other = epoll_create1(0);	/* of another number */
		epoll_ctl(other, EPOLL_CTL_ADD, b, &ev);
		while (rare_done != i)
			sched_yield();
		put(a, b, "x");
		lost += epoll_wait(other, &(struct epoll_event){ 0 }, 1, 1000) != 1;
		recv(b, t, 1, 0);
		close(ctl_ep);
		close(other);
	}
	rare_turn = -1;
	pthread_join(th, NULL);
	tell("lost %d", lost);
}

/* A thread waits in an instance that is closed: what the one that comes after it has to tell is
 * not told to that thread. */
static struct epoll_event waits_got[8];
static int waits_ret;
static void *waits_in(void *arg)
{
	(void)arg;
	for (int seen = 0, turn; (turn = rare_turn) >= 0; ) {
		if (turn == seen)
			continue;
		waits_ret = epoll_wait(ctl_ep, waits_got, 8, 3);
		rare_done = seen = turn;
	}
	return NULL;
}
SNIPPET(epoll_wait_beside_close, "epoll_wait epoll_create1 close")
{
	struct epoll_event old = { EPOLLIN | EPOLLET, { .u32 = 1 } },
		ev = { EPOLLIN | EPOLLET, { .u32 = 2 } };
	int lost = 0, c, d;
	pthread_t th;
	uint64_t end;

	pair();
	pair_of(&c, &d);
	rare_turn = 0;
	pthread_create(&th, NULL, waits_in, NULL);
	end = now_ms() + MOST_MS;
	for (int i = 1; i <= 300 && now_ms() < end; i++) {
		int other;

		ctl_ep = epoll_create1(0);
		epoll_ctl(ctl_ep, EPOLL_CTL_ADD, b, &old);
		rare_turn = i;
		for (int k = i * 13 % 811; k; k--)
			arch_pause();
		close(ctl_ep);
		dup2(0, ctl_ep);
		other = epoll_create1(0);	/* of another number */
		epoll_ctl(other, EPOLL_CTL_ADD, d, &ev);
		send(c, "x", 1, 0);
		while (rare_done != i)
			sched_yield();
		lost += waits_ret > 0 || epoll_wait(other, &(struct epoll_event){ 0 }, 1,
						    1000) != 1;
		recv(d, t, 1, 0);
		close(ctl_ep);
		close(other);
	}
	rare_turn = -1;
	pthread_join(th, NULL);
	tell("lost %d", lost);
}

/* One thread closes the number that another copies: the copy stands for the connection, or there
 * is none. */
static int racer_fd;
static _Atomic int racer_turn, racer_done;
static void *closes_it(void *arg)
{
	(void)arg;
	for (int seen = 0, turn; (turn = racer_turn) >= 0; ) {
		if (turn == seen) {
			sched_yield();
			continue;
		}
		close(racer_fd);
		racer_done = seen = turn;
	}
	return NULL;
}
SNIPPET(dup_beside_close, "dup dup2 fcntl close")
{
	int bad = 0, lost = 0, f = open("/dev/null", O_RDWR);
	pthread_t th;

	pthread_create(&th, NULL, closes_it, NULL);
	pair();
	for (int i = 1; i <= 60; i++) {		/* the same work however the race ends */
		int d;

		racer_fd = a;
		racer_turn = i;
		for (int k = i % 50 * 20; k; k--)
			arch_pause();
		d = i % 3 == 0 ? dup(a) : i % 3 == 1 ? fcntl(a, F_DUPFD, 100) : dup2(a, f);
		while (racer_done != i)
			sched_yield();
		nap_us(500);	/* a cut or a rewind, by the descriptor that is left */
		if (d < 0) {	/* and the target of dup2() is what it was */
			bad += errno != EBADF || recv(b, t, 1, 0) != 0 || fcntl(f, F_GETFD) < 0;
			lost++;
			close(b);
			pair();
			continue;
		}
		a = d;
		bad += !both_ways(a, b);
		if (d == f)
			f = open("/dev/null", O_RDWR);
	}
	racer_turn = -1;
	pthread_join(th, NULL);
	tell("bad %d", bad);
	shutdown(a, SHUT_WR);
	SAY("the end", recv(b, t, 1, 0));
	SAY("send", send(b, "x", 1, MSG_NOSIGNAL));
	SAY("recv", recv(a, t, 1, 0));
}
