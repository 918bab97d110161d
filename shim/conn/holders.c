/*
 * holders.c - see holders.h. Owns the table of holders.
 *
 * A struct holders belongs to one stream of one process, and of the processes that got its socket
 * by fork. Any of them may write to it at any time while the others read, so each field is an
 * atomic of its own. The pid of a process that died without a word counts for nothing.
 *
 * One of these processes may be hostile: a worker that gave up its rights and was taken over. It
 * has the socket and may spoil that connection, but nothing else. So which structs are in use is
 * known in private memory only, nobody walks over the structs, and each fork puts them into new
 * memory, so that a child has those of its own streams and no others.
 */
#include "conn/holders.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/fdtab.h"
#include "base/loop.h"
#include "base/own_memory.h"
#include "base/procfs.h"
#include "base/procs.h"
#include "base/sys.h"
#include "policy/words.h"

#define PLACES    4096		/* each a page of its own, of one fork */
#define FEW	  256		/* those that keep their memory; used in turn, so that who comes too
				 * late hardly finds another's */

/* The first page of the range; the places follow. */
struct holders_table {
	_Atomic uint32_t requests;	/* a child set want_fallback somewhere */
};
static _Atomic(struct holders_table *) holders;

/* The place that holders are taken from: counter, place + 1, next holders. 0: none. A fork
 * closes it. */
static _Atomic uint64_t open_place;
static _Atomic uint32_t users[PLACES];	/* streams with a holders there, and 1 while it is open */

static int my_pid(void) { return atomic_load(&shim_pid); }

/* Of one that is not our child. It has no memory any more: then only its parent has still to
 * take note of that, or its first thread alone has ended, and the others live. Whoever asks for
 * the memory itself waits for an exec of it, perhaps without end. */
static bool waits_for_its_parent(int pid)
{
	char path[32], c;
	int r;

	fmt_string(path, sizeof path, "/proc/%d/exe", pid);
	if (!proc_is_ours() || sys(SYS_readlinkat, AT_FDCWD, path, &c, sizeof c) != -ENOENT)
		return false;
	r = process_ended(pid);
	return r > 0 || r == -ESRCH;
}

bool process_lives(int pid)
{
	siginfo_t si = { .si_pid = 0 };

	if (pid == my_pid() && !foreign_image())	/* not a child that asks for its parent */
		return true;
	if (pid == INT32_MIN)
		return false;
	if (pid < 0) {	/* a thread: of ours, or one that has become another program since */
		long ours = my_pid();

		pid = -pid;
		if (!sys(SYS_tgkill, ours, pid, 0))
			return true;
	}
	if (sys(SYS_kill, pid, 0) == -ESRCH)
		return false;
	if (!sys(SYS_waitid, P_PID, pid, &si, WEXITED | WNOHANG | WNOWAIT, NULL))
		return !si.si_pid;
	return pid == my_pid() || !waits_for_its_parent(pid);
}

void holders_enter(struct holders *c, int pid)
{
	for (int i = 0; i < HOLDERS_PIDS; i++)
		if (atomic_load(&c->pids[i]) == pid)
			return;
	for (int i = 0; i < HOLDERS_PIDS; i++) {
		int32_t p = atomic_load(&c->pids[i]);

		if ((!p || !process_lives(p)) &&
		    atomic_compare_exchange_strong(&c->pids[i], &p, pid))
			return;
	}
	atomic_store(&c->crowded, 1);
}

bool holders_has(struct holders *c, int pid)
{
	for (int i = 0; i < HOLDERS_PIDS; i++)
		if (atomic_load(&c->pids[i]) == pid)
			return true;
	return false;
}

void holders_swap(struct holders *c, int32_t from, int to)
{
	for (int i = 0; i < HOLDERS_PIDS; i++) {
		int32_t p = from;

		atomic_compare_exchange_strong(&c->pids[i], &p, to);
	}
}

void holders_leave(struct holders *c) { holders_swap(c, my_pid(), 0); }

/* ---- which holders are taken: private memory only ---- */

static size_t page_bytes(void) { return getauxval(AT_PAGESZ); }

/* New memory there. A thread may still look at a holders that another has just given back, so
 * there is always some: see make_private() in stat.c. */
