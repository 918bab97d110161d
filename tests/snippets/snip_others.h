/*
 * snip_others.h - a part of snip.h: another process at the other end, and somebody who acts once
 * a thread sleeps in a call.
 */
static int gate = -1;			/* to the other process of the snippet */
static void go(void) { if (write(gate, "g", 1) != 1) tell("nobody at the gate"); }
static void wait_go(void)
{
	char c;
	ssize_t r;

	while ((r = read(gate, &c, 1)) < 0 && errno == EINTR)
		;
	if (r != 1)
		tell("the other process is gone");
}

/* Forks; the child connects and does `fn` with its end, a; ours is b. The child is gone when it
 * returns. */
static pid_t with_peer(void (*fn)(void))
{
	struct sockaddr_in at;
	int one = 1, l = listener_at(&at), sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		die("socketpair");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		gate = sv[1];
		close(sv[0]);
		close(l);
		a = connect_to(&at);
		cut_wait(a);
		go();
		wait_go();
		fn();
		fflush(stdout);
		_exit(0);
	}
	gate = sv[0];
	close(sv[1]);
	b = accept(l, NULL, NULL);
	setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(l);
	cut_wait(b);
	wait_go();
	go();
	return pid;
}

/* How a child ended, which must not take long. */
static void say_end(const char *what, pid_t pid)
{
	int st = -1;
	pid_t r;

	fflush(stdout);
	while ((r = waitpid(pid, &st, 0)) < 0 && errno == EINTR)
		;
	if (r != pid)
		tell("%s: waitpid: %s", what, strerrorname_np(errno));
	else if (WIFSIGNALED(st))
		tell("%s: signal %s", what, sigabbrev_np(WTERMSIG(st)));
	else
		tell("%s: exit %d", what, WEXITSTATUS(st));
}

/* ---- somebody who acts once a thread sleeps in a call ---- */

/* True when the thread sleeps in a call other than one for a lock. */
static bool sleeps(pid_t tid)
{
	char path[64], t[64];
	FILE *f;
	bool r;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = fopen(path, "r");
	if (!f)
		return true;
	r = fgets(t, sizeof(t), f) && strncmp(t, "running", 7) && atoi(t) != SYS_futex &&
	    atoi(t) != SYS_nanosleep && atoi(t) != SYS_clock_nanosleep && atoi(t) >= 0;
	fclose(f);
	return r;
}

static volatile bool helper_late;	/* the call has returned, the helper's waiting is in vain */
/* Sleeping at three looks in a row: not on its way through. */
static void until_sleeps(pid_t tid)
{
	uint64_t end = now_ms() + 5000;

	for (int n = 0; n < 3 && now_ms() < end && !helper_late; nap_us(1000))
		n = sleeps(tid) ? n + 1 : 0;
}

static pthread_t helper;
static pid_t main_tid;
static void (*helper_fn)(void);
static void *helper_main(void *arg)
{
	(void)arg;
	until_sleeps(main_tid);
	helper_fn();
	return NULL;
}
static void when_blocked(void (*fn)(void))
{
	sigset_t all, old;

	helper_fn = fn;
	helper_late = false;
	main_tid = (pid_t)syscall(SYS_gettid);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);	/* signals are for the main thread */
	if (pthread_create(&helper, NULL, helper_main, NULL))
		die("no thread");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
static void helper_done(void)
{
	helper_late = true;
	pthread_join(helper, NULL);
}

static volatile sig_atomic_t signals;
static void on_signal(int s) { (void)s; signals++; }
static void handle(int sig, int flags)
{
	struct sigaction s = { .sa_handler = on_signal, .sa_flags = flags };

	signals = 0;
	sigaction(sig, &s, NULL);
}
