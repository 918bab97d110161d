/*
 * wrap_uring.c - see uring.h.
 *
 * The queue of submissions is mapped for the moment of a call only: a mapping would keep the
 * ring alive after its last close().
 */
#include "base/fdtab.h"
#include "wrap/wrap.h"
#include "wrap/uring.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>

#include "arch/newer.h"

#define RINGS 32
#define BUSY -1
static struct ring {
	_Atomic int fd;		/* + 1; 0: free */
	unsigned entries, sqe_bytes;
	size_t bytes;
	bool indirect;
	struct io_sqring_offsets at;
} rings[RINGS];

/* Such rings are followed; a flag that is not known here may mean anything. */
#define FOLLOWED (IORING_SETUP_IOPOLL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | \
	IORING_SETUP_ATTACH_WQ | IORING_SETUP_R_DISABLED | \
		  IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | \
			  IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | \
		  SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_NO_SQARRAY)
#define SETUP_SINGLE_ISSUER (1u << 12)	/* younger than some linux/io_uring.h, as what follows */
#define SETUP_DEFER_TASKRUN (1u << 13)
#define SETUP_NO_SQARRAY (1u << 16)
#define ENTER_REGISTERED_RING (1u << 4)
#define OP_SENDMSG_ZC 48

static struct ring *of(int fd)
{
	for (int i = 0; i < RINGS; i++)
		if (atomic_load(&rings[i].fd) == fd + 1)
			return &rings[i];
	return NULL;
}

/* The number's old place, or a free one; nobody else takes it until it has a number again. */
static struct ring *place(int fd)
{
	struct ring *r;
	int was;

	do {
		r = of(fd);
		was = r ? fd + 1 : 0;
		if (!r)
			r = of(-1);
	} while (r && !atomic_compare_exchange_strong(&r->fd, &was, BUSY));
	return r;
}

void uring_made(int fd, const struct io_uring_params *p)
{
	struct ring *r = place(fd);
	bool follow = r && !(p->flags & ~FOLLOWED);

	if (follow) {
		r->indirect = !(p->flags & SETUP_NO_SQARRAY);
		r->entries = p->sq_entries;
		r->sqe_bytes = p->flags & IORING_SETUP_SQE128 ? 128 : 64;
		r->bytes = r->indirect ? p->sq_off.array + p->sq_entries * sizeof(uint32_t)
				       : p->sq_off.flags + sizeof(uint32_t);
		r->at = p->sq_off;
	}
	if (r)
		atomic_store(&r->fd, follow ? fd + 1 : 0);
	if (!follow)
		shim_before_io_uring();
}

static void to_tcp(int fd)
{
	struct stream *s = live_stream(fd);
	struct epoll *e = fdtab_epoll(fd);

	if (s)
		(void)tcp_only_now(s, REASON_FOREIGN_WAIT);
	if (e)
		ready_foreign(e);	/* it may be waited for */
}

/* Registers as epoll_ctl() does, and leaves the kernel nothing to do. Not if it may have to wait
 * for what is before it. */
static bool registers(struct io_uring_sqe *e)
{
	if (e->flags & ~(IOSQE_ASYNC | IOSQE_CQE_SKIP_SUCCESS) ||
	    wrap_epoll_ctl(e->fd, (int)e->len, (int)e->off, (void *)(uintptr_t)e->addr))
		return false;
	e->opcode = IORING_OP_NOP;
	e->fd = -1;
	e->len = e->rw_flags = 0;
	e->off = e->addr = 0;
	return true;
}

static void forget(int fd)
{
	uintptr_t e = fdtab_get(fd);

	if (fdtab_stream_of(e))
		stream_forget_fd(fdtab_stream_of(e), fd);
	else if (fdtab_epoll_of(e))
		ready_epoll_forget_fd(fdtab_epoll_of(e), fd, false);
}

