/*
 * segment.c - makes, checks and maps the shared memory of a link. See segment.h.
 * Takes no locks. Called by the background thread and by unit tests.
 */
#include "rdma/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sys.h"

#define MADV_POPULATE_WRITE_ 23
#define PAGE arch_page()
#define SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

/* Geometry follows from (slots, ring_size, large_size) and the kernel's page alone, so both ends
 * compute the same. Rings begin at a page: of each that is whole pages they can be given back. */
static void layout(struct segment *a)
{
	uint64_t side = 4096, slot = round_up(side + 2 * sizeof(struct segment_side), 4096);
	uint64_t ring = round_up(slot + (uint64_t)a->slots * sizeof(struct segment_slot), PAGE);
	uint64_t large = ring + 2ull * a->slots * a->ring_size;

	a->total = large + 2ull * a->slots * a->large_size;
	if (!a->base)
		return;
	a->side = (struct segment_side *)(a->base + side);
	a->slot = (struct segment_slot *)(a->base + slot);
	a->ring = a->base + ring;
	a->large = a->base + large;
}

static bool ring_sane(uint64_t size)
{
	return size >= 4096 && size <= 1ull << 24 && !(size & (size - 1));
}

static bool sane(uint32_t slots, uint64_t ring_size, uint64_t large_size)
{
	return slots >= 2 && slots <= SEGMENT_MAX_SLOTS && ring_sane(ring_size) &&
	       (!large_size || (ring_sane(large_size) && large_size > ring_size)) &&
	       /* address space is not free */
	       2 * slots * (ring_size + large_size) <= SEGMENT_MAX_BYTES;
}

/* Makes the pages by reading a byte of each, by a call that says EFAULT. */
static int read_each(uintptr_t from, uintptr_t to)
{
	char byte;
	struct iovec here = { &byte, 1 }, there = { .iov_len = 1 };
	long r = 1, me = sys(SYS_getpid);

	for (; from < to && r == 1; from += PAGE) {
		there.iov_base = (void *)from;
		r = sys(SYS_process_vm_readv, me, &here, 1, &there, 1, 0);
	}
	return r < 0 ? (int)r : 0;
}

/* 0; -EFAULT, -ENOMEM: they cannot be had; another error: that cannot be told. */
static int populate(const void *p, size_t n)
{
	uintptr_t from = (uintptr_t)p & ~(PAGE - 1), to = (uintptr_t)p + n;
	long r = sys(SYS_madvise, from, to - from, MADV_POPULATE_WRITE_);

	/* before Linux 5.14 */
	return !r || r == -EFAULT || r == -ENOMEM ? (int)r : read_each(from, to);
}

/* What is not whole pages stays (rings of 4 KiB where pages are of 64): to round up would wipe
 * another connection's. */
static bool removed(void *p, size_t n)
{
	return !(((uintptr_t)p | n) & (PAGE - 1)) && !sys(SYS_madvise, p, n, MADV_REMOVE);
}

void segment_give(const struct segment *a, void *p, size_t n)
{
	if (!a->kept)
		removed(p, n);
}

bool segment_have(const struct segment *a, void *p, size_t used, size_t n)
{
	if (!a->preallocated || !populate(p, n))
		return true;
	segment_give(a, (uint8_t *)p + used, n - used);
	return false;
}

/* Gigabytes of address space, of which hardly a page exists. In a program that has locked its
 * future (mlockall(2), MCL_FUTURE) all of them would be made at once, where they may be touched:
 * so not before they are unlocked. */
static int map_sparse(size_t n, int fd, void **ret)
{
	long p = sys(SYS_mmap, NULL, n, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0), r;

	if (p < 0 && p > -4096)
		return p == -EAGAIN ? -ENOMEM : (int)p;		/* beyond RLIMIT_MEMLOCK */
	r = sys(SYS_munlock, p, n);
	if (!r)
		r = sys(SYS_mprotect, p, n, PROT_READ | PROT_WRITE);
	if (r)
		munmap((void *)p, n);
	*ret = (void *)p;
	return (int)r;
}

static int map(struct segment *a, int fd)
{
	void *p;
	int r = map_sparse(a->total, fd, &p);

	if (r)
		return r;
	/* A core dump touches, and so makes, every page of a file in memory, and would write
	 * gigabytes. */
	madvise(p, a->total, MADV_DONTDUMP);
	madvise(p, a->total, MADV_NOHUGEPAGE);	/* a ring is less than a huge page, and idle ones
						 * are a few small ones */
	/* the first to be written, before it is known what is to be preallocated */
	r = populate(p, PAGE + 2 * sizeof(struct segment_side));
	if (r == -EFAULT || r == -ENOMEM) {
		munmap(p, a->total);
		return -ENOMEM;
	}
	a->base = p;
	layout(a);
	return 0;
}

/* fds of the library never go through libc entries that the library itself interposes. */
static void raw_close(int fd)
{
	syscall(SYS_close, fd);
}

