/*
 * due.h - what is due when: a binary heap of those who want to be looked at again at some time.
 * Pure; takes no locks: it has one owner, the background thread.
 */
#ifndef RDMASHIM_DUE_H
#define RDMASHIM_DUE_H

#include <stdbool.h>
#include <stdint.h>

/* Part of whoever waits. All zero: on no heap. */
struct due {
	uint64_t us;
	uint32_t place;		/* in the heap, from 1; 0 = not there */
};

struct due_heap {
	struct due **at;
	uint32_t n, room;
};

/* Puts it there, or moves it. False: no memory, it is not there. */
bool due_put(struct due_heap *h, struct due *d, uint64_t us);
void due_take(struct due_heap *h, struct due *d);		/* nothing if it is not there */
/* taken out: one whose time has come, the earliest; or NULL */
struct due *due_pop(struct due_heap *h, uint64_t now);
static inline uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t due_next(const struct due_heap *h)
{
	return h->n ? h->at[0]->us : UINT64_MAX;
}

#endif
