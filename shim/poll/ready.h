/*
 * ready.h - poll, select and epoll over streams: events that the kernel cannot see are synthesised.
 *
 * All functions return what the libc call returns on success, or -errno. Timeouts are absolute
 * CLOCK_MONOTONIC nanoseconds; UINT64_MAX means for ever, 0 do not wait.
 * Locks: registry order is stream.reg.lock -> epoll.lock. Neither is held while sleeping. No
 * function takes a stream's direction lock.
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

/* epoll_create() of the application gave epfd. NULL: not tracked, streams added to it become
 * TCP-only (FOREIGN_WAIT). */
struct epoll *ready_epoll_new(int epfd);
uint32_t ready_epoll_gen(struct epoll *e);
int ready_epoll_items(struct epoll *e);	/* how many descriptors are registered */
bool ready_epoll_fast(struct epoll *e);	/* one of them was on a fast path when that was looked at
					 * last */
/* The kernel has made newfd a copy of fd, which was the instance's when it had this `gen`.
 * False: fd was closed meanwhile. */
bool ready_epoll_dup(struct epoll *e, uint32_t gen, int fd, int newfd);
/* One fd of the instance goes away (the caller makes the kernel close). `closing`: the number is
 * FDTAB_CLOSING until fdtab_closed(). */
/* false: another thread was first */
bool ready_epoll_forget_fd(struct epoll *e, int epfd, bool closing);
/* The instance is waited for through its fd: by waits of ours, for levels or only for edges; or by
 * others, so that its streams cannot be cut. Both take locks, and may sleep. */
void ready_watch(struct epoll *e, bool level);
void ready_foreign(struct epoll *e);
int ready_epoll_ctl(struct epoll *e, int epfd, int op, int fd, struct epoll_event *ev);
int ready_epoll_wait(struct epoll *e, int epfd, struct epoll_event *ev, int max,
		     uint64_t deadline_ns, const sigset_t *mask);

int ready_poll(struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask);
int ready_select(int n, fd_set *r, fd_set *w, fd_set *x, uint64_t deadline_ns,
		 const sigset_t *mask);
/* NOT: none of the fds is a stream that is not TCP-only, make the real call. FAST: one is on a
 * link. */
enum ready_need { READY_NOT, READY_NEEDED, READY_FAST };
enum ready_need ready_poll_needed(const struct pollfd *fds, nfds_t n);
enum ready_need ready_select_needed(int n, const fd_set *r, const fd_set *w, const fd_set *x);

/* What they do for a stream: struct stream_pollers says what each does. */
void ready_attention(struct stream *s);
int ready_arm(struct stream *s);
void ready_stream_part(struct stream *s, int fd);
void ready_stream_forget(struct stream *s, int fd, bool last);
bool ready_blind(struct stream *s);
extern const struct stream_pollers ready_pollers;
/* Another process gets the instance, by a descriptor that is passed or inherited. */
void ready_shared(struct epoll *e);
void ready_mark_shared(struct epoll *e);	/* the same without a lock: for a child that has
						 * our memory or a copy of it */
/* Before fork, exec and their like: the kernel's sets, which others will see, hold what the
 * application has registered and no more. With `stay` until ready_park_again(). */
void ready_unpark_all(bool stay);
void ready_park_again(void);
/* In a forked child: locks and lists are consistent copies; forget sleepers. */
void ready_after_fork(void);

#endif
