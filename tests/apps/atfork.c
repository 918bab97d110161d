/*
 * atfork.c - code that libraries have fork() run, and what it may do: all that it may without the
 * library.
 *
 *	atfork WHAT WHEN: the handler WHEN (prepare, parent, child) does WHAT once, at a fork with a
 *			connection on its path
 *	atfork join: the prepare handler joins a thread that is in recv(), the parent handler
 *			starts it again: 100 forks
 *	atfork locks: a mutex is held from the prepare handler to the other two, and is taken
 *			in malloc(), dup2(), fcntl() and close_range(); three threads call those
 *			while the main thread forks 100 times
 *	atfork stdio: a thread flushes all of stdio's streams, of which one is the program's own and
 *			makes sockets when it is written to, while the main thread forks 100 times
 *	atfork forks: 20 forks, and what children do with sockets of their own
 *	atfork list: the names for WHAT
 *
 * The handlers are those of a library that the program is linked with, so that its constructor
 * runs before those of preloaded ones: this file, compiled with -DHOOKS (atfork.sh). Prints what
 * came of it. Locks: the library's mutex.
 */
#ifdef HOOKS

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

void (*hook_prepare)(void), (*hook_parent)(void), (*hook_child)(void);
bool hook_locks;		/* set once, before there are threads */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void enter(void) { if (hook_locks) pthread_mutex_lock(&mutex); }
static void leave(void) { if (hook_locks) pthread_mutex_unlock(&mutex); }

static void prepare(void) { enter(); if (hook_prepare) hook_prepare(); }
static void parent(void) { leave(); if (hook_parent) hook_parent(); }
static void child(void) { leave(); if (hook_child) hook_child(); }

__attribute__((constructor)) static void begin(void) { pthread_atfork(prepare, parent, child); }

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

void *malloc(size_t n) { enter(); void *p = __libc_malloc(n); leave(); return p; }
void *calloc(size_t n, size_t k) { enter(); void *p = __libc_calloc(n, k); leave(); return p; }
void *realloc(void *q, size_t n) { enter(); void *p = __libc_realloc(q, n); leave(); return p; }
void free(void *p) { enter(); __libc_free(p); leave(); }

#define NEXT(name) \
	static __typeof__(name) *next; \
	if (!next) \
		next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int dup2(int fd, int to)
{
	NEXT(dup2);
	enter();
	int r = next(fd, to);
	leave();
	return r;
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	NEXT(close_range);
	enter();
	int r = next(first, last, flags);
	leave();
	return r;
}

int fcntl64(int fd, int cmd, ...)
{
	NEXT(fcntl64);
	va_list ap;
	va_start(ap, cmd);
	long arg = va_arg(ap, long);
	va_end(ap);
	enter();
	int r = next(fd, cmd, arg);
	leave();
	return r;
}

int fcntl(int, int, ...) __attribute__((alias("fcntl64")));

#else

#include "both.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

/* Weak: without the library this can be compiled, too. */
#pragma weak hook_prepare
#pragma weak hook_parent
#pragma weak hook_child
#pragma weak hook_locks
extern void (*hook_prepare)(void), (*hook_parent)(void), (*hook_child)(void);
extern bool hook_locks;

static int ep;
static bool closed;
static char answer[64];		/* of what the handler did */

static void pass(int from, int to)
{
	char c = 'x';

	if (write(from, &c, 1) != 1 || read(to, &c, 1) != 1)
		die("the connection");
}

/* Until it is on a path: who looks from outside removes the file. */
static void talk(void)
{
	const char *gate = getenv("GATE");

	if (gate)
		close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	for (int i = 0; i < 20 || (gate && !access(gate, F_OK)); i++) {
		pass(a, b);
		pass(b, a);
	}
}

/* ---- what handlers do ---- */

static void does(const char *what, int r) { snprintf(answer, sizeof answer, "%s: %d", what, r); }

static void do_close(void) { does("close", close(a)); closed = true; }

static void do_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	does("socket", fd < 0);
	close(fd);
}

