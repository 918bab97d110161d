/*
 * track.c - which pages of a host range were written since a moment, told without a fault
 * reaching the program: userfaultfd's asynchronous write protection and PAGEMAP_SCAN (Linux
 * 6.7). Page tables see stores of all threads and of the kernel on their behalf. They don't see
 * a device's DMA (send.c counts that), nor writes through another mapping of the same memory: so
 * only private anonymous memory, and the driver's own pinned memory (a shared mapping of
 * /dev/zero) while no child has inherited it. A page that is not under watch is reported as
 * written.
 *
 * Whoever has pages pinned for long, as an RDMA device's memory region or io_uring's registered
 * buffers, writes there past the page tables. To pin a page for that is a write to it, so it
 * shows if it is done under watch; what was done before is counted in VmPin of
 * /proc/self/status, if only when it has been done. So that is asked when a snapshot is used,
 * until nothing has been written to the range for a while (gpu_track_alone()).
 *
 * For the lazy GPU path the same userfaultfd also holds accesses back: pages of the driver's
 * pinned memory that are taken out of the page tables stay in the page cache, and who touches
 * one waits until it is shown again (minor faults).
 *
 * Called under gpu_lock, but for gpu_track_event(), gpu_track_show() and gpu_track_poison().
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "arch/newer.h"
#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "gpu/deferred.h"
#include "gpu/gpu_ops.h"
#include "gpu/state.h"
#include "gpu/track.h"

/* Newer than the headers of some systems that this is built on. */
#define FEATURE_WP_UNPOPULATED (1ull << 13)
#define FEATURE_WP_ASYNC       (1ull << 15)
#define FEATURE_POISON         (1ull << 14)
#define CONTINUE_MODE_WP       (1ull << 1)
struct poison_ { struct uffdio_range range; uint64_t mode; int64_t updated; };
#define UFFDIO_POISON_ _IOWR(UFFDIO, 8, struct poison_)
#define PAGE_IS_WRITTEN_       (1ull << 1)
#define PAGE_IS_PRESENT_       (1ull << 3)
#define PM_SCAN_WP_MATCHING_   (1ull << 0)
#define PM_SCAN_CHECK_WPASYNC_ (1ull << 1)

struct page_region_ { uint64_t start, end, categories; };
struct pm_scan_arg_ {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define MADV_POPULATE_WRITE_   23
#define PAGEMAP_SCAN_ _IOWR('f', 16, struct pm_scan_arg_)

#define PAGE arch_page()
#define WATCHES 64

static int uffd = -1, pagemap = -1, status = -1;
static int plain = -1;			/* for private memory, if uffd reports forks and moves */
static bool forked, guards;
static bool of_fork;			/* this process is a child of fork() */
/* given up when a fork needs a descriptor and there is none */
static int spare = -1;
/* under watch, as far as we know */
static struct watch { uintptr_t lo, hi; bool shared, alone; uint64_t written_ns; } watches[WATCHES];
static unsigned next_watch;
static bool written_before;		/* forget() found something */

static uintptr_t down(uintptr_t a) { return a & ~(PAGE - 1); }
static uintptr_t up(uintptr_t a) { return down(a + PAGE - 1); }

/* Pages that were written, or are not there at all: one that was given back (MADV_DONTNEED) is
 * zero, but not written. */
static long find_changed(uintptr_t lo, uintptr_t hi, struct page_region_ *v, size_t n)
{
	struct pm_scan_arg_ a = {
		.size = sizeof a, .flags = PM_SCAN_CHECK_WPASYNC_, .start = lo, .end = hi,
			.vec = (uintptr_t)v, .vec_len = n,
		.category_inverted = PAGE_IS_PRESENT_, .category_anyof_mask = PAGE_IS_WRITTEN_ |
			PAGE_IS_PRESENT_,
		.return_mask = PAGE_IS_WRITTEN_ | PAGE_IS_PRESENT_,
	};

	return sys(SYS_ioctl, pagemap, PAGEMAP_SCAN_, &a);
}

/* KiB of this process that somebody has pinned; INT64_MAX: not to be had. proc_pid_status(5),
 * VmPin. */
static int64_t pinned(void)
{
	static char buf[8192];	/* gpu_lock */
	long r = sys(SYS_pread64, status, buf, sizeof buf - 1, 0);
	const char *line;

	buf[r > 0 ? r : 0] = 0;
	line = strstr(buf, "\nVmPin:");
	if (!line)
		return INT64_MAX;
	return strtol(line + strlen("\nVmPin:"), NULL, 10);
}

/* From here on only later writes count. */
static bool forget(uintptr_t lo, uintptr_t hi)
{
	struct page_region_ v;
	struct pm_scan_arg_ a = {
		.size = sizeof a, .flags = PM_SCAN_WP_MATCHING_ | PM_SCAN_CHECK_WPASYNC_,
			.start = lo, .end = hi, .vec = (uintptr_t)&v, .vec_len = 1,
		.category_mask = PAGE_IS_WRITTEN_, .return_mask = PAGE_IS_WRITTEN_,
	};
	long r = sys(SYS_ioctl, pagemap, PAGEMAP_SCAN_, &a);

	if (r <= 0)
		return r == 0;
	written_before = true;
	if (a.walk_end >= hi)
		return true;
	a.start = a.walk_end;		/* the second place where something was written */
	a.vec = a.vec_len = 0;
	return sys(SYS_ioctl, pagemap, PAGEMAP_SCAN_, &a) >= 0;
}

#define WATCH_FEATURES (FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM)
#define GUARD_FEATURES (UFFD_FEATURE_MINOR_SHMEM | FEATURE_POISON | UFFD_FEATURE_EVENT_FORK | \
			UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_THREAD_ID)

