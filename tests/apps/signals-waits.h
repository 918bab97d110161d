/*
 * signals-waits.h - a part of signals.c: what waits give, and which handlers are installed.
 */
static void count(int sig) { (void)sig; handled++; }

static void waits(void)
{
	int flags[] = { 0, SA_RESTART }, ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = { .events = EPOLLIN };
	struct timeval tv = { 5, 0 };
	struct pollfd p;
	fd_set r;
	char c = 'x';

	peer(late_byte);
	p = (struct pollfd){ .fd = fd, .events = POLLIN };
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	on(SIGUSR1, count, 0);		/* there, but never raised: it must not matter */
	on(SIGUSR2, count, SA_RESTART);
	for (int i = 0; i < 2; i++) {
		printf("%s: %s\n", scene, i ? "with SA_RESTART" : "without");
		handled = 0;
		on(SIGALRM, count, flags[i]);
		send(fd, &c, 1, 0);
		tick(40000, 0);
		say("recv", recv(fd, &c, 1, 0));
		if (!i)
			say("then", recv(fd, &c, 1, 0));
		tick(30000, 0);
		say("poll", poll(&p, 1, 3000));
		tick(30000, 0);
		say("epoll_wait", epoll_wait(ep, &e, 1, 3000));
		FD_ZERO(&r);
		FD_SET(fd, &r);
		tick(30000, 0);
		say("select", select(fd + 1, &r, NULL, NULL, NULL));
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		tick(30000, 0);
		say("recv with SO_RCVTIMEO", recv(fd, &c, 1, 0));
		tv.tv_sec = 0;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		tv.tv_sec = 5;
		say("signals", handled);
	}
	close(ep);
	over();
}

static void send_waits(void)
{
	static char b[1 << 20];
	ssize_t r = 0;

	peer(late_byte);	/* does not read much */
	on(SIGALRM, count, 0);
	while (send(fd, b, sizeof(b), MSG_DONTWAIT) > 0 ||
	       (nap(50), send(fd, b, 1, MSG_DONTWAIT)) > 0)
		;
	for (int i = 0; i < 20 && r >= 0; i++) {	/* a little room may come */
		tick(50000, 0);
		r = send(fd, b, sizeof(b), 0);
	}
	tick(0, 0);
	say("send", r);
	kill(pid, SIGKILL);
	close(fd);
	close(verdict);
	waitpid(pid, NULL, 0);
}

static void accepts(void)
{
	int s, p;

	on(SIGALRM, count, 0);
	tick(30000, 0);
	say("accept", accept(listener, NULL, NULL));
	on(SIGALRM, count, SA_RESTART);
	fflush(stdout);
	p = fork();
	if (!p) {
		nap(150);
		s = dial();
		nap(50);
		_exit(0);
	}
	tick(30000, 0);
	s = accept(listener, NULL, NULL);
	say("accept with SA_RESTART", s >= 0);
	close(s);
	waitpid(p, NULL, 0);
}

/* Timer and recv(): the signal comes while the call looks, or about to sleep. It may come before
 * the call (then the next one helps), but not often. */
static void timeouts_us(const char *what, int us, int step, int how)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC), n = 0, late = 0;
	char c;

	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	for (int i = 0; i < 300; i++) {
		long r;

		/* Now and then some traffic, so that looking for a while seems worth it. */
		c = 'x';
		for (int k = 0; k < 4 && how == 3; k++) {
			send(fd, &c, 1, 0);
			recv(fd, &c, 1, 0);
		}
		handled = 0;
		tick(us + i % 50 * step, 20000);
		r = how == 1   ? poll(&p, 1, -1)
		    : how == 2 ? epoll_wait(ep, &e, 1, -1)
			       : recv(fd, &c, 1, 0);
		n += r == -1 && errno == EINTR;
		late += handled > 1;
		tick(0, 0);
	}
	close(ep);
	printf("%s: %s: %d times EINTR, %s\n", scene, what, n,
	       late <= 20 ? "at the first signal" : "often late");
	if (late > 20)
		printf("%s: %d of 300 late\n", scene, late);
}

static long echo(int s)
{
	char b[1000];
	ssize_t r;

	while ((r = recv(s, b, sizeof(b), 0)) > 0)
		send(s, b, (size_t)r, MSG_NOSIGNAL);
	return 0;
}

static void timeouts(void)
{
	peer(echo);
	on(SIGALRM, count, 0);
	timeouts_us("recv soon", 20, 3, 0);
	timeouts_us("recv after traffic", 20, 3, 3);
	timeouts_us("recv later", 500, 17, 0);
	timeouts_us("poll soon", 20, 3, 1);
	timeouts_us("poll later", 500, 17, 1);
	timeouts_us("epoll_wait soon", 20, 3, 2);
	timeouts_us("epoll_wait later", 500, 17, 2);
	over();
}

