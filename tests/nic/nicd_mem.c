/*
 * nicd_mem.c - registered memory of other processes. What they share (memfd, MAP_SHARED |
 * MAP_ANONYMOUS, shm) is mapped here too: the same pages, which stay ours though the owner unmaps
 * them, as a card's pinned pages do. Private memory is pinned by an io_uring (pin.h), to the same
 * effect; or, where that cannot be, copied by process_vm_readv(2) and writev, by address, when it
 * is needed: a page that is another one by then is read and written as it is then.
 */
#include "nicd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static void map_file(struct mr *mr, int fd, uint64_t offset)
{
	uint64_t in_page = offset & 4095;
	void *p = mmap(NULL, mr->len + in_page, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       (off_t)(offset - in_page));

	if (p == MAP_FAILED)
		return;
	mr->map_base = p;
	mr->map_bytes = mr->len + in_page;
	mr->map = mr->map_base + in_page;
}

/* The one shared mapping in which all of it lies. */
static void map_shared(struct mr *mr, pid_t pid)
{
	char path[96], line[512], perms[8];
	unsigned long from, to, offset;
	FILE *f;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx %7s %lx", &from, &to, perms, &offset) != 4 ||
		    to <= mr->addr)
			continue;
		if (from <= mr->addr && mr->addr + mr->len <= to && perms[3] == 's') {
			snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", pid, from, to);
			fd = open(path, O_RDWR | O_CLOEXEC);
			if (fd >= 0) {
				map_file(mr, fd, offset + (mr->addr - from));
				close(fd);
			}
		}
		break;
	}
	if (f)
		fclose(f);
}

int mem_map(struct mr *mr, pid_t pid, int dmabuf, uint64_t offset)
{
	if (dmabuf < 0) {
		map_shared(mr, pid);
		return 0;
	}
	map_file(mr, dmabuf, offset);
	return mr->map ? 0 : EOPNOTSUPP;
}

void mem_unmap(struct mr *mr)
{
	if (mr->map_base)
		munmap(mr->map_base, mr->map_bytes);
	if (mr->pin)
		pin_end(mr->pin);
	mr->map_base = mr->map = NULL;
	mr->pin = NULL;
}

struct mr *mr_check(uint32_t key, const struct pd *pd, uint64_t addr, uint64_t len, int access)
{
	struct mr *mr = mr_find(key);

	if (!mr || mr->pd != pd || (mr->access & access) != access)
		return NULL;
	if (addr < mr->iova || len > mr->len || addr - mr->iova > mr->len - len)
		return NULL;
	return mr;
}

static int copy_vm(const struct mr *mr, uint64_t addr, void *here, size_t n, bool write)
{
	uint64_t there = mr->addr + (addr - mr->iova);
	struct iovec l = { here, n }, r = { (void *)(uintptr_t)there, n };
	ssize_t done;

	if (mr->pin && pin_copy(mr->pin, there, here, n, write))
		return 0;
	done = write ? process_vm_writev(mr->o.client->pid, &l, 1, &r, 1, 0)
		     : process_vm_readv(mr->o.client->pid, &l, 1, &r, 1, 0);

	return done == (ssize_t)n ? 0 : -1;
}

/* Memory that is gone reads as zeros and takes what is written: a card has the old pages still. */
int mem_read(const struct mr *mr, uint64_t addr, void *to, size_t n)
{
	if (mr->map)
		memcpy(to, mr->map + (addr - mr->iova), n);
	else if (n && copy_vm(mr, addr, to, n, false))
		memset(to, 0, n);
	return 0;
}

int mem_write(const struct mr *mr, uint64_t addr, const void *from, size_t n)
{
	if (mr->map)
		memcpy(mr->map + (addr - mr->iova), from, n);
	else if (n)
		copy_vm(mr, addr, (void *)(uintptr_t)from, n, true);
	return 0;
}

int sge_check(const struct qp *q, const struct ibv_sge *sge, unsigned n, int access)
{
	for (unsigned i = 0; i < n; i++)
		if (sge[i].length &&
		    !mr_check(sge[i].lkey, q->pd, sge[i].addr, sge[i].length, access))
			return IBV_WC_LOC_PROT_ERR;
	return 0;
}

/* Calls one for each part of [at, at + len) of the list. */
static int sge_each(const struct qp *q, const struct ibv_sge *sge, unsigned n, uint32_t at,
		    uint8_t *here, uint32_t len, bool write)
{
	for (unsigned i = 0; i < n && len; i++) {
		uint32_t part = sge[i].length;
		struct mr *mr;

		if (at >= part) {
			at -= part;
			continue;
		}
		part -= at;
		if (part > len)
			part = len;
		mr = mr_check(sge[i].lkey, q->pd, sge[i].addr + at, part,
			      write ? IBV_ACCESS_LOCAL_WRITE : 0);
		if (!mr)
			return IBV_WC_LOC_PROT_ERR;
		if (write)
			mem_write(mr, sge[i].addr + at, here, part);
		else
			mem_read(mr, sge[i].addr + at, here, part);
		here += part;
		len -= part;
		at = 0;
	}
	return len ? IBV_WC_LOC_LEN_ERR : 0;
}

int sge_read(const struct qp *q, const struct ibv_sge *sge, unsigned n, uint32_t at, void *to,
	     uint32_t len)
{
	return sge_each(q, sge, n, at, to, len, false);
}

int sge_write(const struct qp *q, const struct ibv_sge *sge, unsigned n, uint32_t at,
	      const void *from, uint32_t len)
{
	return sge_each(q, sge, n, at, (uint8_t *)(uintptr_t)from, len, true);
}