static void do_epoll_create(void) { int fd = epoll_create1(0); does("epoll_create1", fd < 0); }
static void do_epoll_close(void) { does("close of an instance", close(ep)); }

static void do_epoll_ctl(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int r = epoll_ctl(ep, EPOLL_CTL_DEL, a, &ev);

	does("epoll_ctl", r | epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev));
}

static void do_epoll_wait(void)
{
	struct epoll_event ev;

	does("epoll_wait", epoll_wait(ep, &ev, 1, 0));
}

static void do_dup(void)
{
	int fd = dup(a);

	does("dup", fd < 0);
	close(fd);
}

static void do_dup2(void) { does("dup2", dup2(a, 90) != 90); close(90); }
static void do_close_range(void) { does("close_range", close_range(80, 99, 0)); }
static void do_system(void) { does("system", system("exit 3")); }
static void do_send(void) { does("send", (int)send(a, "x", 1, 0)); }

static void do_deepbind(void)
{
	does("dlopen", !dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND));
}

static void do_fork(void)
{
	static int nested;
	pid_t p;
	int st;

	if (nested++)
		return;
	p = fork();
	if (!p)
		_exit(5);
	does("fork", waitpid(p, &st, 0) != p || st != 5 << 8);
}

static void *gives(void *p) { pass(b, a); return p; }

static void do_thread(void)
{
	pthread_t t;
	int r = pthread_create(&t, NULL, gives, NULL);

	does("a thread", r || pthread_join(t, NULL));
}

static const struct { const char *name; void (*run)(void); } whats[] = {
	{ "close", do_close }, { "socket", do_socket }, { "epoll_create", do_epoll_create },
	{ "epoll_close", do_epoll_close }, { "epoll_ctl", do_epoll_ctl },
	{ "epoll_wait", do_epoll_wait }, { "dup", do_dup }, { "dup2", do_dup2 },
	{ "close_range", do_close_range }, { "system", do_system }, { "send", do_send },
	{ "deepbind", do_deepbind }, { "fork", do_fork }, { "thread", do_thread },
};
#define WHATS (sizeof whats / sizeof *whats)

static void once(const char *what, void (*run)(void), const char *when)
{
	struct epoll_event ev = { .events = EPOLLIN };
	char c;
	pid_t p;
	int st, n;

	ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, a, &ev);
	talk();
	if (!strcmp(when, "prepare"))
		hook_prepare = run;
	else if (!strcmp(when, "parent"))
		hook_parent = run;
	else
		hook_child = run;
	p = fork();
	hook_prepare = hook_parent = hook_child = NULL;
	if (!p) {
		if (!strcmp(when, "child"))
			printf("%s\n", answer);
		fflush(stdout);
		_exit(7);
	}
	if (p < 0 || waitpid(p, &st, 0) != p)
		die("fork");
	printf("%s in %s: %s, child's status %d", what, when, answer,
	       WIFEXITED(st) ? WEXITSTATUS(st) : -1);
	/* A byte that was sent in a handler is there, and an end only where this process has made
	 * it. */
	if (run == do_send && (read(b, &c, 1) != 1 || c != 'x'))
		die("the byte");
	if (closed && strcmp(when, "child")) {
		n = (int)read(b, &c, 1);
		printf(", then %d\n", n);
	} else {
		for (int i = 0; i < 50; i++) {
			pass(a, b);
			pass(b, a);
		}
		printf(", it goes on\n");
	}
}

/* ---- a thread that waits in recv() ---- */

static pthread_t reader;
static uint64_t got;

static void *reads(void *p)
{
	char buf[512];
	ssize_t n;

	do {
		n = recv(a, buf, sizeof buf, 0);
		if (n <= 0)
			die("recv");
		got += (uint64_t)n;
	} while (buf[n - 1] != 'q');
	return p;
}

static void stop_reader(void)
{
	if (send(b, "q", 1, 0) != 1)
		die("send");
	pthread_join(reader, NULL);
}

static void start_reader(void) { pthread_create(&reader, NULL, reads, NULL); }

