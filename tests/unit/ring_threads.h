/*
 * ring_threads.h - a part of test_ring.c: two threads, two mappings.
 */
/* Per round: bytes through a small ring, both sides sleep whenever they find nothing to do. */
#define STRESS_BYTES (24u << 20)
#define STALL_MS 2000		/* a wake-up that takes so long was lost */

struct half {
	struct segment *a;
	int bell, peer_bell;	/* eventfds */
	unsigned seed;
	uint64_t sleeps;
	bool lost, wrong;
};

static unsigned rnd(struct half *h, unsigned below)
{
	return (unsigned)rand_r(&h->seed) % below;
}

static void ring(struct half *h)
{
	uint64_t m = segment_notify(h->a, 3), one = 1;

	if (m && write(h->peer_bell, &one, sizeof one) != sizeof one)
		h->wrong = true;
}

/* True if there may be something to do now. */
static bool sleep_unless(struct half *h, bool (*ready)(void *), void *r)
{
	struct pollfd p = { .fd = h->bell, .events = POLLIN };
	_Atomic uint64_t *armed = &h->a->side[h->a->me].armed;
	uint64_t n;

	atomic_fetch_or(armed, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!ready(r)) {
		h->sleeps++;
		if (poll(&p, 1, STALL_MS) == 0 && ready(r)) {
			h->lost = true;
			return false;
		}
		if (p.revents && read(h->bell, &n, sizeof n) != sizeof n)
			h->wrong = true;
	}
	atomic_fetch_and(armed, ~1ull);
	return true;
}

static bool has_room(void *r)
{
	struct ring_tx *tx = r;

	segment_want_room(tx);
	return ring_tx_refresh(tx) || ring_tx_room(tx);
}

static bool has_bytes(void *r)
{
	struct ring_rx *rx = r;

	return ring_rx_refresh(rx) || ring_rx_avail(rx);
}

static void *sender(void *arg)
{
	struct half *h = arg;
	struct ring_tx tx;
	uint8_t buf[SIZE];

	segment_ring_tx(h->a, 3, &tx);
	ring_tx_open(&tx, 1, 0);
	while (tx.wr < STRESS_BYTES && !h->lost && !h->wrong) {
		uint64_t room, n;

		h->wrong |= ring_tx_refresh(&tx) != 0;
		room = ring_tx_room(&tx);
		if (!room) {
			sleep_unless(h, has_room, &tx);
			continue;
		}
		n = 1 + rnd(h, (unsigned)room);
		if (n > STRESS_BYTES - tx.wr)
			n = STRESS_BYTES - tx.wr;
		for (uint64_t i = 0; i < n; i++)
			buf[i] = byte_at(tx.wr + i);
		ring_tx_copy(&tx, 0, buf, n);
		ring_tx_publish(&tx, n);
		ring(h);
	}
	return NULL;
}

static void *receiver(void *arg)
{
	struct half *h = arg;
	struct ring_rx rx;
	uint8_t buf[SIZE];

	segment_ring_rx(h->a, 3, &rx);
	rx.rd = rx.wr = 0;
	while (rx.rd < STRESS_BYTES && !h->lost && !h->wrong) {
		uint64_t n;

		h->wrong |= ring_rx_refresh(&rx) != 0;
		n = ring_rx_avail(&rx);
		if (!n) {
			sleep_unless(h, has_bytes, &rx);
			continue;
		}
		if (rnd(h, 2))
			n = 1 + rnd(h, (unsigned)n);
		ring_rx_copy(&rx, 0, buf, n);
		for (uint64_t i = 0; i < n; i++)
			h->wrong |= buf[i] != byte_at(rx.rd + i);
		ring_rx_consume(&rx, n);
		if (segment_room_wanted(&rx))
			ring(h);
	}
	return NULL;
}

START_TEST(two_threads)
{
	struct half tx = { .a = &a0, .seed = 1 + (unsigned)_i }, rx = { .a = &a1,
		.seed = 99 + (unsigned)_i };
	pthread_t t[2];

	tx.bell = rx.peer_bell = eventfd(0, EFD_NONBLOCK);
	rx.bell = tx.peer_bell = eventfd(0, EFD_NONBLOCK);
	atomic_store(&a0.slot[3].side[0].bells, 1);
	atomic_store(&a1.slot[3].side[1].bells, 1);
	pthread_create(&t[0], NULL, sender, &tx);
	pthread_create(&t[1], NULL, receiver, &rx);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	ck_assert(!tx.wrong && !rx.wrong);
	ck_assert(!tx.lost && !rx.lost);
	ck_assert_uint_gt(tx.sleeps + rx.sleeps, 20);	/* else this has tried nothing */
	close(tx.bell);
	close(rx.bell);
}
END_TEST

START_TEST(forgotten_before_it_goes)
{
	struct segment a;
	int fd;

	ck_assert_int_eq(segment_create(&a, SLOTS, SIZE, 0, &fd), 0);
	close(fd);
	watched = &a;
	segment_unmap(&a);
	watched = NULL;
	ck_assert(!named);
	ck_assert_ptr_null(a.base);
}
END_TEST
