/*
 * stat_rows.c - the rows of a counter file that are free, and which pages rows have.
 *
 * The free ones are a stack of indices with a tag against ABA. All of it is private to the process:
 * what another one writes into the file can spoil the numbers shown, but not an index used here.
 * A full /dev/shm would be SIGBUS at the first touch of a page, so pages are populated before they
 * are written to, and known by a bit each.
 *
 * Pages go back to the kernel when there are many, and all rows on them are free and taken off the
 * stack: so they are nobody's, and who takes one later makes them anew. What somebody comes too
 * late to count there (stat_row_none()) makes a page, too, which is written over then.
 *
 * Any thread, signal handlers too. No locks and no malloc.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stat_int.h"

#define PAGE 4096u	/* where the kernel's are larger none is given back */
#define PAGES (STAT_FILE_SIZE / PAGE + 1)
#define KEPT 128u	/* pages, beside twice what the rows in use need: not looked at below it */
#define OFTEN 64u	/* rows that are freed between two looks */
#define RESERVE 256u	/* for connections that come during one */

static const struct part { size_t at, size; } parts[ROWS_PARTS] = {
	[ROWS_ROW] = { sizeof(struct stat_header), sizeof(struct stat_row) },
	[ROWS_HISTORY] = { STAT_HISTORY_AT, sizeof(struct stat_history) },
	[ROWS_MOVES] = { STAT_MOVES_AT + sizeof(struct stat_move_calls),
			 sizeof(struct stat_moves) },
};
#define EACH (sizeof(struct stat_row) + sizeof(struct stat_history) + sizeof(struct stat_moves))

/* Index + 1 of the top (0 = empty) in the low half, a tag in the high half. */
static _Atomic uint64_t free_top;
static _Atomic uint32_t free_next[STAT_ROWS];
static _Atomic uint32_t rows_next;	/* rows ever handed out */
static _Atomic uint32_t free_n;
static _Atomic uint64_t there[PAGES / 64 + 1];	/* a bit for each page */
static _Atomic uint32_t there_n, freed_n;	/* freed_n: since the last look */
static _Atomic bool looking;
/* At the last look: pages that it left, and rows in use. Before there are many more of those, or
 * only half of these, another would find what it found. */
static _Atomic uint32_t left_n, left_used;
static uint64_t is_free[STAT_ROWS / 64];	/* for who looks */

void stat_rows_reset(void)
{
	atomic_store(&free_top, 0);
	atomic_store(&rows_next, 0);
	atomic_store(&free_n, 0);
	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
		atomic_store(&there[i], 0);
	atomic_store(&there_n, 0);
	atomic_store(&freed_n, 0);
	atomic_store(&looking, false);
	atomic_store(&left_n, 0);
	atomic_store(&left_used, 0);
}

/* ---- the stack ---- */

static int pop(void)
{
	uint64_t top = atomic_load_explicit(&free_top, memory_order_acquire), next;
	uint32_t i;

	do {
		i = (uint32_t)top;
		if (!i || i > STAT_ROWS)
			return -1;
		next = ((top >> 32) + 1) << 32 |
		       atomic_load_explicit(&free_next[i - 1], memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&free_top, &top, next, memory_order_acq_rel,
							memory_order_acquire));
	atomic_fetch_sub_explicit(&free_n, 1, memory_order_relaxed);
	return (int)i - 1;
}

/* Rows that hang together, from first to last. `top`: what it is. False: it is another by now. */
static bool push(uint64_t *top, uint32_t first, uint32_t last)
{
	atomic_store_explicit(&free_next[last], (uint32_t)*top, memory_order_relaxed);
	return atomic_compare_exchange_weak_explicit(
		&free_top, top, ((*top >> 32) + 1) << 32 | (first + 1), memory_order_acq_rel,
		memory_order_relaxed);
}

static void push_one(uint32_t i)
{
	uint64_t top = atomic_load_explicit(&free_top, memory_order_relaxed);

	atomic_fetch_add_explicit(&free_n, 1, memory_order_relaxed);
	while (!push(&top, i, i))
		;
}

/* ---- pages ---- */

static bool is_there(size_t page)
{
	return atomic_load_explicit(&there[page / 64], memory_order_relaxed) >> page % 64 & 1;
}

static size_t first_page(const struct part *p, uint32_t i) { return (p->at + i * p->size) / PAGE; }

static size_t last_page(const struct part *p, uint32_t i)
{
	return (p->at + (i + 1) * p->size - 1) / PAGE;
}

bool stat_rows_have(unsigned part, uint32_t i)
{
	const struct part *p = &parts[part];
	size_t page = first_page(p, i);

	while (page <= last_page(p, i) && is_there(page))
		page++;
	return page > last_page(p, i);
}

/* Of a row that is the caller's: no page of it goes meanwhile. Two threads may both make one. */
static bool make(struct stat_header *h, unsigned part, uint32_t i)
{
	const struct part *p = &parts[part];

	for (size_t page = first_page(p, i); page <= last_page(p, i); page++) {
		uint64_t bit = 1ull << page % 64;

		if (is_there(page))
			continue;
		if (!stat_populate(h, page * PAGE, (page + 1) * PAGE))
			return false;
		if (!(atomic_fetch_or(&there[page / 64], bit) & bit))
			atomic_fetch_add_explicit(&there_n, 1, memory_order_relaxed);
	}
	return true;
}

/* ---- rows ---- */

static int never_used(void)
{
	uint32_t i = atomic_load_explicit(&rows_next, memory_order_relaxed);

	do
		if (i >= STAT_ROWS)
			return -1;
	while (!atomic_compare_exchange_weak_explicit(&rows_next, &i, i + 1, memory_order_relaxed,
						      memory_order_relaxed));
	return (int)i;
}

