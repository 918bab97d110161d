/*
 * cuda_track.c - which pages of a host range were written since a moment, told without a fault reaching the program:
 * userfaultfd's asynchronous write protection and PAGEMAP_SCAN (Linux 6.7). Page tables see stores of all threads and of the
 * kernel on their behalf. They don't see a device's DMA (cuda_lane.c counts that), nor writes through another mapping
 * of the same memory: so only private anonymous memory, and the driver's own pinned memory (a shared mapping of
 * /dev/zero) while no child has inherited it. A page that is not under watch is reported as written.
 *
 * Not seen: long-term pins made before, as of io_uring's fixed buffers (io_uring turns the lane off) or of an RDMA device's
 * memory regions over the same buffer (docs/limits.md).
 *
 * Called under cuda_lock.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "cuda_int.h"
#include "fdtab.h"
#include "sys.h"

/* Newer than the headers of some systems that this is built on. */
#define FEATURE_WP_UNPOPULATED (1ull << 13)
#define FEATURE_WP_ASYNC       (1ull << 15)
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

#define PAGE 4096ul
#define RANGES 64

static int uffd = -1, pagemap = -1;
static bool forked;
static struct range { uintptr_t lo, hi; } ranges[RANGES];	/* under watch, as far as we know */
static unsigned next_range;

static uintptr_t down(uintptr_t a) { return a & ~(PAGE - 1); }
static uintptr_t up(uintptr_t a) { return down(a + PAGE - 1); }

/* Pages that were written, or are not there at all: one that was given back (MADV_DONTNEED) is zero, but not written. */
static long find_changed(uintptr_t lo, uintptr_t hi, struct page_region_ *v, size_t n)
{
	struct pm_scan_arg_ a = {
		.size = sizeof a, .flags = PM_SCAN_CHECK_WPASYNC_, .start = lo, .end = hi, .vec = (uintptr_t)v, .vec_len = n,
		.category_inverted = PAGE_IS_PRESENT_, .category_anyof_mask = PAGE_IS_WRITTEN_ | PAGE_IS_PRESENT_,
		.return_mask = PAGE_IS_WRITTEN_ | PAGE_IS_PRESENT_,
	};

	return sys(SYS_ioctl, pagemap, PAGEMAP_SCAN_, &a);
}

/* From here on only later writes count. */
static bool forget(uintptr_t lo, uintptr_t hi)
{
	struct pm_scan_arg_ a = {
		.size = sizeof a, .flags = PM_SCAN_WP_MATCHING_ | PM_SCAN_CHECK_WPASYNC_, .start = lo, .end = hi,
		.category_mask = PAGE_IS_WRITTEN_, .return_mask = PAGE_IS_WRITTEN_,
	};

	return sys(SYS_ioctl, pagemap, PAGEMAP_SCAN_, &a) >= 0;
}

