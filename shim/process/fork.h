/*
 * fork.h - what the wrappers say when a socket gets to another process, or the library has to
 * keep out: fork.c, leave.c, fallback_while.c.
 */
#ifndef RDMASHIM_FORK_H
#define RDMASHIM_FORK_H

#include <sys/socket.h>

#include "conn/stream.h"

/* What runs at a fork() of libc's. Ours are registered before anybody else's, or with
 * whoever is the first: so our prepare handler is the last one to run, our parent and child
 * handlers are the first, and no code but libc's fork() runs while we hold locks. Before
 * the library has begun, too. */
bool fork_handlers_first(void);		/* false: they are not there. wrap_clone.c */
void fork_handlers_start(void);	/* before there are streams; until then they do nothing */
void shim_fork_prepare(void);
void shim_fork_parent(void);
void shim_fork_child(void);
/* exec: every cut stream whose fd survives falls back first; see leave.c. Returns a token for
 * shim_exec_failed(). */
void shim_before_exec(void);
void shim_exec_failed(void);
/* An fd is about to be passed over AF_UNIX (SCM_RIGHTS), or handed to stdio. */
void shim_before_pass(const struct msghdr *msg);
/* All streams fall back, then the library is off: a seccomp filter may forbid any call that we
 * need. */
void shim_off(enum reason r);
/* As many streams as there are now go to TCP for good. */
void streams_to_tcp(enum reason r);
/* An io_uring that cannot be followed is about to be used in this process: it reads and writes
 * sockets behind our back. */
void shim_before_io_uring(void);
void shim_before_deepbind(void);	/* a library is about to be opened whose calls go past us */
/* The application wants the number of an internal fd for itself: ours moves. New number or
 * -errno. */
int fd_internal_move(int fd);
/* ---- fork.c: children that run none of our handlers; errno is not touched ---- */
/* In a child of vfork, which is about to copy or keep the stream's fd: the stream falls back and
 * stays there while this child lives. Async-signal-safe. 0 or -errno: it could not. */
int fork_child_holds(struct stream *s);
bool fork_keeps_fd(int fd);		/* in that child: an fd of ours that fork_child_holds()
					 * needs open until exec */
void fork_hold_survivors(void);		/* before exec: all streams without FD_CLOEXEC */
/* Before a child is made: as fork_child_holds() for all streams without FD_CLOEXEC and those
 * that `named` (may be NULL) says yes to. The same thread calls fork_after_spawn() with the
 * child's pid; 0: no child (any more); -1: there is one, its pid is not known. */
void fork_before_spawn(bool (*named)(const void *what, int fd), const void *what);
void fork_after_spawn(int pid);
/* In a child with a copy of our memory that libc did not make: it has nothing of ours, and knows
 * nothing of us. */
void fork_not_seen(void);
void fork_watch(int pid);		/* a forked child: when it ends, streams may be cut again */
void fork_failed(void);			/* fork() returned -1 */
bool fork_survives_exec(int fd);	/* no FD_CLOEXEC. Async-signal-safe */

/* ---- background thread ---- */
bool fork_requests_open(void);
/* When fork_check_requests() is to be called although nobody asks. */
uint64_t fork_due(void);
bool fork_watches(void);	/* children whose end matters */
void fork_check_requests(void);	/* does a child want a stream of ours on TCP? */

/* ---- exit.c ---- */
void exit_fallback(void);		/* what only a queue pair carries, or other processes
					 * hold, goes back to TCP; waits for that, 5 s at most */
void exit_fallback_all(void);	/* all does */
/* The same, and what the program has closed is told to its end. */
void streams_closed(void);

/* ---- fallback_while.c: for the time of a call that must find the stream on TCP, and may yet
 * fail ---- */
/* 0 or -ETIMEDOUT; nonblock: or -EAGAIN, soon. stream_fallback_over() follows the call: what has
 * not failed stays on TCP for good. It leaves errno alone. */
int stream_fallback_while(struct stream *s, enum reason r, bool nonblock);
/* for calls that read from it */
int stream_fallback_to_read(struct stream *s, enum reason r, bool nonblock);
void stream_fallback_over(struct stream *s, uint32_t gen, bool failed, enum reason r);
/* All that `which` (NULL: any) says yes to. Unless the call is followed by another program
 * streams_fallback_over() comes next. */
void streams_fallback_while(bool (*which)(struct stream *s, int fd), enum reason r);
void streams_fallback_over(void);

#endif
