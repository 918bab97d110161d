/*
 * stream_work.h - what the background thread does for one stream: search, cut, resend, fall
 * back, watch a full ring, linger, release. All of it is the background thread's, with no lock
 * held.
 */
#ifndef RDMASHIM_STREAM_WORK_H
#define RDMASHIM_STREAM_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct stream;

/* What there is to do for it now. When to come again, in us of now_us(); UINT64_MAX: when asked;
 * 0: nothing more until asked, it may be gone. */
uint64_t stream_work(struct stream *s, uint64_t now);
/* What comes for it next may come without a bg_look(). */
bool stream_restless(const struct stream *s);
/* Arms the notice of its last credit: has that come already? */
bool stream_credit_came(struct stream *s);

#endif
