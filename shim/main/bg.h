/*
 * bg.h - the background thread: control sockets, rendezvous, resends, closing streams that the
 * other end has not read to the end, overflow watch, policy reload.
 *
 * It starts with the first stream that earns, sleeps in one epoll_wait when nothing is under way,
 * has all signals blocked, and is never waited for under a lock. It leaves when no stream needs it, and starts again.
 */
#ifndef RDMASHIM_BG_H
#define RDMASHIM_BG_H

#include <stdbool.h>
#include <stdint.h>

struct stream;
struct bell;

/* Starts the thread if it does not run; after bg_look(). 0 or -errno. */
int bg_start(void);
bool bg_running(void);
bool bg_only_other_thread(void);	/* the program itself has one thread */
/* The thread has left: a thread of the application calls bg_farewell() when it sees this. */
extern _Atomic bool bg_left;
void bg_farewell(void);
/* The thread ends, whatever there is to do, until bg_resume(): for calls that the kernel refuses to a process with several threads.
 * From a program's only thread, in a critical section. Waits for it, a second at most. */
void bg_pause(void);
void bg_resume(void);
/* The thread sleeps, and goes on sleeping, until bg_go_on(). False: not until `end_us`. Not under
 * a lock. */
bool bg_hold(uint64_t end_us);
void bg_go_on(void);
void bg_kick(void);			/* wake it; async-signal-safe; nothing if it does not run */
/* Asks it to look at the stream; async-signal-safe, no lock. */
void bg_look(struct stream *s);
struct bell *bg_bell(void);		/* its bell, for streams that linger; NULL before start */
bool bg_is_me(void);
void bg_after_fork(void);

/* ---- within the background thread ---- */
int bg_watch_fd(int fd, uint32_t events, uint64_t tag);	/* 0 or -errno */
void bg_unwatch_fd(int fd);
/* ---- any thread: a descriptor watched with EPOLLONESHOT is watched again */
void bg_rewatch_fd(int fd, uint32_t events, uint64_t tag);
#define BG_TAG_LINK 1	/* tag = kind << 56 | number */
#define BG_TAG_NAME 2
#define BG_TAG_HOME 3
#define BG_TAG_PEND 4
#define BG_TAG_CM   5	/* librdmacm's event channel */
#define BG_TAG_RC   6	/* a link's completion channel */
#define BG_TAG_PORT 7	/* the rendezvous port */
#define BG_TAG_CALL 8	/* a connection to or from it */
#define BG_TAG_CHILD 9	/* a child has ended: the wake-up is all */
#define BG_TAG_ASKED 10	/* as that: a child asks for a stream (fork.c) */

#endif
