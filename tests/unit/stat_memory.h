/*
 * stat_memory.h - a part of test_stat.c: the memory of rows that are free again.
 */
#define MANY 9000
#define KEPT_MOST (2 << 20)	/* bytes of a file without a live row */

static size_t file_bytes(void)
{
	struct stat st;

	ck_assert_int_eq(stat(file, &st), 0);
	return (size_t)st.st_blocks * 512;
}

static void shuffle(struct stat_row **r, size_t n, uint32_t seed)
{
	for (size_t i = n; i > 1; i--) {
		struct stat_row *last = r[i - 1];
		size_t k;

		seed = seed * 1664525 + 1013904223;
		k = (seed >> 8) % i;
		r[i - 1] = r[k];
		r[k] = last;
	}
}

/* As they came, or in any order. Nothing of what was counted goes with it. */
START_TEST(test_memory)
{
	static const uint8_t call[] = { 0 };
	static struct stat_row *r[MANY];
	struct stat_past past;
	size_t all;

	ck_assert_int_eq(stat_open("p", ""), 0);
	stat_calls_name(2, name_of);
	stat_moves_name(1, call);
	for (uint64_t round = 1; round <= 3; round++) {
		for (uint32_t i = 0; i < MANY; i++) {
			r[i] = live_row(i + 1);
			ck_assert_uint_eq(stat_row_moves(r[i])->n[0][0], 0);
			stat_move(&stat_row_moves(r[i])->n[0][0]);
			stat_row_event(r[i], EVENT_EARNED, i);
			r[i]->tx_bytes[PATH_SHM] = 3;
		}
		all = file_bytes();
		ck_assert_uint_ge(all, MANY * (sizeof(**r) + sizeof(struct stat_history) +
					       sizeof(struct stat_moves)));
		if (_i)
			shuffle(r, MANY, (uint32_t)round);
		for (uint32_t i = 0; i < MANY - 1; i++) {
			stat_row_free(r[i]);
			stat_trim();
		}
		ck_assert_uint_le(file_bytes(), KEPT_MOST);
		ck_assert_uint_eq(past_of(r[MANY - 1]->fd, &past), 1);
		ck_assert_uint_eq(past.at[0].arg + 1, r[MANY - 1]->fd);
		stat_row_free(r[MANY - 1]);
		ck_assert_uint_eq(stat_self()->bytes_tx[PATH_SHM], 3 * MANY * round);
		ck_assert_uint_eq(calls_now(0, 0), MANY * round);
	}
	ck_assert_uint_le(stat_self()->rows_used, MANY);
}
END_TEST

#define CROWD 2500

/* Each of its rows is its own as long as it has it, while others' memory goes. */
static void *crowd(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg + 1;
	struct stat_row **r = calloc(CROWD, sizeof(*r));

	for (uint32_t round = 0; round < 8; round++) {
		for (size_t i = 0; i < CROWD; i++) {
			r[i] = live_row(me);
			stat_row_event(r[i], EVENT_EARNED, me);
			r[i]->tx_bytes[PATH_SHM] = 1;
		}
		shuffle(r, CROWD, round * 4 + me);
		for (size_t i = 0; i < CROWD; i++) {
			/* or none was to be had for a moment */
			if (r[i] != stat_row_none() && r[i]->fd != me)
				doubly++;
			stat_row_free(r[i]);
			stat_trim();
		}
	}
	free(r);
	return NULL;
}

START_TEST(test_memory_threads)
{
	enum { CROWDS = 4 };
	pthread_t t[CROWDS], w;
	_Atomic int stop = 0;

	ck_assert_int_eq(stat_open("p", ""), 0);
	pthread_create(&w, NULL, watch, &stop);
	for (uintptr_t i = 0; i < CROWDS; i++)
		pthread_create(&t[i], NULL, crowd, (void *)i);
	for (int i = 0; i < CROWDS; i++)
		pthread_join(t[i], NULL);
	stop = 1;
	pthread_join(w, NULL);
	ck_assert_int_eq(doubly, 0);
	ck_assert_uint_le(file_bytes(), KEPT_MOST);
}
END_TEST
