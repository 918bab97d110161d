/*
 * device.h - a stream's blocks of device memory to and from another host (stream_device.c).
 *
 * Owns: the sender's blocks on the way, which may also be some that a peer on this host still
 * reads; the receiver's ring in device memory.
 * Lock: snd.lock for `out` and `held_until_us`, rcv.lock for `in` and `lost`.
 */
#ifndef RDMASHIM_DEVICE_H
#define RDMASHIM_DEVICE_H

#include <stdint.h>

struct device_out;

struct device_side {
	struct device_out *out;		/* on the way, or still read by a peer on this host */
	uint64_t held_until_us;	/* until then a peer may say that it does not */
	int in;				/* our ring there, if the receive ring's dev_size ... */
	uint32_t lost;			/* ... whose bytes could not be had so often */
};

#endif
