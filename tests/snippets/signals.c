/*
 * signals.c - handlers that interrupt calls, and use what they interrupted. Calls: sigaction
 * __sigaction signal bsd_signal ssignal sysv_signal __sysv_signal sigset siginterrupt sigignore
 * sigvec
 * LIBS: -ldl
 */
#include <setjmp.h>

#include "snip.h"

static char t[256];

static void signals_main(void) { syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1); }
static void signals_then_sends(void)
{
	signals_main();
	until_sleeps(main_tid);
	send(a, "x", 1, 0);
}

/* Is recv() restarted by a handler that was installed like this? */
static void restarts(const char *what)
{
	when_blocked(signals_then_sends);
	SAY(what, recv(b, t, 10, 0));
	helper_done();
	recv(b, t, 10, MSG_DONTWAIT);
	tell("signals %d", signals);
}

SNIPPET(sig_sigaction, "sigaction __sigaction")
{
	struct sigaction s = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, old;

	pair();
	sigaction(SIGUSR1, &s, NULL);
	restarts("SA_RESTART");
	s.sa_flags = 0;
	SAYV("__sigaction", SYM(__sigaction, sigaction)(SIGUSR1, &s, &old));
	tell("old handler %d, flags %#x", old.sa_handler == on_signal,
	     (unsigned)old.sa_flags & ~0x4000000u);
	restarts("without");
	s.sa_flags = SA_RESETHAND;
	sigaction(SIGUSR1, &s, NULL);
	restarts("SA_RESETHAND");
	sigaction(SIGUSR1, NULL, &old);
	tell("now the default %d", old.sa_handler == SIG_DFL);
	SAY("bad signal", sigaction(9999, &s, NULL));
	SAY("SIGKILL", sigaction(SIGKILL, &s, NULL));
}

SNIPPET(sig_signal, "signal bsd_signal ssignal")
{
	pair();
	tell("old %d", signal(SIGUSR1, on_signal) == SIG_DFL);
	restarts("signal");
	tell("old %d", SYM(bsd_signal, signal)(SIGUSR1, on_signal) == on_signal);
	restarts("bsd_signal");
	tell("old %d", SYM(ssignal, signal)(SIGUSR1, on_signal) == on_signal);
	restarts("ssignal");
	tell("bad %d", signal(9999, on_signal) == SIG_ERR);
}

SNIPPET(sig_sysv, "sysv_signal __sysv_signal sigset")
{
	pair();
	tell("old %d", SYM(sysv_signal, signal)(SIGUSR1, on_signal) == SIG_DFL);
	restarts("sysv_signal");
	tell("old %d", SYM(__sysv_signal, signal)(SIGUSR1, on_signal) == SIG_DFL);
	restarts("__sysv_signal");
	tell("old %d", SYM(sigset, signal)(SIGUSR1, on_signal) == SIG_DFL);
	restarts("sigset");
}

SNIPPET(sig_interrupt, "siginterrupt")
{
	pair();
	signal(SIGUSR1, on_signal);
	SAYV("siginterrupt on", SYM(siginterrupt, dup2)(SIGUSR1, 1));
	restarts("on");
	SAYV("siginterrupt off", SYM(siginterrupt, dup2)(SIGUSR1, 0));
	restarts("off");
	SAY("bad signal", SYM(siginterrupt, dup2)(9999, 0));
}

SNIPPET(sig_ignored, "sigignore sigvec signal")
{
	pair();
	SAYV("sigignore", SYM(sigignore, close)(SIGUSR1));
	when_blocked(signals_then_sends);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
	tell("sigvec exists: %d",
	     dlsym(RTLD_DEFAULT, "sigvec") || dlvsym(RTLD_DEFAULT, "sigvec", "GLIBC_2.2.5"));
}

static void uses_it(int s)
{
	(void)s;
	signals++;
	send(b, "from the handler", 16, 0);
}
SNIPPET(sig_handler_writes, "sigaction send recv")
{
	struct sigaction s = { .sa_handler = uses_it, .sa_flags = SA_RESTART };

	pair();
	sigaction(SIGUSR1, &s, NULL);
	when_blocked(signals_then_sends);
	SAY("recv goes on", recv(b, t, 10, 0));
	helper_done();
	SAY("what the handler sent", recv(a, t, 16, MSG_WAITALL));
	say_bytes("it is", t, 16);
}

static void reads_it(int s)
{
	(void)s;
	signals++;
	if (recv(b, t, 100, MSG_DONTWAIT) > 0)
		signals += 100;
}
SNIPPET(sig_handler_reads, "sigaction recv")
{
	struct sigaction s = { .sa_handler = reads_it };

	pair();
	sigaction(SIGUSR1, &s, NULL);
	when_blocked(signals_main);
	SAY("recv", recv(b, t, 10, 0));
	helper_done();
	tell("nothing for the handler %d", signals);
	put(a, b, "x");
	raise(SIGUSR1);
	tell("a byte for the handler %d", signals);
}

