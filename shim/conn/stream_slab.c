/*
 * stream_slab.c - the memory of streams. Chunks are never unmapped, so a stale pointer is never
 * wild.
 *
 * When many more streams are free than in use, the pages of free ones go back to the kernel. They
 * are zero from then on, like a stream that was never used. A thread that comes too late finds that
 * the stream is free (mode, gen), and counts nowhere (row, moves). Such a thread may hold one of
 * its locks or be counted in it. So pages go only while we hold all locks of their streams, and a
 * thread that takes back a count checks whose it was (`life`). The links of the background thread's
 * lists lie elsewhere, and stay.
 *
 * Lock: `slab`, a leaf, for taking and giving back; below it locks of free streams are tried. Walks
 * take no lock.
 */
#include <sys/mman.h>

#include "arch/arch.h"
#include "base/shim.h"
#include "conn/holders.h"
#include "conn/stream_life.h"
#include "conn/stream_slab.h"

#define SLAB_CHUNK 256
#define SLAB_CHUNKS 1024
#define PAGE 4096u
#define STREAMS (SLAB_CHUNK * sizeof(struct stream))
#define PAGES (STREAMS / PAGE)
_Static_assert(STREAMS % PAGE == 0, "a chunk's streams fill its pages");
#define FREE_MOST 512	/* 0.9 MiB; or as many as are in use */

/* What stays of a stream. */
struct side {
	struct work work;
	struct stream *s;
	struct side *next;	/* when it is free */
	uint32_t index;
	bool held;		/* all its locks are ours, for its pages */
};

static struct lock slab;
static struct stream *_Atomic chunks[SLAB_CHUNKS];
static _Atomic uint32_t made, lives;
static struct side *free_list, *empty_list;	/* the second have given pages back */
static uint32_t free_n, used_n;	/* on the first list; taken */
static uint32_t left_n;		/* free_n after the last sweep, or less since then */

/* Behind the streams of its chunk. */
static struct side *side_at(uint32_t i)
{
	return (struct side *)((char *)atomic_load(&chunks[i / SLAB_CHUNK]) + STREAMS) +
	       i % SLAB_CHUNK;
}

/* Behind these: which pages it has given back, and nobody has taken since. */
#define CHUNK (STREAMS + SLAB_CHUNK * sizeof(struct side) + PAGES * sizeof(bool))

static bool *empty_pages(uint32_t i)
{
	return (bool *)(side_at(i - i % SLAB_CHUNK) + SLAB_CHUNK);
}

/* Of `p`, in the chunk of stream i. */
static size_t page_of(uint32_t i, const void *p)
{
	return (size_t)((const char *)p - (const char *)atomic_load(&chunks[i / SLAB_CHUNK])) /
	       PAGE;
}

static size_t last_page(uint32_t i) { return page_of(i, (const char *)(stream_at(i) + 1) - 1); }

struct stream *stream_at(uint32_t i)
{
	struct stream *c = NULL;

	if (i < SLAB_CHUNK * SLAB_CHUNKS)
		c = atomic_load(&chunks[i / SLAB_CHUNK]);
	return c ? &c[i % SLAB_CHUNK] : NULL;
}

uint32_t streams_top(void) { return atomic_load(&made); }

/* Of one that is zero the first one's: it is looked at for nothing. */
struct work *stream_work_of(const struct stream *s) { return &side_at(s->index)->work; }

struct stream *stream_of_work(const struct work *w)
{
	return ((const struct side *)((const char *)w - offsetof(struct side, work)))->s;
}

static struct side *pop(struct side **list)
{
	struct side *d = *list;

	if (d)
		*list = d->next;
	return d;
}

static void push(struct side **list, struct side *d)
{
	d->next = *list;
	*list = d;
}

static void push_free(struct side *d)
{
	push(&free_list, d);
	free_n++;
}

static struct side *one_more(void)
{
	uint32_t i = atomic_load(&made);
	struct side *d;

