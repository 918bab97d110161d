/*
 * ready.h - poll, select and epoll over streams: what the kernel cannot see is synthesised.
 *
 * All return what the libc call returns on success, or -errno. Timeouts are absolute
 * CLOCK_MONOTONIC nanoseconds, UINT64_MAX = for ever, 0 = do not wait.
 * Locks: registry order is stream.items_lock -> epoll.lock; neither is held while sleeping; none of
 * the functions takes a stream's direction lock.
 */
#ifndef RDMASHIM_READY_H
#define RDMASHIM_READY_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>

struct stream;
struct epoll;

/* epoll_create() of the application gave epfd. NULL: not tracked, streams added to it get pinned (FOREIGN_WAIT). */
struct epoll *ready_epoll_new(int epfd);
uint32_t ready_epoll_gen(struct epoll *e);
int ready_epoll_items(struct epoll *e);	/* how many descriptors are registered */
/* The kernel has made newfd a copy of fd, which was the instance's when it had this `gen`. False: fd was closed meanwhile. */
bool ready_epoll_dup(struct epoll *e, uint32_t gen, int fd, int newfd);
/* One fd of the instance goes away (the caller makes the kernel close). `closing`: the number is FDTAB_CLOSING until fdtab_closed(). */
bool ready_epoll_forget_fd(struct epoll *e, int epfd, bool closing);	/* false: another thread was first */
/* The instance is waited for through its fd: its streams cannot be cut. Takes locks, may sleep. */
void ready_nested(struct epoll *e);
int ready_epoll_ctl(struct epoll *e, int epfd, int op, int fd, struct epoll_event *ev);
int ready_epoll_wait(struct epoll *e, int epfd, struct epoll_event *ev, int max, uint64_t deadline_ns, const sigset_t *mask);

int ready_poll(struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask);
int ready_select(int n, fd_set *r, fd_set *w, fd_set *x, uint64_t deadline_ns, const sigset_t *mask);
/* True if any of the fds is a stream that is not pinned: else make the real call. */
bool ready_poll_needed(const struct pollfd *fds, nfds_t n);
bool ready_select_needed(int n, const fd_set *r, const fd_set *w, const fd_set *x);

/* Something changed on the stream (data, room, EOF, path): queue it in each epoll instance that
 * has it registered, wake those that sleep. Never blocks on anything but leaf locks. */
void ready_attention(struct stream *s);
/* Before ARMED is answered: every epoll instance that has the stream gets its bell into the
 * kernel's set. 0, or -errno: then the stream cannot be cut. Idempotent. */
int ready_arm(struct stream *s);
/* fd is about to be closed while others of the stream remain: if it is registered somewhere, the stream goes home for good.
 * May sleep. */
void ready_stream_part(struct stream *s, int fd);
/* fd of the stream is being closed; `last`: the open file description goes away here. */
void ready_stream_forget(struct stream *s, int fd, bool last);
/* Another process gets the instance, by a descriptor that is passed or inherited. */
void ready_shared(struct epoll *e);
void ready_mark_shared(struct epoll *e);	/* the same without a lock: for a child that has our memory or a copy of it */
/* Before fork, exec and their like: the kernel's sets, which others will see, hold what the application has registered and no more.
 * With `stay` until ready_park_again(). */
void ready_unpark_all(bool stay);
void ready_park_again(void);
/* In a forked child: locks and lists are consistent copies; forget sleepers. */
void ready_after_fork(void);

#endif
