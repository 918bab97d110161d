/*
 * own_thread.c - see own_thread.h.
 */
#include "own_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* Nobody touches most of it. libc takes the static TLS of the program and its libraries out of it, which may be some hundred KiB. */
#define STACK (1024 * 1024)

int own_thread(void *(*run)(void *arg), void *arg, const cpu_set_t *cpus)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Not as who makes it: behind a real-time thread that polls on the same processor another of its kind never has a turn, one of the usual kind has. */
	pthread_attr_setschedpolicy(&attr, SCHED_OTHER);	/* explicitly: else libc takes what it knows of its maker */
	pthread_attr_setschedparam(&attr, &(struct sched_param){ 0 });
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	r = cpus ? pthread_attr_setaffinity_np(&attr, sizeof *cpus, cpus) : 0;
	if (!r) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		r = pthread_create(&thread, &attr, run, arg);
		if (r == EPERM) {
			pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED);
			r = pthread_create(&thread, &attr, run, arg);
		}
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	pthread_attr_destroy(&attr);
	return r;
}
