/*
 * stream_slab.c - where streams lie. Chunks are never unmapped, so a stale pointer is not wild.
 *
 * Lock: `slab`, a leaf, for taking and giving back. Walks take none.
 */
#include <sys/mman.h>

#include "conn/holders.h"
#include "conn/stream_int.h"

#define SLAB_CHUNK 256
#define SLAB_CHUNKS 1024

static struct lock slab;
static struct stream *_Atomic chunks[SLAB_CHUNKS];
static _Atomic uint32_t made;
static struct stream *free_list;

struct stream *stream_at(uint32_t i)
{
	struct stream *c = NULL;

	if (i < SLAB_CHUNK * SLAB_CHUNKS)
		c = atomic_load(&chunks[i / SLAB_CHUNK]);
	return c ? &c[i % SLAB_CHUNK] : NULL;
}

uint32_t streams_top(void) { return atomic_load(&made); }

struct stream *stream_slab_take(void)
{
	struct stream *s;
	uint32_t i;

	lock_take(&slab);
	s = free_list;
	if (s) {
		free_list = s->free_next;
		lock_give(&slab);
		return s;
	}
	i = atomic_load(&made);
	if (i < SLAB_CHUNK * SLAB_CHUNKS && !atomic_load(&chunks[i / SLAB_CHUNK])) {
		void *p = mmap(NULL, SLAB_CHUNK * sizeof *s, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p != MAP_FAILED)
			atomic_store(&chunks[i / SLAB_CHUNK], (struct stream *)p);
	}
	s = stream_at(i);
	if (s) {
		s->index = i;
		atomic_store(&made, i + 1);
	}
	lock_give(&slab);
	return s;
}

/* To the slab. The caller has counted `gen` up. */
static void slab_give(struct stream *s)
{
	struct stat_row *row = s->row;

	s->row = stat_row_none();
	fork_drop(s);
	atomic_store(&s->mode, MODE_FREE);
	stat_row_free(row);
	lock_take(&slab);
	s->free_next = free_list;
	free_list = s;
	lock_give(&slab);
}

void stream_free(struct stream *s)
{
	atomic_fetch_add(&s->gen, 1);
	slab_give(s);
}

/* A thread may still be inside a kernel call on the closed socket; the last to leave frees. Two may
 * think so, and by the time that the second does the struct may be free, or another stream's: `gen`
 * is of when the caller knew whose it is. */
bool stream_try_free(struct stream *s, uint32_t gen)
{
	if (atomic_load(&s->plain.tx) || atomic_load(&s->plain.rx))
		return false;
	if (!(gen & 1) && atomic_compare_exchange_strong(&s->gen, &gen, gen + 1))
		slab_give(s);
	return true;
}

void stream_fork_lock(void) { lock_take(&slab); }
void stream_fork_unlock(void) { lock_give(&slab); }

void stream_slab_after_fork(void)
{
	atomic_store(&slab.v, 0);
	/* also of free ones: the threads inside are not here */
	for (uint32_t i = 0; i < streams_top(); i++) {
		atomic_store(&stream_at(i)->plain.tx, 0);
		atomic_store(&stream_at(i)->plain.rx, 0);
	}
}