static void joins(void)
{
	static char block[300];
	uint64_t sent = 0;

	talk();
	start_reader();
	hook_prepare = stop_reader;
	hook_parent = start_reader;
	for (int i = 0; i < 100; i++) {
		pid_t p;

		for (int k = 0; k < 5; k++, sent += sizeof block)
			if (send(b, block, sizeof block, 0) != sizeof block)
				die("send");
		p = fork();
		sent++;
		if (!p)
			_exit(0);
		if (p < 0 || waitpid(p, NULL, 0) != p)
			die("fork");
	}
	stop_reader();
	printf("100 forks, %s\n", got == sent + 1 ? "all bytes" : "other bytes");
}

/* ---- foreign locks ---- */

static atomic_bool over;

static void *allocates(void *p)
{
	while (!over) {
		void *volatile q = malloc(100);

		pass(a, b);
		free(q);
	}
	return p;
}

/* Numbers that are free again and again, so that the library looks whose they are. */
static void *copies(void *p)
{
	while (!over) {
		dup2(0, 200);
		if (fcntl(200, F_GETFD) < 0)
			die("fcntl");
		close_range(200, 210, 0);
	}
	return p;
}

static void *connects(void *p)
{
	while (!over) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		fcntl(fd, F_SETFD, FD_CLOEXEC);
		fcntl(fd, F_GETFD);
		close(fd);
	}
	return p;
}

static void locks(void)
{
	pthread_t t[3];

	talk();
	hook_locks = true;
	pthread_create(&t[0], NULL, allocates, NULL);
	pthread_create(&t[1], NULL, copies, NULL);
	pthread_create(&t[2], NULL, connects, NULL);
	for (int i = 0; i < 100; i++) {
		pid_t p = fork();

		if (!p) {
			free(malloc(10));
			_exit(0);
		}
		if (p < 0 || waitpid(p, NULL, 0) != p)
			die("fork");
	}
	over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	printf("100 forks\n");
}

/* ---- stdio's list of streams, which libc locks for fork() ---- */

static ssize_t write_cookie(void *cookie, const char *buf, size_t n)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)cookie, (void)buf;
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	close(fd);
	return (ssize_t)n;
}

static void *flushes(void *f)
{
	while (!over) {
		fputc('x', f);
		fflush(NULL);
	}
	return f;
}

static void stdio(void)
{
	FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_cookie });
	pthread_t t;

	ep = epoll_create1(0);
	talk();
	pthread_create(&t, NULL, flushes, f);
	for (int i = 0; i < 100; i++) {
		pid_t p = fork();

		if (!p) {
			fflush(NULL);
			_exit(0);
		}
		if (p < 0 || waitpid(p, NULL, 0) != p)
			die("fork");
	}
	over = true;
	pthread_join(t, NULL);
	printf("100 forks\n");
}

static void forks(void)
{
	for (int i = 0; i < 20; i++) {
		pid_t p = fork();
		int st;

		if (!p) {
			int fd = socket(AF_INET, SOCK_STREAM, 0);

			_exit(fd < 0 || dup2(fd, 90) != 90 || close(90) || close(fd));
		}
		if (p < 0 || waitpid(p, &st, 0) != p || st)
			die("fork");
		pass(a, b);
		if (dup2(a, 90) != 90 || close(90))
			die("dup2");
	}
	printf("20 forks\n");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "list")) {
		for (size_t i = 0; i < WHATS; i++)
			puts(whats[i].name);
		return 0;
	}
	if (!&hook_prepare)
		return 2;
	alarm(60);		/* the end of a parent that hangs */
	connect_both();
	if (!strcmp(what, "join"))
		joins();
	else if (!strcmp(what, "locks"))
		locks();
	else if (!strcmp(what, "forks"))
		forks();
	else if (!strcmp(what, "stdio"))
		stdio();
	for (size_t i = 0; i < WHATS; i++)
		if (argc > 2 && !strcmp(whats[i].name, what))
			once(what, whats[i].run, argv[2]);
	return 0;
}
#endif
