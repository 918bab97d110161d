/*
 * mem.c - registrations, in the program. Pages are touched as a card's driver touches them to pin
 * them; that they count against RLIMIT_MEMLOCK is reckoned here. SIMNIC_SHARE=1: private memory is
 * put into shared pages first, which the device can reach at the speed of memory; only for programs
 * that nothing else does with that memory meanwhile (perftest).
 */
#include "lib.h"
#include "pin.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

static _Atomic size_t pinned;
static _Atomic bool registered;

bool nic_registered(void) { return atomic_load(&registered); }

static bool may_lock_all(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { { 0, 0, 0 } };

	return !raw(SYS_capget, &h, d) && (d[0].effective & 1u << CAP_IPC_LOCK);
}

static bool over_limit(size_t more)
{
	struct rlimit64 l;

	if (!nic_page()->knobs.memlock || may_lock_all() ||
	    raw(SYS_prlimit64, 0, RLIMIT_MEMLOCK, NULL, &l) || l.rlim_cur == RLIM64_INFINITY)
		return false;
	return atomic_load(&pinned) + more > l.rlim_cur;
}

/* The mapping that the address is in; false: none. */
static bool mapping(uintptr_t at, uintptr_t *ret_end, bool *ret_private, bool *ret_file)
{
	char line[512], perms[8];
	unsigned long a, b, offset, inode;
	unsigned major, minor;
	FILE *f = fopen("/proc/self/maps", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %7s %lx %x:%x %lu", &a, &b, perms, &offset, &major,
			   &minor, &inode) == 7 && a <= at && at < b) {
			found = true;
			*ret_end = b;
			*ret_private = perms[3] == 'p';
			*ret_file = inode;
		}
	if (f)
		fclose(f);
	return found;
}

static bool is_private(uintptr_t at)
{
	uintptr_t end;
	bool private, file;

	return mapping(at, &end, &private, &file) && private;
}

static void make_shared(uintptr_t from, uintptr_t to)
{
	uintptr_t end;
	bool private, file;
	long fd;

	if (!getenv("SIMNIC_SHARE") || !mapping(from, &end, &private, &file) || !private ||
	    file || to > end)
		return;
	fd = raw(SYS_memfd_create, "nic-shared", 1);
	if (fd < 0)
		return;
	if (raw(SYS_ftruncate, fd, to - from) >= 0 &&
	    raw(SYS_pwrite64, fd, from, to - from, 0) == (long)(to - from))
		mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		     (int)fd, 0);
	raw(SYS_close, fd);
}

/* An io_uring that has the memory as its buffer, which nicd takes over. */
static void pin(struct nic_pin *ret, void *addr, size_t len)
{
	struct iovec v = { addr, len };
	long fd;

	if (!nic_page()->knobs.pin || len > PIN_MOST)
		return;
	fd = raw(SYS_io_uring_setup, 2, &ret->params);
	if (fd < 0)
		return;
	if (raw(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS, &v, 1) < 0)
		raw(SYS_close, fd);
	else
		ret->fd = (uint32_t)fd + 1;
}

static struct ibv_mr *refused(int err)
{
	errno = err;
	return NULL;
}

struct ibv_mr *nic_reg(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access,
		       int dmabuf, uint64_t offset)
{
	struct nic_req req = { .op = OP_REG_MR,
			       .h = pd->handle,
			       .h2 = (uint32_t)access,
			       .a = (uintptr_t)addr,
			       .b = len,
			       .c = iova,
			       .d = offset };
	uintptr_t from = (uintptr_t)addr & ~4095ul, to = ((uintptr_t)addr + len + 4095) & ~4095ul;
	const struct nic_knobs *k = &nic_page()->knobs;
	uint64_t end = nic_now() + (uint64_t)k->reg_ns + len * (uint64_t)k->reg_ps_byte / 1000;
	struct nic_fds fds = { .in = { dmabuf }, .nin = dmabuf >= 0 };
	size_t pages = dmabuf < 0 ? to - from : 0;
	struct nic_pin *p = (struct nic_pin *)req.data;
	struct nic_rep rep;
	struct nic_mr *m;
	int r;

	if (!len && dmabuf >= 0)
		return refused(EINVAL);
	if (over_limit(pages))
		return refused(ENOMEM);
	if (pages)
		make_shared(from, to);
	if (pages && raw(SYS_madvise, from, pages, access & IBV_ACCESS_LOCAL_WRITE ? 23 : 22) <
			     0) /* MADV_POPULATE_WRITE, _READ */
		return refused(EFAULT);
	m = calloc(1, sizeof *m);
	if (pages && is_private(from))
		pin(p, addr, len);
	r = m ? nic_call(&req, &rep, &fds) : ENOMEM;
	if (p->fd)
		raw(SYS_close, p->fd - 1);
	if (r) {
		free(m);
		return refused(r);
	}
	m->mr = (struct ibv_mr){ pd->context, pd, addr, len, rep.h, rep.h2, rep.h2 };
	m->pinned = pages;
	atomic_fetch_add(&pinned, pages);
	atomic_store(&registered, true);
	if (pages && nic_fork_wanted())
		raw(SYS_madvise, from, pages, MADV_DONTFORK);
	nic_spin_until(end);
	return &m->mr;
}

NIC_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return nic_reg(pd, addr, len, (uintptr_t)addr, access, -1, 0);
}

NIC_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
					  int access)
{
	return nic_reg(pd, addr, len, iova, access, -1, 0);
}

NIC_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
					   unsigned access)
{
	return nic_reg(pd, addr, len, iova, (int)(access & ~(unsigned)IBV_ACCESS_RELAXED_ORDERING),
		       -1, 0);
}

NIC_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
					    uint64_t iova, int fd, int access)
{
	return nic_reg(pd, (void *)(uintptr_t)iova, len, iova, access, fd, offset);
}

NIC_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct nic_req req = { .op = OP_DEREG_MR, .h = mr->handle };
	uint64_t end = nic_now() + (uint64_t)nic_page()->knobs.dereg_ns;
	uintptr_t from = (uintptr_t)mr->addr & ~4095ul;
	struct nic_rep rep;
	int r = nic_call(&req, &rep, NULL);

	if (r)
		return r;
	if (((struct nic_mr *)mr)->pinned && nic_fork_wanted())
		raw(SYS_madvise, from, ((struct nic_mr *)mr)->pinned, MADV_DOFORK);
	atomic_fetch_sub(&pinned, ((struct nic_mr *)mr)->pinned);
	free(mr);
	nic_spin_until(end);
	return 0;
}

NIC_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len,
			    int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)len, (void)access;
	errno = EOPNOTSUPP;
	return -1;
}
