/*
 * device.h - a stream's blocks of device memory to and from another host (stream_device.c).
 *
 * Owns: the sender's blocks in flight, including blocks that a peer on this host still reads; the
 *   receiver's ring in device memory.
 * Lock: snd.lock for `out` and `held_until_us`, rcv.lock for `in` and `lost`.
 */
#ifndef RDMASHIM_DEVICE_H
#define RDMASHIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct ctl_msg;
struct device_out;
struct gpu_ref;
struct gpu_user;
struct stream;

struct device_side {
	struct device_out *out;		/* on the way, or still read by a peer on this host */
	uint64_t held_until_us;	/* until then a peer may say that it does not */
	int in;				/* our ring there, if the receive ring's dev_size ... */
	uint32_t lost;			/* ... whose bytes could not be had so often */
};

/* ---- stream_device.c: not for wrappers ---- */
/* Sends as much of the block at p as may be, of which a snapshot is held, which this releases
 * when it may. Bytes; 0: none now. snd.lock held. */
size_t device_send(struct stream *s, const void *p, struct gpu_ref *ref);
/* On one host: the receiver has counted the bytes up to `to`, and still reads their snapshot,
 * which is released later. snd.lock held; device_room() has said before the offer that there is
 * a place to remember it. */
void device_read(struct stream *s, const struct gpu_ref *ref, uint64_t to);
bool device_room(struct stream *s);
bool device_still_held(struct stream *s, uint64_t now);	/* the peer may still read one: the
							 * stream should not leave the link yet.
							 * Background thread, takes snd.lock */
void device_settle(struct stream *s);		/* snapshots whose bytes are consumed are free
						 * again. snd.lock held */
void device_settle_all(void);			/* ... of all streams, where the lock is free */
void device_end(void);				/* at exit(): the same, and no more is offered */
void device_save_all(void);			/* no snapshot is needed any more: what is on the
						 * way is kept in host memory */
void device_after_fork(void);			/* in the child, which has none */
extern const struct gpu_user device_user;	/* these, for the GPU path */
void device_detach(struct stream *s);		/* both locks held */
/* In a rewind: bytes from offset `off`, *ret_n of them, valid until the next call. NULL: they
 * are lost. snd.lock held. */
const uint8_t *device_held(struct stream *s, uint64_t off, size_t *ret_n);
void device_grant(struct stream *s);		/* the peer asks for our ring. Background thread */
void device_granted(struct stream *s, const struct ctl_msg *m);	/* the peer's. Background thread */
/* n bytes from offset `off` of our ring in device memory into the iovecs. Count, or -EAGAIN:
 * they come by TCP. rcv.lock held. */
ssize_t device_recv(struct stream *s, uint64_t off, size_t n, const struct iovec *iov, int niov,
		    bool peek);

#endif