int stat_rows_take(struct stat_header *h)
{
	int got = pop();
	uint32_t i, used;

	if (got < 0)
		got = never_used();
	if (got < 0)
		return -1;
	i = (uint32_t)got;
	if (!make(h, ROWS_ROW, i)) {
		push_one(i);
		return -1;
	}
	make(h, ROWS_HISTORY, i);
	make(h, ROWS_MOVES, i);
	used = atomic_load_explicit(&h->rows_used, memory_order_relaxed);
	while (used < i + 1 &&
	       !atomic_compare_exchange_weak_explicit(&h->rows_used, &used, i + 1,
						      memory_order_relaxed, memory_order_relaxed))
		;
	return got;
}

void stat_rows_give(uint32_t i)
{
	push_one(i);
	atomic_fetch_add_explicit(&freed_n, 1, memory_order_relaxed);
}

/* ---- giving memory back ---- */

static bool has_all(uint32_t i)
{
	return stat_rows_have(ROWS_ROW, i) && stat_rows_have(ROWS_HISTORY, i) &&
	       stat_rows_have(ROWS_MOVES, i);
}

static bool free_row(size_t i) { return is_free[i / 64] >> i % 64 & 1; }

/* A page that is one part's alone, and whose rows are all free. */
static bool nobodys(const struct part *p, size_t page)
{
	size_t from = page * PAGE, to = from + PAGE, i;

	if (from < p->at || to > p->at + STAT_ROWS * p->size || !is_there(page))
		return false;
	for (i = (from - p->at) / p->size; i <= (to - 1 - p->at) / p->size; i++)
		if (!free_row(i))
			return false;
	return true;
}

static void let_go(struct stat_header *h, size_t from, size_t to)
{
	char *at = (char *)h + from * PAGE;

	/* A file's, or memory of our own in its place. */
	if (madvise(at, (to - from) * PAGE, MADV_REMOVE) &&
	    (errno != EINVAL || madvise(at, (to - from) * PAGE, MADV_DONTNEED)))
		return;
	for (; from < to; from++) {
		atomic_fetch_and(&there[from / 64], ~(1ull << from % 64));
		atomic_fetch_sub_explicit(&there_n, 1, memory_order_relaxed);
	}
}

static void look(struct stat_header *h, uint32_t rows)
{
	for (unsigned k = 0; k < ROWS_PARTS && rows; k++) {
		const struct part *p = &parts[k];
		size_t page = first_page(p, 0), end = last_page(p, rows - 1) + 1, from;

		for (; page < end; page++) {
			for (from = page; page < end && nobodys(p, page); page++)
				;
			if (page > from)
				let_go(h, from, page);
		}
	}
}

/* Takes all free rows off the stack. What it is then. */
static uint64_t take_all(void)
{
	uint64_t top = atomic_load_explicit(&free_top, memory_order_acquire), none;
	uint32_t i, n;

	do
		none = ((top >> 32) + 1) << 32;
	while (!atomic_compare_exchange_weak_explicit(&free_top, &top, none, memory_order_acq_rel,
						      memory_order_acquire));
	memset(is_free, 0, sizeof(is_free));
	for (i = (uint32_t)top, n = 0; i && i <= STAT_ROWS && n < STAT_ROWS; n++) {
		is_free[(i - 1) / 64] |= 1ull << (i - 1) % 64;
		i = atomic_load_explicit(&free_next[i - 1], memory_order_relaxed);
	}
	return none;
}

/* So many of those taken off, or all; on top those that have their pages. A child that a handler
 * has forked meanwhile has a stack of its own, which was 0: it gets nothing. */
static void put_back(uint64_t top, uint32_t most)
{
	uint32_t first = 0, last = 0, n = 0;
	int least = most < STAT_ROWS ? 1 : 0;

	for (int whole = 1; whole >= least; whole--)
		for (uint32_t i = 0; i < STAT_ROWS && n < most; i++) {
			if (!free_row(i) || has_all(i) != whole)
				continue;
			if (!n++)
				first = i;
			else
				atomic_store_explicit(&free_next[last], i + 1,
						      memory_order_relaxed);
			last = i;
			is_free[i / 64] &= ~(1ull << i % 64);
		}
	while (n && top >> 32 && !push(&top, first, last))
		;
}

static bool worth_a_look(uint32_t used)
{
	uint32_t n = atomic_load_explicit(&there_n, memory_order_relaxed);

	if (n < KEPT + used * EACH / PAGE * 2 ||
	    atomic_load_explicit(&freed_n, memory_order_relaxed) < OFTEN)
		return false;
	if (n < atomic_load_explicit(&left_n, memory_order_relaxed) + KEPT &&
	    used > atomic_load_explicit(&left_used, memory_order_relaxed) / 2)
		return false;
	return sysconf(_SC_PAGESIZE) == PAGE;	/* a larger one has others' rows, too */
}

void stat_trim(void)
{
	struct stat_header *h = stat_self();
	uint32_t rows = atomic_load_explicit(&rows_next, memory_order_relaxed),
		 used = rows - atomic_load_explicit(&free_n, memory_order_relaxed);
	int saved = errno;
	uint64_t top;

	if (!worth_a_look(used) || atomic_exchange(&looking, true))
		return;
	atomic_store_explicit(&freed_n, 0, memory_order_relaxed);
	top = take_all();
	put_back(top, RESERVE);
	look(h, atomic_load_explicit(&rows_next, memory_order_relaxed));
	put_back(top, STAT_ROWS);
	atomic_store(&left_n, atomic_load(&there_n));
	atomic_store(&left_used, used);
	atomic_store(&looking, false);
	errno = saved;
}
