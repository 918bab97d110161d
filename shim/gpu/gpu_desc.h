/*
 * gpu_desc.h - what an offer of device memory points to: a structure in the sender's memory,
 * which the receiver reads by process_vm_readv(2), as it reads the block itself if it cannot use
 * this. It is constant while the offer stands. Once a millisecond for each ring; in between the
 * offer's own words (ring.h) are enough.
 */
#ifndef RDMASHIM_GPU_DESC_H
#define RDMASHIM_GPU_DESC_H

#include <stdint.h>

#define GPU_DESC_MAGIC 0x31414455434d4452ull	/* grows with the layout */

struct gpu_desc {
	uint64_t magic;
	uint64_t ring_id;	/* random: a ring made later at the same place is another one */
	uint64_t ring_size;
	uint64_t ring_base;	/* where the sender has it, for a receiver in the same process */
	uint64_t host;		/* address of the first byte that has a snapshot */
	uint64_t off, len;	/* of the snapshot in the ring */
	uint8_t ipc[64];	/* CUipcMemHandle of the ring */
	uint8_t uuid[16];	/* of its device */
};
_Static_assert(sizeof(struct gpu_desc) == 136,
	       "read by other processes: another magic when it changes");

#endif
