/*
 * loop.h - the background thread: a queue of work, descriptors that are watched, timers. It
 * knows nobody: what there is to do stands in the table that loop_serve() is given (main/bg.c).
 *
 * It starts with the first work (the first stream that earns), sleeps in one epoll_wait when
 * nothing is under way, has all signals blocked, and is never waited for under a lock. It leaves
 * when there is nothing to do, and starts again.
 */
#ifndef RDMASHIM_LOOP_H
#define RDMASHIM_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/due.h"

struct bell;

/* Part of whoever has work done. All zero: none is asked for. */
struct work {
	struct work *queue_next;	/* the queue ... */
	_Atomic uint8_t queued;		/* ... it is on it */
	uint8_t on_watch;		/* the thread's list, its alone ... */
	struct work *watch_next;
	struct due due;			/* ... and its heap */
};

/* What loop_watch_fd() watches for: whose descriptor it is says the number beside it. */
enum loop_kind {
	LOOP_POLICY,		/* the policy's inotify instance */
	LOOP_LINK,		/* a link's control socket */
	LOOP_NAME,		/* a discovery socket */
	LOOP_FALLBACK,		/* a stream's socket */
	LOOP_PENDING,		/* somebody who has connected */
	LOOP_PATH,		/* what a path watches: path_watched() */
	LOOP_CHANNEL,		/* a link's wire */
	LOOP_PORT,		/* the discovery port */
	LOOP_CALL,		/* a connection to or from it */
	LOOP_WAKE,		/* the wake-up is all: a child has ended, or asks for a stream */
	LOOP_KINDS
};

/* All but two run in the thread, with no lock of this file's held but `at_work`. Times are
 * now_us(). */
struct loop_duties {
	void (*begin)(void);			/* the thread starts */
	/* Does what there is to do for it. When to come again; UINT64_MAX: when asked; 0:
	 * nothing more until asked, it may be gone. */
	uint64_t (*work)(struct work *w, uint64_t now);
	bool (*restless)(const struct work *w);	/* it has work at every event, not only when
						 * asked */
	uint64_t (*turn)(void);			/* each round, after the work: when the next must
						 * be */
	uint64_t (*idle)(uint64_t now);		/* as `turn`, before it sleeps; not if there is
						 * nothing to do at all */
	void (*armed)(void);			/* our bell is armed: what came for one on the
						 * list just before rang nobody, ... */
	bool (*came)(struct work *w);		/* ... did anything? */
	bool (*nothing)(void);			/* nobody needs the thread */
	void (*leave)(void);			/* it leaves. Under start_lock */
	void (*failed)(int r);			/* it could not be made, -errno. In the thread
						 * that asked for it */
	void (*forked)(void);			/* in a child, which has no thread: forget what
						 * was asked for */
	void (*event[LOOP_KINDS])(uint32_t n);	/* something came for number n; may be NULL */
};

/* Once, before the first loop_start(). */
void loop_serve(const struct loop_duties *d);

/* Starts the thread if it does not run; after loop_post(). 0 or -errno. */
int loop_start(void);
bool loop_running(void);
bool loop_only_other_thread(void);	/* the program itself has one thread */
/* The thread has left: a thread of the application calls loop_thread_left() when it sees this. */
extern _Atomic bool loop_left;
void loop_thread_left(void);

/* ---- all threads of ours, for who gives up rights. In a critical section. ---- */
/* There are threads of ours, and the program has one besides. Without /proc ours end for that and
 * begin again. */
bool loop_alone(void);
/* They end, whatever there is to do, until loop_resume(). Waits for it, a second at most. From a
 * program's only thread. */
void loop_pause(void);
void loop_resume(void);
/* After that there is no thread, and none to be had. What it had begun does who waits for it, some
 * milliseconds of it for each call, with its own wait. False: there is no need. Not under a lock.
 */
bool loop_lost(void);
bool loop_step_here(uint64_t end_us);
bool loop_can_begin(void);		/* a thread could be made just now */

/* The thread sleeps, and goes on sleeping, until loop_go_on(). False: not until `end_us`. Not under
 * a lock. */
bool loop_hold(uint64_t end_us);
void loop_go_on(void);
void loop_kick(void);			/* wake it; async-signal-safe; nothing if it does not run */
/* Asks it to do the work; async-signal-safe, no lock. */
void loop_post(struct work *w);
struct bell *loop_bell(void);		/* its bell, for streams that linger; NULL before start */
bool loop_is_me(void);
void loop_forget(struct work *w);	/* in a forked child: it is on no list */
void loop_after_fork(void);

/* ---- within the background thread ---- */
int loop_watch_fd(int fd, uint32_t events, enum loop_kind kind, uint32_t n);	/* 0 or -errno */
void loop_unwatch_fd(int fd);
/* ---- any thread: a descriptor watched with EPOLLONESHOT is watched again */
void loop_rewatch_fd(int fd, uint32_t events, enum loop_kind kind, uint32_t n);

#endif