/* ---- what is installed ---- */

static void h1(int sig) { (void)sig; handled++; }
static void h2(int sig, siginfo_t *i, void *uc) { (void)uc; handled += i->si_signo == sig; }

static const char *name_of(void *p)
{
	return p == (void *)h1	       ? "h1"
	       : p == (void *)h2       ? "h2"
	       : p == (void *)SIG_DFL  ? "SIG_DFL"
	       : p == (void *)SIG_IGN  ? "SIG_IGN"
	       : p == (void *)SIG_ERR  ? "SIG_ERR"
	       : p == (void *)SIG_HOLD ? "SIG_HOLD"
	       : p == (void *)count    ? "count"
				       : "another";
}

static void show(const char *what, int sig)
{
	struct sigaction a;
	uint64_t mask;

	if (sigaction(sig, NULL, &a)) {
		printf("%s: %s: %s\n", scene, what, strerrorname_np(errno));
		return;
	}
	memcpy(&mask, &a.sa_mask, 8);
	printf("%s: %s: %s flags %x mask %llx restorer %d\n", scene, what,
	       name_of((void *)a.sa_sigaction), (unsigned)a.sa_flags, (unsigned long long)mask,
	       !!a.sa_restorer);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void installed(void)
{
	struct sigaction a = { .sa_sigaction = h2,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NOCLDSTOP }, old;
	struct { void *h; unsigned long flags; void *rest; uint64_t mask; } raw = { (void *)h1, 0,
		NULL, 0 };
	int p, st;

	on(SIGUSR1, SIG_DFL, 0);
	show("at first", SIGUSR1);
	sigaddset(&a.sa_mask, SIGHUP);
	sigaction(SIGUSR1, &a, &old);
	printf("%s: was %s\n", scene, name_of((void *)old.sa_sigaction));
	show("sigaction", SIGUSR1);
	handled = 0;
	raise(SIGUSR1);
	say("handled", handled);
	printf("%s: signal gives %s\n", scene, name_of((void *)signal(SIGUSR1, h1)));
	show("signal", SIGUSR1);
	siginterrupt(SIGUSR1, 1);
	show("siginterrupt", SIGUSR1);
	printf("%s: bsd signal gives %s\n", scene, name_of((void *)ssignal(SIGUSR1, count)));
	show("signal after siginterrupt", SIGUSR1);
	siginterrupt(SIGUSR1, 0);
	show("siginterrupt 0", SIGUSR1);
	printf("%s: sysv_signal gives %s\n", scene, name_of((void *)sysv_signal(SIGUSR1, h1)));
	show("sysv_signal", SIGUSR1);
	raise(SIGUSR1);
	show("after its one signal", SIGUSR1);
	printf("%s: sigset gives %s\n", scene, name_of((void *)sigset(SIGUSR1, h1)));
	printf("%s: sigset gives %s\n", scene, name_of((void *)sigset(SIGUSR1, SIG_HOLD)));
	printf("%s: sigset gives %s\n", scene, name_of((void *)sigset(SIGUSR1, SIG_HOLD)));
	show("sigset", SIGUSR1);
	raise(SIGUSR1);
	say("handled", handled);
	printf("%s: sigset gives %s\n", scene, name_of((void *)sigset(SIGUSR1, h1)));
	say("handled", handled);
	sigignore(SIGUSR1);
	show("sigignore", SIGUSR1);
	printf("%s: signal gives %s\n", scene, name_of((void *)signal(SIGUSR1, h1)));
	on(SIGUSR1, count, SA_NODEFER);
	p = vfork();
	if (!p) {
		signal(SIGUSR1, SIG_IGN);
		signal(SIGUSR2, h1);
		_exit(0);
	}
	waitpid(p, &st, 0);
	show("after vfork", SIGUSR1);
	syscall(SYS_rt_sigaction, SIGUSR1, &raw, NULL, 8);
	show("raw", SIGUSR1);
	on(SIGUSR1, SIG_IGN, 0);
	say("SIGKILL", sigaction(SIGKILL, &a, NULL));
	say("65", sigaction(65, &a, NULL));
	say("0", sigaction(0, &a, NULL));
	say("32", sigaction(32, &a, NULL));
	printf("%s: signal 0: %s\n", scene, name_of((void *)signal(0, h1)));
	printf("%s: signal SIG_ERR: %s\n", scene, name_of((void *)signal(SIGUSR1, SIG_ERR)));
	for (int s = 1; s < 65; s++)
		if (s != SIGALRM && s != SIGUSR2 && s != SIGCHLD && s != SIGRTMIN && s != SIGPIPE &&
		    !sigaction(s, NULL, &old) && old.sa_handler != SIG_DFL)
			printf("%s: %d is %s\n", scene, s, name_of((void *)old.sa_sigaction));
	on(SIGUSR2, h1, 0);
}

static volatile int depth, deepest, raises;
static volatile uintptr_t low, high;	/* an address in the handler's frame */
static volatile uint64_t mask_inside;
static void nests(int sig)
{
	sigset_t m;

	sigprocmask(SIG_SETMASK, NULL, &m);
	mask_inside = *(uint64_t *)&m;
	depth++;
	deepest = depth > deepest ? depth : deepest;
	if (raises++ < 2)
		raise(sig);
	low = (uintptr_t)&m;
	depth--;
}

static sigjmp_buf fault_back;
static void fault(int sig, siginfo_t *i, void *uc)
{
	(void)uc;
	handled = sig * 1000 + i->si_code;
	siglongjmp(fault_back, 1);
}

static void delivery(void)
{
	static char alt[65536];
	stack_t ss = { .ss_sp = alt, .ss_size = sizeof(alt) }, none = { .ss_flags = SS_DISABLE };
	struct sigaction a = { .sa_handler = nests, .sa_flags = SA_NODEFER };
	int *volatile null = (int *)16;	/* not NULL, of which UBSan would complain first */

	sigaddset(&a.sa_mask, SIGHUP);
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	say("deepest with SA_NODEFER", deepest);
	printf("%s: mask %llx\n", scene, (unsigned long long)mask_inside);
	depth = deepest = raises = 0;
	a.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &a, NULL);
	sigaltstack(&ss, NULL);
	raise(SIGUSR1);
	high = low;
	sigaltstack(&none, NULL);
	say("deepest", deepest);
	say("on its stack", high > (uintptr_t)alt && high < (uintptr_t)alt + sizeof(alt));
	printf("%s: mask %llx\n", scene, (unsigned long long)mask_inside);
	a.sa_sigaction = fault;
	a.sa_flags = SA_SIGINFO;
	sigaction(SIGSEGV, &a, NULL);
	if (!sigsetjmp(fault_back, 1))
		*null = 1;
	say("a fault", handled);
	on(SIGSEGV, SIG_DFL, 0);
	on(SIGUSR1, SIG_IGN, 0);
}