/* Linked: it comes only if the one before it does not fail. */
static void submitted(struct io_uring_sqe *e, bool linked)
{
	struct epoll *epoll;

	switch (e->opcode) {
	case IORING_OP_NOP:
	case IORING_OP_PROVIDE_BUFFERS:		/* of these `fd` is something else */
	case IORING_OP_REMOVE_BUFFERS:
		return;
	case IORING_OP_EPOLL_CTL:
		if (!linked && registers(e))
			return;
		epoll = fdtab_epoll(e->fd);
		if (epoll)
			ready_shared(epoll);	/* what the kernel finds there is what was
						 * registered */
		to_tcp((int)e->off);
		return;
	case IORING_OP_SENDMSG:
	case OP_SENDMSG_ZC:
		before_pass_any((void *)(uintptr_t)e->addr);	/* at what time nobody knows */
		break;
	case IORING_OP_FILES_UPDATE:	/* as uring_register() */
		streams_to_tcp(REASON_FOREIGN_WAIT);
		return;
	case IORING_OP_SPLICE:
	case IORING_OP_TEE:
		if (!(e->splice_flags & SPLICE_F_FD_IN_FIXED))
			to_tcp(e->splice_fd_in);
		break;
	}
	if (e->flags & IOSQE_FIXED_FILE)	/* on TCP since it was registered */
		return;
	to_tcp(e->fd);
	if (e->opcode == IORING_OP_CLOSE)
		forget(e->fd);
}

/* NULL: it cannot be had. */
static char *map(int fd, size_t n, int access, unsigned long at)
{
	long p = sys(SYS_mmap, NULL, n, access, MAP_SHARED, fd, at);

	return p < 0 && p > -4096 ? NULL : (char *)p;
}

static bool read_queue(const struct ring *r, int fd, unsigned submits)
{
	size_t sqes_bytes = (size_t)r->entries * r->sqe_bytes;
	char *q = map(fd, r->bytes, PROT_READ, IORING_OFF_SQ_RING);
	char *sqes = map(fd, sqes_bytes, PROT_READ | PROT_WRITE, IORING_OFF_SQES);

	if (q && sqes) {
		uint32_t mask = *(uint32_t *)(q + r->at.ring_mask),
			 head = atomic_load((_Atomic uint32_t *)(q + r->at.head));
		uint32_t n = atomic_load((_Atomic uint32_t *)(q + r->at.tail)) - head;
		bool linked = false;

		if (n > submits)
			n = submits;
		for (uint32_t i = 0; i < n && i < r->entries; i++) {
			uint32_t at = (head + i) & mask;

			if (r->indirect)
				at = ((uint32_t *)(q + r->at.array))[at];
			if (at < r->entries) {
				struct io_uring_sqe *e = (void *)(sqes + (size_t)at * r->sqe_bytes);
				bool links = e->flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK);

				submitted(e, linked);
				linked = links;
			}
		}
	}
	if (q)
		sys(SYS_munmap, q, r->bytes);
	if (sqes)
		sys(SYS_munmap, sqes, sqes_bytes);
	return q && sqes;
}

/* Is it a ring that is open for submissions, with such flags? A call that submits nothing, and
 * waits for nothing, says so. */
static bool takes_any(int fd, unsigned flags)
{
	return sys(SYS_io_uring_enter, fd, 0, 0,
		   flags & ~(IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAIT | IORING_ENTER_EXT_ARG),
		   NULL, 0ul) >= 0;
}

void uring_enter(int fd, unsigned submits, unsigned flags)
{
	const struct ring *r = flags & ENTER_REGISTERED_RING ? NULL : of(fd);
	int e = errno;

	if (submits && (!r || !read_queue(r, fd, submits)) && takes_any(fd, flags))
		shim_before_io_uring();
	errno = e;
}

void uring_register(unsigned op)
{
	int e = errno;

	switch (op & ~(1u << 31)) {	/* IORING_REGISTER_USE_REGISTERED_RING */
	case IORING_REGISTER_FILES:
	case IORING_REGISTER_FILES_UPDATE:
	case IORING_REGISTER_FILES2:
	case IORING_REGISTER_FILES_UPDATE2:
		streams_to_tcp(REASON_FOREIGN_WAIT);
		break;
	case 33:			/* IORING_REGISTER_RESIZE_RINGS: the queue is another one */
		shim_before_io_uring();
	}
	errno = e;
}
