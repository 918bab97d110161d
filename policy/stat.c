/*
 * stat.c - the writer's side of the counter file: opening it, rows, what fork does to it.
 *
 * Who may call: any thread, signal handlers included, after stat_open(); stat_open() and
 * stat_after_fork() only one thread at a time. No locks and no malloc.
 *
 * stat_file.c makes the file, stat_rows.c says which row is free and what memory it has.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stat_int.h"
#include "words.h"
#include "hold.h"

#ifndef PATHS_MORE
_Static_assert(sizeof(struct stat_row) == 152, "stat_row changed: raise STAT_VERSION");
_Static_assert(sizeof(struct stat_header) == 2568, "stat_header changed: raise STAT_VERSION");
#endif
_Static_assert(sizeof(struct stat_header) % 8 == 0, "the rows behind the header must be aligned");
_Static_assert(sizeof(struct stat_calls) == 128 * 48 + 64 * 2048,
	       "stat_calls changed: raise STAT_VERSION");
_Static_assert(sizeof(struct stat_call_site) == 1024, "stat_call_site changed: raise STAT_VERSION");
_Static_assert(sizeof(struct stat_history) == 392, "stat_history changed: raise STAT_VERSION");
_Static_assert(sizeof(struct stat_moves) == 256, "stat_moves changed: raise STAT_VERSION");
_Static_assert(sizeof(struct stat_link) == 164, "stat_link changed: raise STAT_VERSION");
_Static_assert(STAT_COUNTERS <= 64,
	       "stat_header.counter has 64 places: make it longer and raise STAT_VERSION");

/* Before stat_open() and when it failed to map anything: counts, but nobody can read them. */
static struct stat_header no_header;
static struct stat_row no_row;
static struct stat_moves no_moves;

static struct stat_header *_Atomic self = &no_header;
static _Atomic uint32_t gens;	/* of all rows */

struct stat_call_block stat_no_calls;
__thread struct stat_call_block *stat_my_calls = &stat_no_calls;
static uint8_t move_call[STAT_MOVES];	/* as in the file: private, as all that decides where to
					 * write */
static unsigned sites_next;
static struct stat_call_site no_site;
static struct stat_link no_link;
static _Atomic int block_owner[STAT_CALL_BLOCKS];	/* thread ids; private, too */

/* ---- small things ---- */