	if (i < SLAB_CHUNK * SLAB_CHUNKS && !atomic_load(&chunks[i / SLAB_CHUNK])) {
		void *p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p != MAP_FAILED)
			atomic_store(&chunks[i / SLAB_CHUNK], (struct stream *)p);
	}
	if (!stream_at(i))
		return NULL;
	d = side_at(i);
	d->s = stream_at(i);
	d->index = i;
	atomic_store(&made, i + 1);
	return d;
}

struct stream *stream_slab_take(void)
{
	struct side *d;

	lock_take(&slab);
	d = pop(&free_list);
	if (d)
		left_n = left_n < --free_n ? left_n : free_n;
	else
		d = pop(&empty_list);
	if (!d)
		d = one_more();
	if (d) {
		for (size_t p = page_of(d->index, d->s); p <= last_page(d->index); p++)
			empty_pages(d->index)[p] = false;
		d->s->index = d->index;
		used_n++;
	}
	lock_give(&slab);
	return d ? d->s : NULL;
}

void stream_slab_begin(struct stream *s)
{
	uint32_t gen;

	do
		gen = atomic_fetch_add(&lives, 2) + 2;
	while (!gen);
	atomic_store(&s->life, (uint64_t)gen << LIFE_GEN);
}

/* ---- pages ---- */

static struct lock *lock_of(struct stream *s, int i)
{
	return i == 0 ? &s->rcv.lock : i == 1 ? &s->snd.lock : &s->reg.lock;
}

#define LOCKS 3

/* What is on a page that went is not touched: that would bring it back. */
static bool on_empty(uint32_t i, const void *p) { return empty_pages(i)[page_of(i, p)]; }

static bool hold(uint32_t at)
{
	struct stream *s = stream_at(at);
	int i;

	for (i = 0; i < LOCKS && (on_empty(at, lock_of(s, i)) || lock_try(lock_of(s, i))); i++)
		;
	if (i == LOCKS && (on_empty(at, &s->reg.n) || !atomic_load(&s->reg.n)))
		return true;	/* else an epoll_ctl() that comes too late has something there */
	while (i--)
		if (!on_empty(at, lock_of(s, i)))
			lock_give(lock_of(s, i));
	return false;
}

/* Its lock went with its page: it is free already, and who waited for it does not know. (The call
 * would have the page there again.) */
static void gone_with_page(struct lock *l)
{
	if (atomic_load(&lock_sleepers))
		sys(SYS_futex, &l->v, FUTEX_WAKE, 1, NULL, NULL, 0);
	critical_leave();
}

/* `gone`: pages that went now. True: it has not all of its own. */
static bool let_go(uint32_t i, const bool *gone)
{
	struct stream *s = stream_at(i);
	bool any = false;

	for (int k = 0; k < LOCKS; k++) {
		struct lock *l = lock_of(s, k);

		if (gone[page_of(i, l)])
			gone_with_page(l);
		else if (!on_empty(i, l))
			lock_give(l);
	}
	for (size_t p = page_of(i, s); p <= last_page(i); p++)
		any |= gone[p] || empty_pages(i)[p];
	return any;
}

/* The pages of a chunk on which all streams are held. */
static void give_pages(uint32_t first, bool *gone)
{
	char *chunk = (char *)atomic_load(&chunks[first / SLAB_CHUNK]);
	size_t from, p;

	for (p = 0; p < PAGES; p++)
		gone[p] = !empty_pages(first)[p];
	for (uint32_t i = first; i < first + SLAB_CHUNK; i++)
		if (!side_at(i)->held)
			for (p = page_of(i, stream_at(i)); p <= last_page(i); p++)
				gone[p] = false;
	for (p = 0; p < PAGES; p++) {
		for (from = p; p < PAGES && gone[p]; p++)
			;
		if (p > from && sys(SYS_madvise, chunk + from * PAGE, (p - from) * PAGE,
				    MADV_DONTNEED) < 0)
			while (from < p)	/* locked in memory */
				gone[from++] = false;
	}
}