static void echoes(int s)
{
	char c;
	int e = errno;

	(void)s;
	signals++;
	while (recv(b, &c, 1, MSG_DONTWAIT) == 1)
		send(b, &c, 1, MSG_DONTWAIT);
	errno = e;
}
SNIPPET(sig_storm, "sigaction send recv setitimer")
{
	struct sigaction s = { .sa_handler = echoes, .sa_flags = SA_RESTART };
	struct itimerval it = { { 0, 500 }, { 0, 500 } }, off = { 0 };
	int got = 0;

	pair();
	sigaction(SIGALRM, &s, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	for (int i = 0; i < 300; i++) {
		char c = (char)i, d;

		if (send(a, &c, 1, 0) != 1)
			tell("send %d: %s", i, strerrorname_np(errno));
		if (recv(a, &d, 1, 0) == 1 && c == d)
			got++;
		else
			tell("recv %d", i);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	tell("%d of 300", got);
}

static sigjmp_buf back;
static void jumps(int s)
{
	(void)s;
	signals++;
	siglongjmp(back, 1);
}
SNIPPET(sig_jumps, "sigaction recv poll")
{
	struct sigaction s = { .sa_handler = jumps };
	struct pollfd p = { .events = POLLIN };

	pair();
	sigaction(SIGUSR1, &s, NULL);
	p.fd = b;
	if (!sigsetjmp(back, 1)) {
		when_blocked(signals_main);
		SAY("recv does not return", recv(b, t, 10, 0));
	}
	helper_done();
	tell("out of recv");
	if (!sigsetjmp(back, 1)) {
		when_blocked(signals_main);
		SAY("poll does not return", poll(&p, 1, -1));
	}
	helper_done();
	tell("out of poll, signals %d", signals);
	alive("after", a, b);
}

static siginfo_t info;
static void on_info(int sig, siginfo_t *i, void *ctx)
{
	(void)ctx;
	info = *i;
	signals = sig;
}
SNIPPET(sig_info, "sigaction")
{
	struct sigaction s = { .sa_sigaction = on_info, .sa_flags = SA_SIGINFO | SA_RESTART };
	union sigval v = { .sival_int = 4242 };

	pair();
	sigaction(SIGRTMIN + 1, &s, NULL);
	sigqueue(getpid(), SIGRTMIN + 1, v);
	tell("signal %d, code %d, value %d, pid %d", signals - SIGRTMIN, info.si_code,
	     info.si_value.sival_int, info.si_pid == getpid());
	alive("after", a, b);
}

static void interrupts_twice(void)
{
	signals_main();
	until_sleeps(main_tid);
	for (ssize_t r; (r = recv(b, page, sizeof(page), MSG_DONTWAIT)) > 0 || signals < 1; )
		;
}
/* Where paths are switched at random (jitter) the other one may have room late; the modes
 * without jitter show what is meant. */
static ssize_t send_beyond(int fd)
{
	ssize_t r = send(fd, buf, 1000, 0);

	if (!jitter || r != 1000)
		return r;
	errno = EINTR;
	return -1;
}

/* Until nothing more has gone for a while, in which TCP's late room has come: see send_full. */
static void fill_up(int fd)
{
	nonblocking(fd);
	for (uint64_t last = now_us(); now_us() - last < 500000; )
		if (send(fd, buf, 65536, 0) > 0)
			last = now_us();
		else
			nap_us(1000);
	blocking(fd);
}

SNIPPET(sig_send_blocked, "sigaction send")
{
	pair();
	fill_up(a);
	handle(SIGUSR1, 0);
	when_blocked(signals_main);
	SAY("no room", send_beyond(a));
	helper_done();
	handle(SIGUSR1, SA_RESTART);
	when_blocked(interrupts_twice);
	SAY("restarted", send(a, buf, 1000, 0));
	helper_done();
}

static int opened, copied, copy_closed, closes[2];
static void on_takes_number(int sig)
{
	int e = errno;

	(void)sig;
	while ((opened = open("/dev/null", O_RDWR)) >= 0 && opened < a)
		;
	copied = dup(opened);
	copy_closed = close(copied);
	closes[0] = close(opened);
	closes[1] = fcntl(opened, F_GETFD);
	errno = e;
}
/* The kernel has freed the number of a close() that lingers, and the handler gets it for a file. */
SNIPPET(sig_close_lingers, "sigaction close dup")
{
	struct sigaction s = { .sa_handler = on_takes_number };
	struct linger lg = { 1, 2 };

	pair();
	fill_up(a);
	setsockopt(a, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg));
	sigaction(SIGUSR1, &s, NULL);
	when_blocked(signals_main);
	SAY("close", close(a));
	helper_done();
	tell("in the handler: a file %d, a copy %d, closed %d %d, gone %d", opened >= 0,
	     copied >= 0, copy_closed, closes[0], closes[1]);
}
