/*
 * children.h - children that share streams: their streams are looked at when they end.
 */
#ifndef RDMASHIM_CHILDREN_H
#define RDMASHIM_CHILDREN_H

#include "conn/stream.h"

void child_watch(int pid);	/* wakes nobody: also for the child of a vfork, about itself */
void children_look(void);			/* background thread */
void children_after_fork(void);

/* A child, or a call that may yet fail, is to find the stream on TCP; unlike stream_fall_back() not
 * for good. fork.c */
void fork_ask_fallback(struct stream *s);
int fork_wait_fallback(struct stream *s, uint64_t end_us);	/* 0 or -ETIMEDOUT */

#endif