static bool fresh(void *at)
{
	size_t n = page_bytes();
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return false;
	if (mremap(p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return true;
	munmap(p, n);
	return false;
}

static struct holders_table *holders_made(void)
{
	struct holders_table *t = atomic_load(&holders), *none = NULL;
	size_t n = (PLACES + 1) * page_bytes();
	void *p;

	if (t)
		return t;
	p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (fresh(p) && atomic_compare_exchange_strong(&holders, &none, (struct holders_table *)p))
		return p;
	munmap(p, n);
	return none;
}

static char *place_at(uint32_t i) { return (char *)atomic_load(&holders) + (i + 1) * page_bytes(); }
static uint32_t place_of(const void *c)
{
	return (uint32_t)((size_t)((const char *)c - (char *)atomic_load(&holders)) / page_bytes() -
			  1);
}

static bool is_open(uint64_t open) { return open & 0xffff0000; }
static uint32_t place_in(uint64_t open) { return (uint32_t)(open >> 16 & 0xffff) - 1; }

/* One that nobody uses: it is used now. PLACES: there is none. Half of those in turn may be in use;
 * then there are more. */
static uint32_t place_free(void)
{
	static _Atomic uint32_t hint, turn = FEW;
	uint32_t most = atomic_load(&turn), n, i, zero;

	for (n = 0; n < PLACES; n++) {
		if (n >= most / 2 && most < PLACES) {
			atomic_store(&turn, most * 2);
			most *= 2;
		}
		i = atomic_fetch_add(&hint, 1) % most;
		zero = 0;
		if (atomic_compare_exchange_strong(&users[i], &zero, 1))
			return i;
	}
	return PLACES;
}

/* Nobody uses it any more: its memory goes, as far as other processes have not got it. Else a
 * server that forks would have a mapping for each of thousands of connections that are closed. Not
 * under a filter, which may not permit it. */
static void place_given_back(uint32_t i)
{
	uint32_t zero = 0;

	if (!shim_on || !atomic_compare_exchange_strong(&users[i], &zero, 1))
		return;
	/* in one step of the kernel's, and one mapping with its neighbours: mremap(2) would keep
	 * them apart */
	if (mmap(place_at(i), page_bytes(), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return;		/* an old kernel may have left a hole: never used again */
	atomic_fetch_sub(&users[i], 1);
}

static void place_leave(uint32_t i)
{
	if (atomic_fetch_sub(&users[i], 1) == 1 && i >= FEW)
		place_given_back(i);
}

void holders_close(void)
{
	uint64_t was = atomic_load(&open_place);

	while (is_open(was) &&
	       !atomic_compare_exchange_weak(&open_place, &was, ((was >> 32) + 1) << 32))
		;
	if (is_open(was))
		place_leave(place_in(was));
}

/* A page that no other process has yet takes the place of `was`. */
static bool place_open(uint64_t was)
{
	uint32_t i = place_free();
	uint64_t next;

	if (i == PLACES)
		return false;
	next = ((was >> 32) + 1) << 32 | (i + 1) << 16;
	if (!fresh(place_at(i))) {
		atomic_fetch_sub(&users[i], 1);
		return false;
	}
	if (!atomic_compare_exchange_strong(&open_place, &was, next))
		place_leave(i);		/* another thread was faster */
	else if (is_open(was))
		place_leave(place_in(was));
	return true;
}

static void holders_give(struct holders *c) { place_leave(place_of(c)); }

/* A holders with this process in it. */
static struct holders *holders_take(void)
{
	if (!holders_made() || !memory_is_ours())
		return NULL;
	for (;;) {
		uint64_t was = atomic_load(&open_place);
		uint32_t i = place_in(was), at = was & 0xffff;
		struct holders *c;

		if (!is_open(was) || at == page_bytes() / sizeof *c) {
			if (!place_open(was))
				return NULL;
			continue;
		}
		atomic_fetch_add(&users[i], 1);
		if (!atomic_compare_exchange_strong(&open_place, &was, was + 1)) {
			atomic_fetch_sub(&users[i], 1);
			continue;
		}
		c = (struct holders *)place_at(i) + at;
		holders_enter(c, my_pid());
		return c;
	}
}

struct holders *holders_of(struct stream *s)
{
	struct holders *c = atomic_load(&s->others.holders), *none = NULL;

	if (c)
		return c;
	c = holders_take();
	if (c && !atomic_compare_exchange_strong(&s->others.holders, &none, c)) {
		holders_leave(c);
		holders_give(c);
		return none;
	}
	return c;
}

void holders_want_fallback(struct holders *c)
{
	atomic_store(&c->want_fallback, 1);
	atomic_fetch_add(&atomic_load(&holders)->requests, 1);
}

void holders_say_on_tcp(struct holders *c)
{
	atomic_store(&c->on_tcp, 1);
	word_ring(&c->on_tcp);
}

#define MOMENT_US 10000

bool holders_await_on_tcp(struct holders *c, uint64_t end_us)
{
	uint64_t now = now_us(), until = now + MOMENT_US < end_us ? now + MOMENT_US : end_us;

	word_wait(&c->on_tcp, 0, until * 1000);
	return now <= end_us;
}

uint32_t holders_requests(void)
{
	struct holders_table *t = atomic_load(&holders);

	return t ? atomic_load(&t->requests) : 0;
}

bool fork_shared(struct stream *s)
{
	struct holders *c = atomic_load(&s->others.holders);

	if (!c)
		return false;
	if (atomic_load(&c->forking) || atomic_load(&c->crowded))
		return true;
	for (int i = 0; i < HOLDERS_PIDS; i++) {
		int p = atomic_load(&c->pids[i]);

		if (p && p != my_pid() && process_lives(p))
			return true;
	}
	return false;
}

/* Nobody shared it when the caller looked, so whoever wanted it on TCP is gone; whoever forks
 * next finds it cut, and not said to be on TCP. A child that takes no lock may have come since,
 * and it is perhaps its wish that is lost here: hence the second look. */
bool fork_may_cut(struct stream *s)
{
	struct holders *c = atomic_load(&s->others.holders);

	if (!c)
		return true;
	atomic_store(&c->want_fallback, 0);
	atomic_store(&c->on_tcp, 0);
	if (!fork_shared(s))
		return true;
	holders_want_fallback(c);
	return false;
}

/* It rests on TCP until its pause is over, and the background thread knows when that is: it has
 * looked since, and looks again then. tests/tsan.supp knows this by name. */
static bool glance_rests(const struct stream *s)
{
	return atomic_load(&s->mode) == MODE_TCP_FOR_NOW && s->earn.next_us > now_us();
}

void fork_less_shared(struct stream *s)
{
	/* else the background thread does not know it */
	if (atomic_load(&s->upgrade) && !glance_rests(s))
		bg_look(s);
}

void fork_drop(struct stream *s)
{
	struct holders *c = atomic_exchange(&s->others.holders, NULL);

	if (!c)
		return;
	holders_leave(c);
	holders_give(c);
}

bool fork_ever(void) { return atomic_load(&holders) != NULL; }