int segment_create(struct segment *a, uint32_t slots, uint64_t ring_size, uint64_t large_size,
		   int *ret_fd)
{
	struct segment_header *h;
	struct rlimit lim;
	int fd, r;

	if (!sane(slots, ring_size, large_size))
		return -EINVAL;
	*a = (struct segment){ .slots = slots, .ring_size = ring_size, .large_size = large_size,
			       .me = 0 };
	layout(a);
	fd = syscall(SYS_memfd_create, "rdmashim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* Beyond RLIMIT_FSIZE, which holds for memory too, it would be SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &lim) || lim.rlim_cur < a->total) {
		raw_close(fd);
		return -EFBIG;
	}
	if (syscall(SYS_ftruncate, fd, a->total) < 0 ||
	    syscall(SYS_fcntl, fd, F_ADD_SEALS, SEGMENT_SEALS) < 0) {
		r = -errno;
		raw_close(fd);
		return r;
	}
	r = map(a, fd);
	if (r) {
		raw_close(fd);
		return r;
	}
	h = (struct segment_header *)a->base;
	*h = (struct segment_header){ SEGMENT_MAGIC, SEGMENT_VERSION, slots, ring_size, a->total,
				      large_size };
	*ret_fd = fd;
	return 0;
}

int segment_attach(struct segment *a, int fd)
{
	struct segment_header h;
	struct stat st;
	struct statfs fs;
	int seals = syscall(SYS_fcntl, fd, F_GET_SEALS), r;

	*a = (struct segment){ .me = 1 };
	/* Without the shrink seal the peer could cut the file and kill us with SIGBUS. */
	if (seals < 0 || (seals & SEGMENT_SEALS) != SEGMENT_SEALS)
		return -EPROTO;
	/* A memfd of huge pages has seals too, but pages of it may be missing when they are
	 * touched: SIGBUS. */
	if (syscall(SYS_fstatfs, fd, &fs) < 0 || fs.f_type != 0x01021994 /* TMPFS_MAGIC */)
		return -EPROTO;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (syscall(SYS_pread64, fd, &h, sizeof h, 0L) != (long)sizeof h)
		return -EPROTO;
	if (h.magic != SEGMENT_MAGIC || h.version != SEGMENT_VERSION ||
	    !sane(h.slots, h.ring_size, h.large_size))
		return -EPROTO;
	a->slots = h.slots;
	a->ring_size = h.ring_size;
	a->large_size = h.large_size;
	layout(a);
	if (a->total != h.total_size || (uint64_t)st.st_size != a->total)
		return -EPROTO;
	r = map(a, fd);
	return r;
}

/* Forgotten first: another thread may fork as soon as the addresses are free, and the child
 * would unmap again, what may be something else there by then. */
void segment_unmap(struct segment *a)
{
	struct segment was = *a;

	*a = (struct segment){ 0 };
	if (was.base)
		munmap(was.base, was.total);
}

static uint8_t *rings(const struct segment *a, uint32_t slot)
{
	return a->ring + 2ull * slot * a->ring_size;
}

/* Of each side the slots that are taken first keep so many bytes: to make their pages anew for
 * each short connection costs more than these are worth. */
#define WARM (2ul << 20)
bool segment_slot_warm(const struct segment *a, uint32_t slot)
{
	/* of a preallocated one, committed memory is scarce */
	return !a->permanent && !a->preallocated &&
	       slot % (a->slots / 2) < WARM / (2 * a->ring_size);
}

/* Of each side's first slot the large rings are kept, too, for bulk answers that come one after
 * the other: 512 faults at each end for the one that is in use. */
static bool large_warm(const struct segment *a, uint32_t slot)
{
	return a->large_size && segment_slot_warm(a, slot) && !(slot % (a->slots / 2));
}

static void leave_large(struct segment *a, uint32_t slot)
{
	for (int from = 0; from < 2; from++)
		if (a->large_size && atomic_exchange(&a->slot[slot].dir[from].large, 0) &&
		    !large_warm(a, slot))
			segment_give(a, segment_large(a, slot, from), a->large_size);
}

/* Of a preallocated segment they stay: without them a byte more could be SIGBUS. Of one that is
 * kept: see segment_give(). */
bool segment_ring_rest(const struct segment *a, uint32_t slot, int from, uint64_t large)
{
	uint8_t *p = rings(a, slot) + (unsigned)from * a->ring_size;

	if (large_warm(a, slot))	/* of an earlier stream */
		large = a->large_size;
	return !a->permanent && !a->preallocated && !a->kept && removed(p, a->ring_size) &&
	       (!large || removed(segment_large(a, slot, from), large));
}

void segment_slot_cools(const struct segment *a, uint32_t slot)
{
	segment_give(a, rings(a, slot), 2 * a->ring_size);
	if (large_warm(a, slot))
		segment_give(a, segment_large(a, slot, 0), 2 * a->large_size);
}

void segment_slot_left(struct segment *a, uint32_t slot)
{
	if (!a->permanent && !segment_slot_warm(a, slot))
		segment_slot_cools(a, slot);
	leave_large(a, slot);
}

bool segment_slot_was_used(const struct segment *a, uint32_t slot)
{
	return !a->preallocated &&
	       atomic_load_explicit(&a->slot[slot].dir[0].final, memory_order_relaxed);
}

int segment_slot_reset(struct segment *a, uint32_t slot)
{
	struct segment_slot *s = &a->slot[slot];

	if (a->preallocated && populate(s, sizeof *s))
		return -ENOMEM;
	leave_large(a, slot);
	memset(s, 0, sizeof *s);
	atomic_store(&s->dir[0].final, RING_NO_FINAL);
	atomic_store(&s->dir[1].final, RING_NO_FINAL);
	return 0;
}

bool segment_slot_have(const struct segment *a, uint32_t slot)
{
	return (!a->preallocated || !populate(&a->slot[slot], sizeof a->slot[slot])) &&
	       segment_have(a, rings(a, slot), 0, 2 * a->ring_size);
}
