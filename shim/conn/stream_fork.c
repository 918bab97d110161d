/*
 * stream_fork.c - what a child of fork() does to the streams that it has inherited. It takes no
 * lock, since it is alone.
 */
#include "conn/stream_life.h"
#include "conn/stream_send.h"
#include "conn/stream_slab.h"

void stream_after_fork(void)
{
	stream_slab_after_fork();
	stream_plain_after_fork();
	stream_rings_after_fork();
	rings_after_fork();
}