int cuda_track_open(void)
{
	struct uffdio_api api = { .api = UFFD_API,
		.features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM };
	struct page_region_ v;
	long fd, r;

	if (uffd >= 0)
		return 0;
	fd = sys(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return (int)fd;
	r = sys(SYS_ioctl, fd, UFFDIO_API, &api);
	if (r < 0) {
		sys(SYS_close, fd);
		return r == -EINVAL ? -ENOSYS : (int)r;
	}
	uffd = fd_internal((int)fd);
	fd = sys(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		pagemap = fd_internal((int)fd);
	if (uffd < 0 || pagemap < 0)
		return uffd < 0 ? uffd : fd < 0 ? (int)fd : pagemap;
	r = find_changed(0, 0, &v, 1);	/* an empty range: is the call there at all? */
	return r == -ENOTTY ? -ENOSYS : 0;
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
static int judge(const char *line, uintptr_t *lo, uintptr_t hi)
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
	if (perm[3] == 'p' ? strncmp(name, "[heap]", 6) && strncmp(name, "[stack", 6) && strncmp(name, "[anon", 5) && *name
			   : forked || strncmp(name, "/dev/zero", 9))
		return -1;
	*lo = to < hi ? to : hi;
	return 1;
}

static bool own_memory(uintptr_t lo, uintptr_t hi)
{
	static char buf[16384];	/* cuda_lock */
	size_t have = 0;
	long fd = sys(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC), r;
	bool ok = true;

	if (fd < 0)
		return false;
	while (ok && lo < hi && (r = sys(SYS_read, fd, buf + have, sizeof buf - 1 - have)) > 0) {
		char *line = buf, *nl;

		have += (size_t)r;
		buf[have] = 0;
		while (ok && lo < hi && (nl = memchr(line, '\n', (size_t)(buf + have - line)))) {
			*nl = 0;
			ok = judge(line, &lo, hi) >= 0;
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf - 1)
			break;
	}
	sys(SYS_close, fd);
	return ok && lo >= hi;
}

/* ---- watching ---- */

static struct range *known(uintptr_t lo, uintptr_t hi)
{
	for (int i = 0; i < RANGES; i++)
		if (ranges[i].lo <= lo && hi <= ranges[i].hi)
			return &ranges[i];
	return NULL;
}

static bool watch(uintptr_t lo, uintptr_t hi)
{
	struct uffdio_register reg = { .range = { lo, hi - lo }, .mode = UFFDIO_REGISTER_MODE_WP };

	if (!own_memory(lo, hi) || sys(SYS_ioctl, uffd, UFFDIO_REGISTER, &reg) < 0)
		return false;
	ranges[next_range++ % RANGES] = (struct range){ lo, hi };
	return true;
}

static bool with_watch(uintptr_t lo, uintptr_t hi, bool (*f)(uintptr_t lo, uintptr_t hi))
{
	struct range *r;

	lo = down(lo);
	hi = up(hi);
	if (uffd < 0)
		return false;
	r = known(lo, hi);
	if (r && f(lo, hi))
		return true;
	if (r)			/* unmapped, and perhaps mapped again since: not ours any more */
		*r = (struct range){ 0, 0 };
	return watch(lo, hi) && f(lo, hi);
}

bool cuda_track_begin(uintptr_t lo, uintptr_t hi) { return with_watch(lo, hi, forget); }

/* All pages count as written, and writing costs nothing. */
static bool unprotect(uintptr_t lo, uintptr_t hi)
{
	struct uffdio_writeprotect wp = { .range = { lo, hi - lo } };

	return sys(SYS_ioctl, uffd, UFFDIO_WRITEPROTECT, &wp) >= 0;
}

bool cuda_track_pause(uintptr_t lo, uintptr_t hi) { return with_watch(lo, hi, unprotect); }

size_t cuda_track_clean(uintptr_t lo, uintptr_t hi, uintptr_t *next)
{
	struct page_region_ v;
	long r = find_changed(down(lo), up(hi), &v, 1);

	*next = hi;
	if (r < 0)
		return 0;
	if (r == 0)
		return hi - lo;
	if (v.start <= lo) {
		*next = v.end < hi ? v.end : hi;
		return 0;
	}
	return (v.start < hi ? v.start : hi) - lo;
}

bool cuda_track_writable(uintptr_t lo, uintptr_t hi)
{
	lo = down(lo);
	hi = up(hi);
	if (known(lo, hi))
		unprotect(lo, hi);
	return sys(SYS_madvise, lo, hi - lo, MADV_POPULATE_WRITE_) == 0;
}

bool cuda_track_written(uintptr_t lo, uintptr_t hi, size_t limit)
{
	struct page_region_ v[32];
	size_t sum = 0;
	long r;

	for (lo = down(lo), hi = up(hi); lo < hi; lo = v[r - 1].end) {
		r = find_changed(lo, hi, v, 32);
		if (r < 0)
			return true;
		for (long i = 0; i < r; i++)
			sum += v[i].end - v[i].start;
		if (sum >= limit)
			return true;
		if (r < 32)
			break;
	}
	return false;
}

void cuda_track_fork(bool child)
{
	if (!child) {
		forked = true;	/* shared memory has another writer from now on: judge again */
		memset(ranges, 0, sizeof ranges);
		return;
	}
	if (uffd >= 0)
		fd_internal_close(uffd);
	if (pagemap >= 0)
		fd_internal_close(pagemap);	/* it is the parent's memory that it shows */
	uffd = pagemap = -1;
	memset(ranges, 0, sizeof ranges);
}