static long open_uffd(long flags, uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = fd_internal_sys(SYS_userfaultfd, O_CLOEXEC | flags);
	long r;

	if (fd < 0)
		return fd;
	r = sys(SYS_ioctl, fd, UFFDIO_API, &api);
	if (r < 0) {
		fd_internal_close(fd);
		return r == -EINVAL ? -ENOSYS : r;
	}
	return fd;
}

static void keep_spare(void)
{
	if (spare < 0 && proc_is_ours())	/* this /dev, too */
		spare = fd_internal_sys(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
}

void gpu_track_forked(int child)
{
	sys(SYS_close, child);
	keep_spare();
}

/* In a child of fork(), an io_uring instance that is there already may be its parent's: pages
 * that are registered with it count for the parent. Unless somebody takes FD_CLOEXEC away, none
 * outlives exec(). */
static bool parents_ring(void)
{
	static const char want[] = "anon_inode:[io_uring]";
	_Alignas(struct dirent64) char buf[4096];
	char is[sizeof want];
	int dir = !proc_is_ours() ? -EPERM :
		  fd_moment_sys(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY |
				O_CLOEXEC);
	bool found = dir < 0;
	long n = 0;

	while (!found && (n = sys(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < n; at += ((struct dirent64 *)(buf + at))->d_reclen)
			found |= sys(SYS_readlinkat, dir, ((struct dirent64 *)(buf + at))->d_name,
				     is, sizeof is) == sizeof want - 1 &&
				 /* cppcheck-suppress uninitvar; the kernel fills it in */
				 !memcmp(is, want, sizeof want - 1);
	if (dir >= 0)
		fd_internal_close(dir);
	return found || n < 0;		/* what cannot be looked at may be there */
}

static void close_all(void)
{
	int *const fds[] = { &uffd, &plain, &pagemap, &status, &spare };

	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		if (*fds[i] >= 0)
			fd_internal_close(*fds[i]);
		*fds[i] = -1;
	}
}

static int open_all(bool guard)
{
	struct page_region_ v;
	long fd, r;

	if (!proc_is_ours() || ((of_fork || foreign_image()) && parents_ring()))
		return -EBUSY;
	/* One that only reports accesses from user mode is no guard: a system call would fail. */
	fd = guard ? open_uffd(0, WATCH_FEATURES | GUARD_FEATURES) : -EPERM;
	guards = fd >= 0;
	if (fd < 0)
		fd = open_uffd(O_NONBLOCK | UFFD_USER_MODE_ONLY, WATCH_FEATURES);
	if (fd < 0)
		return (int)fd;
	uffd = (int)fd;
	plain = guards ? (int)open_uffd(O_NONBLOCK | UFFD_USER_MODE_ONLY, WATCH_FEATURES) : -1;
	if (guards && plain < 0)
		return plain;
	pagemap = fd_internal_sys(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (pagemap < 0)
		return pagemap;
	status = fd_internal_sys(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
	if (status < 0)
		return status;
	if (guards)
		keep_spare();
	r = find_changed(0, 0, &v, 1);	/* an empty range: is the call there at all? */
	return r == -ENOTTY ? -ENOSYS : 0;
}

int gpu_track_open(bool guard)
{
	int r = uffd >= 0 ? 0 : open_all(guard);

	if (r)
		close_all();
	return r;
}

bool gpu_track_guards(void) { return guards; }

void gpu_track_unguard(void)
{
	close_all();
	if (open_all(false))
		close_all();	/* then nothing is watched */
}

/* ---- is this memory of a kind that nobody else writes? ---- */

static uint64_t hex(const char **p)
{
	uint64_t v = 0;

	for (;; (*p)++) {
		char c = **p;

		if (c >= '0' && c <= '9')
			v = v * 16 + (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + (uint64_t)(c - 'a' + 10);
		else
			return v;
	}
}

/* One line of /proc/self/maps: 0: not yet at the range, 1: fits, *lo moved on; -1: no. */
static int judge(const char *line, uintptr_t *lo, uintptr_t hi, bool *shared, uintptr_t *ret_from,
		 uintptr_t *ret_to)
{
	const char *p = line, *perm, *name;
	uintptr_t from = hex(&p), to;

	if (*p++ != '-')
		return -1;
	to = hex(&p);
	perm = p + 1;
	if (to <= *lo)
		return 0;
	if (from > *lo)
		return -1;
	for (name = perm; *name && *name != '/' && *name != '['; name++)
		;
	if (perm[3] == 'p' ? strncmp(name, "[heap]", 6) && strncmp(name, "[stack", 6) &&
	    strncmp(name, "[anon", 5) && *name
			   : forked || strncmp(name, "/dev/zero", 9))
		return -1;
	*shared &= perm[3] == 's';
	*ret_from = from < *ret_from ? from : *ret_from;
	*ret_to = to;
	*lo = to < hi ? to : hi;
	return 1;
}

/* from, to: of the mappings in which the range is. */
static bool own_memory(uintptr_t lo, uintptr_t hi, bool *shared, uintptr_t *from, uintptr_t *to)
{
	static char buf[16384];	/* gpu_lock */
	size_t have = 0;
	int fd = !proc_is_ours() ? -EPERM :
		 fd_moment_sys(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	long r;
	bool ok = true;

	*shared = true;
	*from = *to = lo;
	if (fd < 0)
		return false;
	while (ok && lo < hi && (r = sys(SYS_read, fd, buf + have, sizeof buf - 1 - have)) > 0) {
		char *line = buf, *nl;

		have += (size_t)r;
		buf[have] = 0;
		while (ok && lo < hi && (nl = memchr(line, '\n', (size_t)(buf + have - line)))) {
			*nl = 0;
			ok = judge(line, &lo, hi, shared, from, to) >= 0;
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf - 1)
			break;
	}
	fd_internal_close(fd);
	return ok && lo >= hi;
}

/* ---- watching ---- */

static struct watch *known(uintptr_t lo, uintptr_t hi)
{
	for (int i = 0; i < WATCHES; i++)
		if (watches[i].lo <= lo && hi <= watches[i].hi)
			return &watches[i];
	return NULL;
}

/* Whole pages around a range that the driver knows, which may begin and end within a page. */
static bool drivers(uintptr_t lo, uintptr_t hi)
{
	if (hi - lo == PAGE)
		return gpu->pointer(lo).known || gpu->pointer(hi - 1).known;
	return gpu->pointer(lo + PAGE - 1).known && gpu->pointer(hi - PAGE).known;
}

/* Of private memory the whole mappings: the kernel makes another mapping of what is registered,
 * and mremap() takes only one at a time. Of shared memory only what the driver knows: what a
 * program maps for itself it may map a second time, and give pages of it back. */
static bool begin_watch(uintptr_t lo, uintptr_t hi)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	uintptr_t from, to;
	bool shared;

	if (!own_memory(lo, hi, &shared, &from, &to))
		return false;
	if (shared && !drivers(lo, hi))
		return false;
	if (shared && guards)
		reg.mode |= UFFDIO_REGISTER_MODE_MINOR;
	if (!shared) {
		lo = from;
		hi = to;
	}
	reg.range = (struct uffdio_range){ lo, hi - lo };
	if (sys(SYS_ioctl, shared || plain < 0 ? uffd : plain, UFFDIO_REGISTER, &reg) < 0)
		return false;
	/* what was known of other memory at these addresses: a page is in one range at most */
	for (int i = 0; i < WATCHES; i++)
		if (watches[i].lo < hi && lo < watches[i].hi)
			watches[i] = (struct watch){ .lo = 0 };
	watches[next_watch++ % WATCHES] = (struct watch){ .lo = lo, .hi = hi, .shared = shared,
							  .written_ns = now_ns() };
	return true;
}

static bool with_watch(uintptr_t lo, uintptr_t hi, bool (*f)(uintptr_t lo, uintptr_t hi))
{
	struct watch *r;

	lo = down(lo);
	hi = up(hi);
	if (uffd < 0)
		return false;
	r = known(lo, hi);
	if (r && f(lo, hi))
		return true;
	if (r)			/* unmapped, and perhaps mapped again since: not ours any more */
		*r = (struct watch){ .lo = 0 };
	return begin_watch(lo, hi) && f(lo, hi);
}

bool gpu_track_begin(uintptr_t lo, uintptr_t hi)
{
	struct watch *r;

	written_before = false;
	if (!with_watch(lo, hi, forget))
		return false;
	r = known(down(lo), up(hi));
	if (r && written_before) {
		r->alone = false;
		r->written_ns = now_ns();
	}
	return true;
}

/* io_uring pins a buffer, of 1 GiB at most, and counts it then: 4 s of a busy machine were seen. */
#define PINS_COUNTED_NS 10000000000u
#define LATELY_NS 1000000
static uint64_t none_ns;		/* when nothing was pinned */

bool gpu_track_alone(uintptr_t lo, uintptr_t hi)
{
	struct watch *r = known(down(lo), up(hi));

	if (r && r->alone)
		return true;
	if (pinned())
		/* perhaps that is all: it cannot be known */
		return gpu_user->pins();
	none_ns = now_ns();
	if (r)
		r->alone = none_ns - r->written_ns > PINS_COUNTED_NS;
	return true;
}

bool gpu_track_alone_lately(uintptr_t lo, uintptr_t hi)
{
	return now_ns() - none_ns < LATELY_NS || gpu_track_alone(lo, hi);
}

/* All pages count as written, and writing costs nothing. */
static bool unprotect(uintptr_t lo, uintptr_t hi)
{
	struct uffdio_writeprotect wp = { .range = { lo, hi - lo } };

	return sys(SYS_ioctl, uffd, UFFDIO_WRITEPROTECT, &wp) >= 0;
}

bool gpu_track_pause(uintptr_t lo, uintptr_t hi) { return with_watch(lo, hi, unprotect); }

/* What is not mapped at all is not clean either. */
static size_t clean_run(uintptr_t lo, uintptr_t hi, uintptr_t *next)
{
	struct page_region_ v = { 0 };
	struct pm_scan_arg_ a = {
		.size = sizeof a, .flags = PM_SCAN_CHECK_WPASYNC_, .start = down(lo), .end = up(hi),
			.vec = (uintptr_t)&v, .vec_len = 1,
		.category_inverted = PAGE_IS_WRITTEN_, .category_mask = PAGE_IS_WRITTEN_ |
			PAGE_IS_PRESENT_, .return_mask = PAGE_IS_PRESENT_,
	};
	long r = sys(SYS_ioctl, pagemap, PAGEMAP_SCAN_, &a);

	*next = r > 0 && v.start < hi ? v.start : hi;
	if (r <= 0 || v.start > lo)
		return 0;
	return (v.end < hi ? v.end : hi) - lo;
}

/* Nobody can have written to what is under a veil. */
size_t gpu_track_clean(uintptr_t lo, uintptr_t hi, uintptr_t *next)
{
	uintptr_t at = lo, end;
	size_t n;

	while (at < hi) {
		if (gpu_veil_at(at, hi, &end)) {
			at = *next = end;
			continue;
		}
		n = clean_run(at, end, next);
		at += n;
		if (at < end)
			break;
	}
	return at - lo;
}

bool gpu_track_writable(uintptr_t lo, uintptr_t hi)
{
	lo = down(lo);
	hi = up(hi);
	if (known(lo, hi))
		unprotect(lo, hi);
	return sys(SYS_madvise, lo, hi - lo, MADV_POPULATE_WRITE_) == 0;
}

static size_t written(uintptr_t lo, uintptr_t hi, size_t limit)
{
	struct page_region_ v[32];
	size_t sum = 0;
	long r;

	for (lo = down(lo), hi = up(hi); lo < hi; lo = v[r - 1].end) {
		r = find_changed(lo, hi, v, 32);
		if (r < 0)
			return limit;
		for (long i = 0; i < r; i++)
			sum += v[i].end - v[i].start;
		if (sum >= limit || r < 32)
			break;
	}
	return sum;
}

bool gpu_track_written(uintptr_t lo, uintptr_t hi, size_t limit)
{
	uintptr_t end;
	size_t sum = 0;

	for (; lo < hi && sum < limit; lo = end)
		if (!gpu_veil_at(lo, hi, &end))
			sum += written(lo, end, limit - sum);
	return sum >= limit;
}

/* ---- holding accesses back ---- */

static bool hide(uintptr_t lo, uintptr_t hi)
{
	struct watch *r = known(lo, hi);
	struct page_region_ v;

	return r && r->shared && find_changed(lo, hi, &v, 1) >= 0 &&
		sys(SYS_madvise, lo, hi - lo, MADV_DONTNEED) == 0;
}

bool gpu_track_hide(uintptr_t lo, uintptr_t hi) { return guards && with_watch(lo, hi, hide); }

void gpu_track_show(uintptr_t lo, uintptr_t hi, bool clean)
{
	struct uffdio_continue c = { .range = { lo, hi - lo }, .mode = clean ? CONTINUE_MODE_WP
				     : 0 };
	struct uffdio_range all = c.range;

	if (sys(SYS_ioctl, uffd, UFFDIO_CONTINUE, &c) >= 0)	/* it wakes who waits there, too */
		return;
	/* It stops at a page that is there already. -EAGAIN: a fork or mremap() waits for
	 * gpu_track_event(); whoever touches comes again. */
	do {
		uint64_t step = c.mapped > 0 ? (uint64_t)c.mapped : PAGE;

		if ((c.mapped <= 0 && c.mapped != -EEXIST) || step >= c.range.len)
			break;
		c.range.start += step;
		c.range.len -= step;
	} while (sys(SYS_ioctl, uffd, UFFDIO_CONTINUE, &c) < 0);
	sys(SYS_ioctl, uffd, UFFDIO_WAKE, &all);
}

bool gpu_track_hidden(uintptr_t lo, uintptr_t hi)
{
	struct watch *r = known(lo, hi);
	struct page_region_ v;

	return r && r->shared && find_changed(lo, lo + PAGE, &v, 1) >= 0;
}

void gpu_track_poison(uintptr_t lo, uintptr_t hi)
{
	struct poison_ p = { .range = { lo, hi - lo } };
	struct uffdio_range all = p.range;

	unprotect(lo, hi);	/* what is left of a watch would be in its way */
	if (sys(SYS_ioctl, uffd, UFFDIO_POISON_, &p) < 0)
		sys(SYS_mprotect, lo, hi - lo, PROT_NONE);	/* then it is SIGSEGV */
	sys(SYS_ioctl, uffd, UFFDIO_WAKE, &all);
}

enum gpu_veil_event gpu_track_event(uintptr_t *at, int *tid)
{
	struct uffd_msg m;
	long r;

	for (;;) {
		r = sys(SYS_read, uffd, &m, sizeof m);
		if (r == sizeof m)
			break;
		if (r == -EBADF || r == 0)
			return GPU_VEIL_EVENT_END;
		/* a fork comes with one: it waits, and so would all who touch a page */
		if (r == -EMFILE && spare >= 0) {
			fd_internal_close(spare);
			spare = -1;
		} else if (r != -EINTR && r != -EAGAIN) {
			struct timespec nap = { 0, 1000000 };

			sys(SYS_nanosleep, &nap, NULL);
		}
	}
	switch (m.event) {
	case UFFD_EVENT_PAGEFAULT:
		*at = down(m.arg.pagefault.address);
		*tid = (int)m.arg.pagefault.feat.ptid;
		return GPU_VEIL_EVENT_TOUCH;
	case UFFD_EVENT_FORK:
		*at = m.arg.fork.ufd;
		return GPU_VEIL_EVENT_FORK;
	default:
		return GPU_VEIL_EVENT_MOVE;
	}
}

void gpu_track_fork(bool child)
{
	if (!child) {
		forked = true;	/* shared memory has another writer from now on: judge again */
		memset(watches, 0, sizeof watches);
		return;
	}
	of_fork = true;
	close_all();		/* it is the parent's memory that they show */
	memset(watches, 0, sizeof watches);
}