/* Those of a list that cannot be held stay on it. */
static uint32_t hold_all(struct side **list)
{
	struct side *all = *list, *d;
	uint32_t left = 0;

	*list = NULL;
	while ((d = pop(&all))) {
		d->held = hold(d->index);
		if (!d->held) {
			push(list, d);
			left++;
		}
	}
	return left;
}

/* Of the free ones whose pages are theirs alone, or those of other free ones. */
static void sweep(void)
{
	struct side *d;
	bool gone[PAGES];

	free_n = hold_all(&free_list);
	hold_all(&empty_list);
	for (uint32_t i = 0, n = streams_top(); i < n; i += SLAB_CHUNK) {
		give_pages(i, gone);
		for (uint32_t k = i; k < i + SLAB_CHUNK; k++) {
			d = side_at(k);
			if (!d->held)
				continue;
			d->held = false;
			if (let_go(k, gone))
				push(&empty_list, d);
			else
				push_free(d);
		}
		for (size_t p = 0; p < PAGES; p++)
			empty_pages(i)[p] |= gone[p];
	}
	left_n = free_n;
}

/* Not under a filter, which may not permit it; nor while somebody has to be woken for it. A sweep
 * looks at all streams, so it comes the more seldom the more there are: a stream that is freed pays
 * for 64 looks at most. */
static bool too_many_free(void)
{
	uint32_t most = used_n > FREE_MOST ? used_n : FREE_MOST, more = streams_top() / 64;

	if (more < FREE_MOST / 4)
		more = FREE_MOST / 4;

	/* a larger page has others' streams, too */
	return arch_page() == PAGE && free_n > most && free_n > left_n + more &&
	       shim_on && !atomic_load(&lock_sleepers);
}

/* To the slab. The caller has counted `gen` up. */
static void slab_give(struct stream *s)
{
	struct side *d = side_at(s->index);
	struct stat_row *row = s->row;

	s->row = stat_row_none();
	atomic_store(&s->moves.tx, NULL);	/* its row's page may go */
	atomic_store(&s->moves.rx, NULL);
	fork_drop(s);
	atomic_store(&s->mode, MODE_FREE);
	stat_row_free(row);
	lock_take(&slab);
	used_n--;
	push_free(d);
	if (too_many_free())
		sweep();
	lock_give(&slab);
	/* A handler that forks in the middle of it would go on with it in the child, whose rows are
	 * others. */
	critical_enter();
	if (shim_on)		/* as above */
		stat_trim();
	critical_leave();
}

void stream_free(struct stream *s)
{
	atomic_fetch_add(&s->life, 1ull << LIFE_GEN);
	slab_give(s);
}

/* A thread may still be inside a kernel call on the closed socket; the last to leave frees. Two may
 * think so, and by the time that the second does the struct may be free, or another stream's: `gen`
 * is of when the caller knew whose it is. */
bool stream_try_free(struct stream *s, uint32_t gen)
{
	uint64_t was = (uint64_t)gen << LIFE_GEN, now = was;

	if (!gen_lives(gen))
		return true;
	if (atomic_compare_exchange_strong(&s->life, &now, was + (1ull << LIFE_GEN)))
		slab_give(s);
	else if (now >> LIFE_GEN == gen)
		return false;
	return true;
}

void stream_fork_lock(void) { lock_take(&slab); }
void stream_fork_unlock(void) { lock_give(&slab); }

void stream_slab_after_fork(void)
{
	atomic_store(&slab.v, 0);
	atomic_store(&lock_sleepers, 0);
	/* also of free ones: the threads inside are not here */
	for (uint32_t i = 0; i < streams_top(); i++) {
		struct stream *s = stream_at(i);

		if (!(uint32_t)atomic_load(&s->life))	/* else its page would be there again */
			continue;
		atomic_store(&s->plain.tx, 0);
		atomic_store(&s->plain.rx, 0);
	}
}
