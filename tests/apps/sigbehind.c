/*
 * sigbehind.c - the program, and with -DBEHIND a library with a sigaction() of its own that
 * stands behind the library: under a lock, and once with the help of a thread that installs a
 * handler, too.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void handler(int sig) { (void)sig; }

#ifdef BEHIND
static int (*next)(int, const struct sigaction *, struct sigaction *);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside;

static void *helper(void *arg)
{
	inside = 1;
	signal(SIGUSR2, handler);
	return arg;
}

int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	pthread_t t;
	int r;

	if (!next)
		next = dlsym(RTLD_NEXT, "sigaction");
	if (inside || sig != SIGUSR1 || !act)
		return next(sig, act, old);
	pthread_mutex_lock(&lock);
	inside = 1;
	if (!pthread_create(&t, NULL, helper, NULL))
		pthread_join(t, NULL);
	inside = 0;
	r = next(sig, act, old);
	pthread_mutex_unlock(&lock);
	return r;
}
#else
int main(void)
{
	struct sigaction a = { .sa_handler = handler }, is;

	alarm(20);
	for (int sig = SIGUSR1; sig <= SIGUSR2; sig += SIGUSR2 - SIGUSR1) {
		if (sig == SIGUSR1 && sigaction(sig, &a, NULL))
			return 1;
		if (sigaction(sig, NULL, &is))
			return 1;
		printf("%d: %s\n", sig, is.sa_handler == SIG_DFL ? "default" : "a handler");
	}
	return raise(SIGUSR1) || raise(SIGUSR2);
}
#endif