static void pipes(void)
{
	char c = 'x';

	on(SIGPIPE, count, SA_RESTART);
	peer(closes);
	nap(50);
	handled = 0;
	send(fd, &c, 1, 0);
	nap(50);
	say("send", send(fd, &c, 1, 0));
	say("SIGPIPE", handled);
	say("send MSG_NOSIGNAL", send(fd, &c, 1, MSG_NOSIGNAL));
	say("SIGPIPE", handled);
	signal(SIGPIPE, SIG_IGN);
	say("write", write(fd, &c, 1));
	say("SIGPIPE", handled);
	over();
	on(SIGPIPE, jumps, 0);
	peer(echo);
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 5; i++)
		if (!sigsetjmp(back, 1))
			say("send", send(fd, &c, 1, 0));
	say("SIGPIPE", handled);
	signal(SIGPIPE, SIG_IGN);
	say("send", send(fd, &c, 1, 0));
	over();
}

static void children(void)
{
	char c = 'x';
	int p, st;

	peer(late_byte);
	handled = 0;
	on(SIGCHLD, count, SA_RESTART);
	say("system", system("exit 3"));
	say("SIGCHLD", handled);
	show("SIGINT after system", SIGINT);
	on(SIGINT, h1, 0);
	say("system", system("exit 4"));
	show("SIGINT after system", SIGINT);
	on(SIGINT, SIG_DFL, 0);
	fflush(stdout);
	p = fork();
	if (!p) {
		nap(50);
		_exit(0);
	}
	send(fd, &c, 1, 0);
	say("recv while a child ends", recv(fd, &c, 1, 0));
	waitpid(p, &st, 0);	/* on a crowded machine it ends after the byte has come */
	say("SIGCHLD", handled);
	on(SIGCHLD, SIG_DFL, 0);
	over();
}

static const struct { const char *name; void (*run)(void); } scenes[] = {
#define SCENE(f) { #f, f }
	SCENE(installed), SCENE(delivery), SCENE(waits), SCENE(send_waits), SCENE(accepts),
		SCENE(pipes), SCENE(children),
	SCENE(timeouts), SCENE(send_in_handler), SCENE(long_send_in_handler),
		SCENE(sendfile_in_handler), SCENE(recv_in_handler), SCENE(jump_out_of_recv),
		SCENE(jump_out_of_send),
	SCENE(queue_storm), SCENE(reset_storm), SCENE(fork_storm),
};
#define SCENES (int)(sizeof(scenes) / sizeof(scenes[0]))
