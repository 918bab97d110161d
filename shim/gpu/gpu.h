/*
 * gpu.h - what the rest of the library may ask of the GPU path.
 *
 * The GPU path: a copy from a device to host memory that is then sent is taken twice, once into
 * the program's buffer as asked, once into device memory of ours (a snapshot). The bytes in the
 * buffer are always true: with device lazy, by the time that somebody sees them (docs/gpu.md,
 * "veils"). A send that finds its bytes unchanged since the copy lets the receiver, in another
 * process, fetch them from the snapshot; everything that is not certain goes by the buffer.
 * send.c has the sender's half, take.c the receiver's.
 *
 * Thread-safety: any thread, under the lock of the direction; not in a signal handler (they look
 * for that themselves).
 */
#ifndef RDMASHIM_GPU_H
#define RDMASHIM_GPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "gpu/gpu_desc.h"

/* 1: copies were seen that may end in a socket; the only thing that a program without CUDA ever
 * looks at. */
extern _Atomic int gpu_sends;
/* 1: this process has a context into which a receive can go. */
extern _Atomic int gpu_receives;

/* 1: a link was made with another process, so that copies are worth a look. */
extern _Atomic int gpu_linked;

/* What connections and links do for the GPU path. Once, before anything of CUDA is seen; any
 * thread, no lock of the GPU path's held but in a forked child. */
struct gpu_user {
	void (*settle)(void);	/* snapshots that no peer reads any more are released */
	void (*save)(void);	/* no snapshot is needed any more: what is on the way is kept in
				 * host memory */
	void (*end)(void);	/* at exit(): both, and no more is offered */
	void (*forked)(void);	/* in the child, which has none */
	bool (*pins)(void);	/* memory of ours is pinned by an RDMA device; gpu_lock may be
				 * held */
};
void gpu_serve(const struct gpu_user *u);

struct gpu_ref {
	uint64_t desc;		/* address of its struct gpu_desc */
	uint64_t ring, at;	/* its ring's id, and where in it the first byte is */
	size_t len;
	int rec;		/* the range's number */
	bool veiled;		/* the buffer itself is not there yet */
};

/* What is at p[0..n) that is about to be sent: true and a snapshot of its first ret->len bytes,
 * held until gpu_unref(). False: send ret->len bytes plainly (all, or up to where a snapshot
 * begins). */
bool gpu_find(const void *p, size_t n, struct gpu_ref *ret);
void gpu_unref(const struct gpu_ref *ref, bool taken);
void gpu_unref_late(const struct gpu_ref *ref);	/* a peer may be reading it, and will not
							 * say when it no longer does: its room
							 * is given back ten seconds later */

/* A copy out of a peer's snapshot that is under way. ev NULL: there is none. */
struct gpu_read { void *ev; struct gpu_map *map; int ring; };
/* It has ended: then there is none any more. False: it has not, or the driver cannot be asked
 * now. Wait: for as long as such a copy takes. */
bool gpu_read_over(struct gpu_read *r, bool wait);
/* Another one was put behind it: in the same stream, so that its end is the end of both. False:
 * it was not, and both are as they were. */
bool gpu_read_next(struct gpu_read *r, const struct gpu_read *next);

/* The receiver's half of a take, from the process `pid`. At most n bytes go into the iovecs. */
struct gpu_offer { uint64_t desc, ring, at, addr; };	/* the peer's words: as in struct
							 * gpu_ref, and where it has the block */
/* What is known of the ring there, or must be read out of the peer's memory first; read_ns: when
 * that was asked, 0: earlier. */
struct gpu_found { struct gpu_desc d; uint64_t read_ns; bool wanted; };
/* false: f->d is to be read, if f->wanted */
bool gpu_take_finds(int pid, const struct gpu_offer *o, size_t n, struct gpu_found *f);
struct gpu_take {
	struct gpu_range *range;
	int ring, mode;
	bool early;
	uint64_t from;		/* the address */
	size_t len;
	struct gpu_map *map;
	struct gpu_read read;
};
/* Bytes that are in device memory of ours, or, if `early`, on their way there: gpu_take_end()
 * or gpu_take_drop() must follow; or 0: read the peer's buffer instead. t->early: which of the
 * two. */
size_t gpu_take_begin(int pid, const struct gpu_offer *o, struct gpu_found *f, size_t n,
		       const struct iovec *iov, int niov, bool early, struct gpu_take *t);
/* Puts them into the buffers: 0, or -EIO: they are lost, and so is the connection. t->read is
 * the caller's from here on. */
int gpu_take_end(struct gpu_take *t, const struct iovec *iov, int niov);
void gpu_take_drop(struct gpu_take *t);	/* they were withdrawn: nothing is under way
						 * after it */

/* ---- between hosts (net.c, stream_device.c) ---- */
/* Device memory of ours, and for a moment a descriptor of it by which an RDMA device can reach
 * it (dma-buf), -1: there is none. */
struct gpu_region { uint64_t base, size; int dmabuf; void *ctx; };
void gpu_region_open(struct gpu_region *r);
void gpu_region_close(struct gpu_region *r);
/* The ring in which the snapshot is, and where there the byte at p of the buffer is. False: not
 * to be used any more. */
bool gpu_region_of(const struct gpu_ref *ref, const void *p, struct gpu_region *ret,
		    uint64_t *ret_at);
/* n bytes of the snapshot from address `at` */
bool gpu_region_read(const struct gpu_ref *ref, uint64_t at, void *to, size_t n);
void gpu_ref_used(const struct gpu_ref *ref);		/* its bytes go from there;
							 * gpu_unref(ref, false) when they have
							 * gone */
/* Why it is not sent from there. Soon: the next one may be, so this one was not for nothing. */
void gpu_ref_why(const struct gpu_ref *ref, int reason, bool soon);
/* A landing ring in device memory for a slot of a link (link_id()): a power of two of bytes that
 * nobody else gets before gpu_landings_end(). Its number, or -1. Background thread. */
int gpu_landing_take(uint64_t link, uint32_t slot, struct gpu_region *ret);
void gpu_landing_give(uint64_t link, uint32_t slot);	/* another slot of the same link may have
							 * it */
void gpu_landings_end(uint64_t link);			/* no device can write there any more for
							 * that link */
bool gpu_landing_over(void);	/* none can be read any more */
/* n bytes from `pos` to memory of ours, by the CPU. False: they are too many for that, or it is
 * not possible here. */
#define GPU_SMALL 2048
bool gpu_landing_small(int landing, uint64_t pos, void *to, size_t n);
/* n bytes from `pos` of it, in one chunk, into the iovecs. Count, 0: they cannot be had. */
size_t gpu_landing_read(int landing, uint64_t pos, size_t n, const struct iovec *iov, int niov,
			 bool peek);

/* 1: there are buffers under watch. */
extern _Atomic int gpu_live;
/* The library is about to write there itself. */
void gpu_overwrite(const struct iovec *iov, int n);

void gpu_off(const char *why);		/* for good */
void gpu_veil_end(void);		/* nothing is deferred any more, for good; what was is
					 * filled in */
void gpu_before_fork(void);
void gpu_after_fork(bool child);

#endif
