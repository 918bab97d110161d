/*
 * copy.h - threads of ours that share the copying of large blocks between the application's
 * memory and a ring.
 *
 * One core copies what is in no cache at 3 to 8 GB/s, whatever the instructions; a thread that
 * sends or receives blocks of megabytes is bound by that. With the policy's `copy_threads` N, up
 * to N threads take chunks of its copies; with `auto`, as many as copy_rule.h says. They poll for
 * the next one for a moment, then sleep; after a second without work they end. One copy at a
 * time is shared: who finds another one under way copies alone.
 *
 * Thread-safety: any thread. copy_shared() is called in a critical section (lock.h). Nothing
 * here allocates, waits for a lock or makes a thread but copy_start(), which is for the
 * background thread.
 */
#ifndef RDMASHIM_COPY_H
#define RDMASHIM_COPY_H

#include <stdbool.h>
#include <stddef.h>

#define COPY_SHARE_MIN (64 * 1024)	/* bytes: less is copied by the caller alone */
#define COPY_CALL_MIN  (256 * 1024)	/* bytes of one call that are worth a wake-up of helpers */

/* A call is about to copy `left` bytes. How many threads will share it, the caller among them:
 * 1, until others are there. */
unsigned copy_threads_for(size_t left);
/* memcpy(), by all of them. */
void *copy_shared(void *dst, const void *src, size_t n);
/* Such a call has copied n bytes into or out of a ring. */
void copy_done(size_t n);

void copy_start(void);		/* if somebody has asked for threads; all signals are blocked */
unsigned copy_running(void);	/* threads of ours that there are */
void copy_quit(void);		/* they end in a moment, and no more are made until copy_resume() */
void copy_resume(void);
void copy_after_fork(void);	/* in the child: they are not there */

#endif
