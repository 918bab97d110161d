/* nicd_pin.c - see pin.h. One ring for each registration, used by its node's engine alone. */
#include "nicd.h"
#include "pin.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BOUNCE (1u << 20)

struct pin {
	int fd;
	void *rings, *completions;
	size_t rings_bytes, completions_bytes;
	struct io_uring_sqe *sqe;
	uint32_t *tail, *array, *head, mask, cmask;
	struct io_uring_cqe *cqe;
	size_t sqe_bytes;
};

static __thread int bounce_fd = -1;
static __thread uint8_t *bounce;

static bool have_bounce(void)
{
	if (bounce)
		return true;
	bounce_fd = memfd_create("nic-bounce", MFD_CLOEXEC);
	if (bounce_fd < 0 || ftruncate(bounce_fd, BOUNCE))
		return false;
	bounce = mmap(NULL, BOUNCE, PROT_READ | PROT_WRITE, MAP_SHARED, bounce_fd, 0);
	if (bounce == MAP_FAILED)
		bounce = NULL;
	return bounce;
}

void pin_end(struct pin *p)
{
	if (p->rings)
		munmap(p->rings, p->rings_bytes);
	if (p->completions)
		munmap(p->completions, p->completions_bytes);
	if (p->sqe)
		munmap(p->sqe, p->sqe_bytes);
	close(p->fd);
	free(p);
}

static void *map(int fd, size_t n, uint64_t at)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);

	return p == MAP_FAILED ? NULL : p;
}

struct pin *pin_take(int pidfd, const struct nic_pin *of)
{
	const struct io_uring_params *o = &of->params;
	struct pin *p = of->fd && pidfd >= 0 ? calloc(1, sizeof *p) : NULL;
	uint8_t *r, *c;

	if (!p)
		return NULL;
	p->fd = (int)syscall(SYS_pidfd_getfd, pidfd, of->fd - 1, 0);
	if (p->fd < 0) {
		free(p);
		return NULL;
	}
	p->rings_bytes = o->sq_off.array + o->sq_entries * sizeof(uint32_t);
	p->completions_bytes = o->cq_off.cqes + o->cq_entries * sizeof(struct io_uring_cqe);
	p->sqe_bytes = o->sq_entries * sizeof *p->sqe;
	p->rings = map(p->fd, p->rings_bytes, IORING_OFF_SQ_RING);
	p->completions = map(p->fd, p->completions_bytes, IORING_OFF_CQ_RING);
	p->sqe = map(p->fd, p->sqe_bytes, IORING_OFF_SQES);
	if (!p->rings || !p->completions || !p->sqe) {
		pin_end(p);
		return NULL;
	}
	r = p->rings;
	c = p->completions;
	p->tail = (uint32_t *)(r + o->sq_off.tail);
	p->array = (uint32_t *)(r + o->sq_off.array);
	p->mask = *(uint32_t *)(r + o->sq_off.ring_mask);
	p->head = (uint32_t *)(c + o->cq_off.head);
	p->cmask = *(uint32_t *)(c + o->cq_off.ring_mask);
	p->cqe = (struct io_uring_cqe *)(c + o->cq_off.cqes);
	return p;
}

static bool step(struct pin *p, uint8_t op, uint64_t addr, uint32_t n)
{
	uint32_t at = *p->tail;
	int32_t res;

	p->sqe[at & p->mask] = (struct io_uring_sqe){ .opcode = op, .fd = bounce_fd, .addr = addr,
						      .len = n };
	p->array[at & p->mask] = at & p->mask;
	__atomic_store_n(p->tail, at + 1, __ATOMIC_RELEASE);
	while (syscall(SYS_io_uring_enter, p->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		if (errno != EINTR)
			return false;
	at = *p->head;
	res = p->cqe[at & p->cmask].res;
	__atomic_store_n(p->head, at + 1, __ATOMIC_RELEASE);
	return res == (int32_t)n;
}

/* False: it cannot be done this way. */
bool pin_copy(struct pin *p, uint64_t addr, void *here, size_t n, bool write)
{
	uint8_t *h = here;

	if (!have_bounce())
		return false;
	for (uint32_t part; n; n -= part, addr += part, h += part) {
		part = n < BOUNCE ? (uint32_t)n : BOUNCE;
		if (write)
			memcpy(bounce, h, part);
		if (!step(p, write ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED, addr, part))
			return false;
		if (!write)
			memcpy(h, bounce, part);
	}
	return true;
}
