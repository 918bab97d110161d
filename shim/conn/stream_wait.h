/*
 * stream_wait.h - the waits of stream_send.c and stream_recv.c. The caller may hold no lock.
 */
#ifndef RDMASHIM_STREAM_WAIT_H
#define RDMASHIM_STREAM_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

#include "base/shim.h"

struct stream;

/* Of SO_RCVTIMEO and SO_SNDTIMEO as the kernel takes them (sock_set_timeout(), net/core/sock.c):
 * none; or, if it is negative, at once, which getsockopt() tells as none. In us; more than a
 * hundred years are a hundred. */
#define TIMEO_AT_ONCE 1
#define TIMEO_MOST (100ull * 365 * 86400)
static inline uint64_t timeo_us(const struct timeval *tv)
{
	if (tv->tv_sec < 0)
		return TIMEO_AT_ONCE;
	if (tv->tv_sec >= INT64_MAX / 1000 - 1)		/* more than jiffies can count */
		return 0;
	return ((uint64_t)tv->tv_sec < TIMEO_MOST ? (uint64_t)tv->tv_sec : TIMEO_MOST) * 1000000u +
	       (uint64_t)tv->tv_usec;
}

/* The call that is under way: what it has moved, until when it may wait, the signals that it has
 * seen. */
struct call {
	size_t done;
	uint64_t deadline;	/* 0: not known yet */
	uint64_t since;		/* when stream_ride_out() began */
	uint32_t mark;
	bool switched_path;		/* see stream_ride_out() */
};

static inline uint64_t deadline_of(uint64_t timeo_us)
{
	return timeo_us ? now_ns() + timeo_us * 1000 : UINT64_MAX;
}

/* Waits until `want` (EPOLLIN or EPOLLOUT) may have become true, or the path changed.
 * 0: look again. -EAGAIN: deadline. -EINTR. */
int stream_wait(struct stream *s, int fd, uint32_t want, struct call *call);

/* The same for a call that may wait: until its time is up, by the socket's timeout. 0: look again;
 * *ret_late: and do not wait any more. What was promised it gets all the same. */
int stream_call_wait(struct stream *s, int fd, uint32_t want, struct call *call, bool *ret_late);

/* Until the thread's bell rings, which was armed before the last look (it is disarmed here), or
 * `until`. NULL: a moment. Not a cancellation point. */
struct bell;
void stream_doze(struct bell *b, uint64_t until);

/* A call that must not block, or no longer, and was promised readiness meets a rewind: it waits for
 * its end, for a moment. TCP would have taken or given something, and there are programs that count
 * on it. What does not come in that time is promised no longer. */
void stream_ride_out(struct stream *s, int fd, uint32_t want, uint32_t epoch, struct call *call);

#endif
