/*
 * due.c - see due.h. Memory comes straight from the kernel, and stays: the owner may run while
 * the program is inside malloc.
 */
#include "base/due.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

static void set(struct due_heap *h, uint32_t i, struct due *d)
{
	h->at[i] = d;
	d->place = i + 1;
}

/* `d` goes to place i or above, whoever is later comes down. */
static void rise(struct due_heap *h, uint32_t i, struct due *d)
{
	while (i && h->at[(i - 1) / 2]->us > d->us) {
		set(h, i, h->at[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	set(h, i, d);
}

/* `d` goes to place i or below, whoever is earlier comes up. */
static void sink(struct due_heap *h, uint32_t i, struct due *d)
{
	for (uint32_t c = 2 * i + 1; c < h->n; c = 2 * i + 1) {
		if (c + 1 < h->n && h->at[c + 1]->us < h->at[c]->us)
			c++;
		if (h->at[c]->us >= d->us)
			break;
		set(h, i, h->at[c]);
		i = c;
	}
	set(h, i, d);
}

static bool grow(struct due_heap *h)
{
	uint32_t room = h->room ? 2 * h->room : 512;
	struct due **was = h->at;
	void *p = mmap(NULL, room * sizeof *h->at, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return false;
	if (was)
		memcpy(p, was, h->n * sizeof *was);
	/* A fork may come between any two of these: what its child finds must be there. */
	h->at = p;
	if (was)
		munmap(was, h->room * sizeof *was);
	h->room = room;
	return true;
}

void due_take(struct due_heap *h, struct due *d)
{
	uint32_t i = d->place - 1;
	struct due *last;

	if (!d->place)
		return;
	d->place = 0;
	last = h->at[--h->n];
	if (last == d)
		return;
	if (last->us < d->us)
		rise(h, i, last);
	else
		sink(h, i, last);
}

bool due_put(struct due_heap *h, struct due *d, uint64_t us)
{
	due_take(h, d);
	if (h->n == h->room && !grow(h))
		return false;
	d->us = us;
	rise(h, h->n++, d);
	return true;
}

struct due *due_pop(struct due_heap *h, uint64_t now)
{
	struct due *d = h->n && h->at[0]->us <= now ? h->at[0] : NULL;

	if (d)
		due_take(h, d);
	return d;
}
