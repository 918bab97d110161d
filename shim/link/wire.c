/* wire.c - see wire.h. Locks: none; who looks at a link is in link_read_enter(). */
#include "link/wire.h"

#include <pthread.h>

/* Within link_read_enter(). NULL: there is no wire now. */
static struct link *link_of(struct link *_Atomic *at)
{
	struct link *l = atomic_load(at);

	return l && l->wire && atomic_load(&l->state) == LINK_UP ? l : NULL;
}

int wire_channel(struct link *_Atomic *at, uint64_t *ret_id)
{
	struct link *l;
	int fd = -1;

	link_read_enter();
	l = link_of(at);
	if (l) {
		fd = l->wire->channel(l);
		*ret_id = link_id(l);
	}
	link_read_leave();
	return fd;
}

int wire_channel_of(uint64_t id)
{
	struct link *l = &links[id % LINK_MAX];
	int fd = -1;

	link_read_enter();
	if (atomic_load(&l->state) == LINK_UP && l->wire && link_id(l) == id)
		fd = l->wire->channel(l);
	link_read_leave();
	return fd;
}

int wire_sleep_on(struct link *_Atomic *at, const struct bell *b, uint64_t id)
{
	struct link *l;
	int fd = -1;

	if (!b)
		return -1;
	link_read_enter();
	l = link_of(at);
	if (l && (!id || link_id(l) == id))
		fd = l->wire->channel(l);
	if (fd >= 0)
		atomic_fetch_or(&l->direct, 1ull << b->idx);
	link_read_leave();
	return fd;
}

void wire_woken(struct link *_Atomic *at, int fd)
{
	struct link *l;
	int cancel;

	/* What reads the channel may be a library's: a thread that is cancelled must not be so
	 * here. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	link_read_enter();
	l = link_of(at);
	if (l && l->wire->channel(l) == fd)
		l->wire->woken(l);
	link_read_leave();
	pthread_setcancelstate(cancel, NULL);
}

void wires_woken(void)
{
	uint32_t n = atomic_load(&links_top);
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	link_read_enter();
	for (uint32_t i = 0; i < n; i++) {
		struct link *l = &links[i];

		if (atomic_load(&l->state) == LINK_UP && l->wire && l->wire->channel(l) >= 0)
			l->wire->woken(l);
	}
	link_read_leave();
	pthread_setcancelstate(cancel, NULL);
}

void wire_ready(uint32_t i)
{
	struct link *l = &links[i];

	if (i >= LINK_MAX || !l->wire || atomic_load(&l->state) != LINK_UP)
		return;
	critical_enter();
	l->wire->unwatched(l);
	l->wire->woken(l);
	critical_leave();
}

bool wire_any(void)
{
	uint32_t n = atomic_load(&links_top);

	for (uint32_t i = 0; i < n; i++)
		if (__atomic_load_n(&links[i].wire, __ATOMIC_RELAXED))
			return true;
	return false;
}

void wires_log(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (links[i].wire && atomic_load(&links[i].state) == LINK_UP)
			links[i].wire->log(&links[i]);
}