static uint64_t get(_Atomic uint64_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static void add(_Atomic uint64_t *p, uint64_t n)
{
	if (!n)
		return;
	atomic_fetch_add_explicit(p, n, memory_order_relaxed);
}

static struct stat_row *rows_of(struct stat_header *h)
{
	return (struct stat_row *)(h + 1);
}

/* The row's index in the file we write now, or -1 for the dummy and for rows from before a fork. */
static int row_index(const struct stat_row *row)
{
	struct stat_header *h = stat_self();
	uintptr_t base = (uintptr_t)rows_of(h), at = (uintptr_t)row;

	if (h == &no_header || at < base || at >= base + STAT_ROWS * sizeof(*row))
		return -1;
	return (int)((at - base) / sizeof(*row));
}

/* ---- opening it, and fork ---- */

static void move_counts(_Atomic uint64_t *from, _Atomic uint64_t *to, int n)
{
	while (n--)
		add(&to[n], atomic_exchange_explicit(&from[n], 0, memory_order_relaxed));
}

int stat_open(const char *program, const char *policy_file)
{
	struct stat_header *h = NULL, me = { 0 };
	int saved = errno, rc;

	if (stat_self() != &no_header)
		return 0;
	stat_fill_header(&me, program, policy_file);
	fd_hold(true);
	rc = stat_map_file(&me, &h);
	fd_hold(false);
	if (rc && stat_map_anonymous(&h)) {
		errno = saved;
		return rc;
	}
	memcpy(h, &me, sizeof(me));
	/* last: a reader that finds the magic finds the rest too */
	__atomic_store_n(&h->magic, STAT_MAGIC, __ATOMIC_RELEASE);
	atomic_store_explicit(&h->mode, atomic_load(&no_header.mode), memory_order_relaxed);
	stat_rows_reset();
	sites_next = 0;
	atomic_store_explicit(&self, h, memory_order_release);
	/* what was counted before there was a file */
	move_counts(no_header.counter, h->counter, 64);
	move_counts(no_header.reasons, h->reasons, STAT_REASONS);
	move_counts(no_header.link_errors, h->link_errors, STAT_REASONS);
	move_counts(no_header.bytes_tx, h->bytes_tx, PATH_KINDS);
	move_counts(no_header.bytes_rx, h->bytes_rx, PATH_KINDS);
	errno = saved;
	return rc;
}

/* Puts private memory in the place of the parent's mapping, in one step of the kernel's, so that
 * pointers to rows stay good at every moment: a handler may have forked in the middle of
 * whatever uses one. */
static void make_private(struct stat_header *h)
{
	/* Not MAP_FIXED at once, which leaves a hole where a kernel has unmapped before it finds
	 * that there is no memory. */
	void *none = mmap(NULL, STAT_FILE_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (none == MAP_FAILED)
		return;		/* what is under way is counted in the parent's file; nothing
				 * worse */
	if (mremap(none, STAT_FILE_SIZE, STAT_FILE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, h) ==
	    MAP_FAILED)
		munmap(none, STAT_FILE_SIZE);
}

void stat_after_fork(void)
{
	struct stat_header *h = stat_self();
	int saved = errno;

	atomic_store_explicit(&no_header.mode, atomic_load(&h->mode), memory_order_relaxed);
	if (h != &no_header)
		make_private(h);
	memset(no_header.counter, 0, sizeof(no_header.counter));
	memset(no_header.reasons, 0, sizeof(no_header.reasons));
	memset(no_header.link_errors, 0, sizeof(no_header.link_errors));
	memset(no_header.bytes_tx, 0, sizeof(no_header.bytes_tx));
	memset(no_header.bytes_rx, 0, sizeof(no_header.bytes_rx));
	memset(no_row.tx_bytes, 0, sizeof(no_row.tx_bytes));
	memset(no_row.rx_bytes, 0, sizeof(no_row.rx_bytes));
	memset(block_owner, 0, sizeof(block_owner));
	stat_my_calls = &stat_no_calls;
	stat_rows_reset();
	sites_next = 0;
	atomic_store_explicit(&self, &no_header, memory_order_release);
	errno = saved;
}

struct stat_header *stat_self(void)
{
	return atomic_load_explicit(&self, memory_order_acquire);
}

bool stat_opened(void) { return stat_self() != &no_header; }

void stat_add(enum stat_counter c, uint64_t n)
{
	if ((unsigned)c < STAT_COUNTERS)
		add(&stat_self()->counter[c], n);
}

void stat_link_error(enum reason r)
{
	if ((unsigned)r < REASON_COUNT)
		add(&stat_self()->link_errors[r], 1);
}

/* ---- rows ---- */

/* NULL: none is kept for this row. */
static struct stat_history *history_of(const struct stat_row *row)
{
	int i = row_index(row);

	if (i < 0 || !stat_rows_have(ROWS_HISTORY, (uint32_t)i))
		return NULL;
	return (struct stat_history *)((char *)stat_self() + STAT_HISTORY_AT) + i;
}

struct stat_moves *stat_row_moves(const struct stat_row *row)
{
	int i = row_index(row);

	if (i < 0 || !stat_rows_have(ROWS_MOVES, (uint32_t)i))
		return &no_moves;
	return (struct stat_moves *)((char *)stat_self() + STAT_MOVES_AT +
				     sizeof(struct stat_move_calls)) +
	       i;
}

/* The connection's calls, to those of this thread. The next one finds nothing. */
static void fold_moves(const struct stat_row *row)
{
	struct stat_moves *m = stat_row_moves(row);
	uint64_t n;

	if (m == &no_moves)
		return;
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < STAT_MOVES; i++)
			if (move_call[i] && m->n[k][i]) {
				stat_calls_attach();
				n = m->n[k][i];
				m->n[k][i] = 0;
				stat_my_calls->n[move_call[i] - 1][k] += n;
			}
}

static void clear_row(struct stat_row *row)
{
	struct stat_history *hist = history_of(row);

	atomic_store_explicit(&row->state, 1, memory_order_relaxed);
	/* before any new value: a reader compares gen before and after its copy. Not one more than
	 * the row's last, which went where its page did */
	atomic_exchange(&row->gen, atomic_fetch_add_explicit(&gens, 1, memory_order_relaxed) + 1);
	/* one memset: each plain assignment to an atomic would be a locked exchange */
	memset((char *)row + offsetof(struct stat_row, fd), 0,
	       offsetof(struct stat_row, gen) - offsetof(struct stat_row, fd));
	memset((char *)row + offsetof(struct stat_row, rule_asked), 0,
	       sizeof(*row) - offsetof(struct stat_row, rule_asked));
	if (hist)
		atomic_store_explicit(&hist->next, 0, memory_order_relaxed);
}

struct stat_row *stat_row_alloc(void)
{
	struct stat_header *h = stat_self();
	int i;

	if (h == &no_header)
		return &no_row;
	i = stat_rows_take(h);
	if (i < 0)
		return &no_row;
	clear_row(&rows_of(h)[i]);
	return &rows_of(h)[i];
}

struct stat_row *stat_row_none(void) { return &no_row; }

void stat_row_publish(struct stat_row *row)
{
	if (row != &no_row)
		atomic_store_explicit(&row->state, 2, memory_order_release);
}

/* The dummy is shared by many connections: what it holds is moved, not copied. */
static void fold_dummy(struct stat_header *h)
{
	move_counts(no_row.tx_bytes, h->bytes_tx, PATH_KINDS);
	move_counts(no_row.rx_bytes, h->bytes_rx, PATH_KINDS);
}

void stat_row_free(struct stat_row *row)
{
	struct stat_header *h = stat_self();
	int index = row_index(row), i;

	if (row == &no_row) {
		fold_dummy(h);
		return;
	}
	if (index < 0) {
		atomic_store_explicit(&row->state, 0, memory_order_relaxed);
		return;
	}
	/* closed first: a reader in between sees the bytes in neither place rather than in both */
	if (atomic_exchange_explicit(&row->state, 3, memory_order_release) == 3)
		return;			/* freed twice: must not be in the list twice */
	for (i = 0; i < PATH_KINDS; i++) {
		add(&h->bytes_tx[i], get(&row->tx_bytes[i]));
		add(&h->bytes_rx[i], get(&row->rx_bytes[i]));
	}
	add(&h->counter[STAT_ring_full], atomic_load_explicit(&row->fulls, memory_order_relaxed));
	fold_moves(row);
	stat_rows_give((uint32_t)index);
}

/* Coarse: what the kernel last wrote down, some milliseconds ago; never a system call, as the
 * exact time is with some clocks. */
static uint64_t now_us(bool coarse)
{
	struct timespec t;

	return clock_gettime(coarse ? CLOCK_REALTIME_COARSE : CLOCK_REALTIME, &t)
		       ? 0
		       : (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* The first event is when the connection was made, and must cost it nothing. Two threads at once
 * take two places; who overwrites an event that is still being written spoils that one only, and
 * the tag tells. */
static void put_event(struct stat_row *row, enum stat_event_kind kind, enum reason r, uint64_t arg)
{
	struct stat_history *hist = history_of(row);
	struct stat_event *e;
	uint32_t n;

	if (!hist)
		return;
	n = atomic_fetch_add_explicit(&hist->next, 1, memory_order_relaxed);
	e = &hist->event[stat_event_place(n)];
	atomic_store_explicit(&e->what, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&e->when, now_us(!n), memory_order_relaxed);
	atomic_store_explicit(&e->arg, arg, memory_order_relaxed);
	atomic_store_explicit(
		&e->what,
		STAT_EVENT_WHAT(atomic_load_explicit(&row->gen, memory_order_relaxed), n, r, kind),
		memory_order_release);
}

void stat_row_reason(struct stat_row *row, enum reason r)
{
	struct stat_header *h = stat_self();
	unsigned old;

	if ((unsigned)r >= REASON_COUNT)
		return;
	if (row == &no_row) {		/* shared: its old reason is somebody else's */
		if (r != REASON_NONE)
			add(&h->reasons[r], 1);
		return;
	}
	old = atomic_exchange_explicit(&row->reason, (uint8_t)r, memory_order_relaxed);
	if (old == r)
		return;
	if (old != REASON_NONE && old < REASON_COUNT && row_index(row) >= 0)
		add(&h->reasons[old], (uint64_t)-1);
	if (r != REASON_NONE)
		add(&h->reasons[r], 1);
	if (r == REASON_SEARCHING)	/* EVENT_SEARCH has told it */
		return;
	put_event(row, EVENT_REASON, r,
		  r == REASON_POLICY ? atomic_load_explicit(&row->rule_at, memory_order_relaxed)
				     : 0);
}

void stat_row_event(struct stat_row *row, enum stat_event_kind kind, uint64_t arg)
{
	put_event(row, kind, REASON_NONE, arg);
}

void stat_row_rule(struct stat_row *row, uint32_t at)
{
	atomic_store_explicit(&row->rule_at, at, memory_order_relaxed);
	if (row != &no_row &&
	    atomic_exchange_explicit(&row->rule_asked, at + 1, memory_order_relaxed) != at + 1)
		put_event(row, EVENT_RULE, REASON_NONE, at);
}

/* ---- calls ---- */

static struct stat_calls *calls_of(struct stat_header *h)
{
	return (struct stat_calls *)((char *)h + STAT_CALLS_AT);
}

void stat_calls_name(unsigned n, const char *(*name)(unsigned call))
{
	struct stat_header *h = stat_self();

	for (unsigned i = 0; h != &no_header && i < n && i < STAT_CALLS; i++)
		fmt_string(calls_of(h)->name[i], STAT_CALL_NAME, "%s", name(i));
}

void stat_moves_name(unsigned n, const uint8_t *call)
{
	struct stat_header *h = stat_self();

	for (unsigned i = 0; h != &no_header && i < n && i < STAT_MOVES; i++)
		((struct stat_move_calls *)((char *)h + STAT_MOVES_AT))->call[i] = move_call[i] =
			(uint8_t)(call[i] + 1);
}

static bool thread_gone(int tid)
{
	return syscall(SYS_tgkill, syscall(SYS_getpid), tid, 0) < 0 && errno == ESRCH;
}

/* The index of a block that nobody else has, or the shared last one. */
static int take_block(void)
{
	int me = (int)syscall(SYS_gettid), owner;

	for (int i = 0; i < STAT_CALL_BLOCKS - 1; i++) {
		owner = atomic_load(&block_owner[i]);
		if (owner == me ||
		    (!owner && atomic_compare_exchange_strong(&block_owner[i], &owner, me)))
			return i;
	}
	for (int i = 0; i < STAT_CALL_BLOCKS - 1; i++) {
		owner = atomic_load(&block_owner[i]);
		if (thread_gone(owner) &&
		    atomic_compare_exchange_strong(&block_owner[i], &owner, me))
			return i;
	}
	return STAT_CALL_BLOCKS - 1;
}

void stat_calls_take(void)
{
	struct stat_header *h = stat_self();
	struct stat_call_block *b;
	int saved = errno;

	if (h == &no_header || stat_my_calls != &stat_no_calls)
		return;
	b = &calls_of(h)->block[take_block()];
	if (stat_populate(h, (size_t)((char *)b - (char *)h),
			  (size_t)((char *)(b + 1) - (char *)h)))
		stat_my_calls = b;
	errno = saved;
}

/* ---- call sites of copies ---- */

struct stat_call_site *stat_call_site_add(bool rx, const char *where)
{
	struct stat_header *h = stat_self();
	size_t at = STAT_SITES_AT + sites_next * sizeof(struct stat_call_site);
	struct stat_call_site *s = (struct stat_call_site *)((char *)h + at);

	if (h == &no_header || sites_next == STAT_SITES || !stat_populate(h, at, at + sizeof *s))
		return &no_site;
	sites_next++;
	s->rx = rx;
	fmt_string(s->where, sizeof(s->where), "%s", where);
	atomic_store_explicit(&s->state, 2, memory_order_release);
	return s;
}

/* ---- queue pairs ---- */

struct stat_link *stat_link_begin(unsigned n)
{
	struct stat_header *h = stat_self();
	struct stat_links *all = (struct stat_links *)((char *)h + STAT_LINKS_AT);
	size_t at = STAT_LINKS_AT + offsetof(struct stat_links, link) +
		    n * sizeof(struct stat_link);
	struct stat_link *l;

	if (h == &no_header || n >= STAT_LINKS ||
	    !stat_populate(h, STAT_LINKS_AT, STAT_LINKS_AT + sizeof(all->used)) ||
	    !stat_populate(h, at, at + sizeof(*l)))
		return &no_link;
	l = &all->link[n];
	atomic_store_explicit(&l->state, 1, memory_order_relaxed);
	atomic_fetch_add(&l->gen, 1);	/* before any new value, as in clear_row() */
	memset((char *)l + offsetof(struct stat_link, phase), 0,
	       sizeof(*l) - offsetof(struct stat_link, phase));
	if (atomic_load_explicit(&all->used, memory_order_relaxed) <= n)
		atomic_store_explicit(&all->used, n + 1, memory_order_relaxed);
	return l;
}

void stat_link_publish(struct stat_link *l)
{
	atomic_store_explicit(&l->state, 2, memory_order_release);
}

void stat_link_free(struct stat_link *l)
{
	atomic_store_explicit(&l->state, 0, memory_order_release);
}
