/*
 * ring.c - a lying peer in the shared memory. The input is a header with which the segment is
 * attached, then a list of steps: the peer writes into the slot table, the cursors and the
 * masks, and our halves read, write and ring. While all that goes on, a thread writes into the
 * cursors without end, so that what was checked and what is used may differ. The rings lie
 * between pages that nobody may touch.
 *
 * LINK: rdma/shm/segment.c
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../rdma/shm/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define SLOTS 2
#define RING  4096u
#define LARGE (4 * RING)
#define SLOT  (SLOTS - 1)		/* its last large ring ends at the guard */

static struct segment a;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The segment between two guards. The header may say what it likes: the private copy decides. */
static void make(void)
{
	int fd;
	uint8_t *p;
	uint64_t total;

	if (segment_create(&a, SLOTS, RING, LARGE, &fd))
		abort();
	total = a.total;
	p = mmap(NULL, total + 2 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(a.base, total);
	a.side = (void *)((uint8_t *)a.side - a.base + p + 65536);
	a.slot = (void *)((uint8_t *)a.slot - a.base + p + 65536);
	a.ring = a.ring - a.base + p + 65536;
	a.large = a.large - a.base + p + 65536;
	a.base = mmap(p + 65536, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (a.base == MAP_FAILED)
		abort();
	close(fd);
	a.permanent = true;	/* what a reset gives back takes longer than all the rest */
}

/* The peer's own pen: any value into any cursor of the slot, at any moment. */
static void *liar(void *arg)
{
	uint64_t x = 88172645463325252ull;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&lock);
		for (int i = 0; i < 64; i++) {
			struct ring_shared *s = &a.slot[SLOT].dir[x >> 63];

			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			atomic_store_explicit(x & 1 ? &s->rd : &s->wr, x & 2 ? x : x % (2 * RING),
					      memory_order_relaxed);
			atomic_store_explicit(&s->final, x, memory_order_relaxed);
			atomic_store_explicit(&s->large, x & 4 ? RING << (x >> 62) : 0,
					      memory_order_relaxed);
			atomic_store_explicit(&s->large_from, x & 8 ? x : x % (2 * RING),
					      memory_order_relaxed);
			atomic_store_explicit(&a.side[0].armed, x, memory_order_relaxed);
		}
		pthread_mutex_unlock(&lock);
		usleep(50);
	}
	return NULL;
}

/* A header of the input: refused, or a segment whose every ring lies within. */
static void attach(const struct segment_header *h)
{
	struct segment b;
	int fd = (int)syscall(SYS_memfd_create, "fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t size = h->total_size < 1ull << 40 ? h->total_size : 4096;

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || pwrite(fd, h, sizeof *h, 0) < 0)
		goto out;
	syscall(SYS_fcntl, fd, 1033 /* F_ADD_SEALS */, 1 | 2 | 4);
	if (!segment_attach(&b, fd)) {
		if ((uint64_t)(b.large - b.base) + 2ull * b.slots * b.large_size > size)
			abort();
		/* the last byte of all */
		b.base[(uint64_t)(b.large - b.base) + 2ull * b.slots * b.large_size - 1] = 1;
		segment_unmap(&b);
	}
out:
	if (fd >= 0)
		close(fd);
}

static int receive(struct ring_rx *rx, uint8_t *buf, size_t want)
{
	uint64_t got;

	if (ring_rx_refresh(rx))
		return -1;		/* the connection is reset */
	got = ring_rx_avail(rx);
	if (got > rx->size + (rx->rd < rx->old_to ? rx->old_to - rx->rd : 0) ||
	    (rx->rd < rx->old_to && rx->old_to - rx->rd > rx->old_size))
		abort();
	if (got > want)
		got = want;
	ring_rx_copy(rx, 0, buf, got);
	ring_rx_consume(rx, got);
	segment_room_wanted(rx);
	return 0;
}

static int transmit(struct ring_tx *tx, const uint8_t *buf, size_t want)
{
	const uint8_t *p;
	uint64_t room;
	size_t held;

	if (ring_tx_refresh(tx))
		return -1;
	room = ring_tx_room(tx);
	if (room > tx->size)
		abort();
	if (room > want)
		room = want;
	ring_tx_copy(tx, 0, buf, room);
	ring_tx_publish(tx, room);
	if (tx->rd < tx->wr) {		/* what a rewind would send again */
		p = ring_tx_held(tx, tx->rd, &held);
		if (held && p[0] + p[held - 1] == -1)
			abort();
	}
	segment_want_room(tx);
	return 0;
}

static void steps(const uint8_t *d, size_t n)
{
	static uint8_t buf[2 * LARGE];
	struct ring_tx tx;
	struct ring_rx rx;
	uint64_t v;

	segment_slot_reset(&a, SLOT);
	segment_ring_tx(&a, SLOT, &tx);
	segment_ring_rx(&a, SLOT, &rx);
	ring_tx_open(&tx, 1, n);
	ring_rx_open(&rx, n);
	for (; n >= 10; d += 10, n -= 10) {
		memcpy(&v, d + 2, 8);
		switch (d[0] & 7) {
		case 0: atomic_store(&rx.sh->wr, v); break;
		case 1:
			atomic_store(&rx.sh->large_from, d[1] & 2 ? rx.wr + v % 100 : rx.rd);
			atomic_store(&rx.sh->large, d[1] & 1 ? RING << (d[1] >> 6) : d[1]);
			atomic_store(&rx.sh->wr, rx.rd + v % (LARGE + 2));
			break;
		case 2: atomic_store(&tx.sh->rd, v); break;
		case 3: atomic_store(&tx.sh->rd, tx.rd + v % (LARGE + 2)); break;
		case 4: ((uint8_t *)&a.slot[0])[v % sizeof(struct segment_slot)] = d[1]; break;
		case 5: if (receive(&rx, buf, v % sizeof buf)) return; break;
		case 6: if (transmit(&tx, buf, v % sizeof buf)) return; break;
		case 7:
			if (tx.size < LARGE && (tx.rd == tx.wr || tx.buf != tx.large) && d[1] & 1)
				ring_tx_enlarge(&tx, 2 * tx.size);
			segment_notify(&a, SLOT);
			break;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)
{
	struct segment_header h;
	pthread_t t;

	if (!a.base) {
		make();
		pthread_create(&t, NULL, liar, NULL);
	}
	if (n >= sizeof h && d[n - 1] & 1) {
		memcpy(&h, d, sizeof h);
		attach(&h);
	}
	if (n && d[n - 1] & 2)		/* half of the inputs without the other thread, so that
					 * they can be told again */
		pthread_mutex_lock(&lock);
	steps(d, n);
	if (n && d[n - 1] & 2)
		pthread_mutex_unlock(&lock);
	return 0;
}
