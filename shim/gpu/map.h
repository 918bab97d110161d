/*
 * map.h - the rings of device memory that others have.
 */
#ifndef RDMASHIM_GPU_MAP_H
#define RDMASHIM_GPU_MAP_H

#include "gpu/gpu_desc.h"
#include "gpu/gpu_ops.h"

struct gpu_map {
	struct gpu_desc desc;	/* as it was first read, ... */
	int peer;		/* ... in the memory of that process; 0: our own */
	uint64_t read_ns;	/* when it was last */
	gpu_ctx ctx;
	gpu_addr base;	/* 0: could not be mapped */
	_Atomic unsigned users;
	bool opened;
};
/* The ring that d names, checked and mapped in ctx, with a user counted, or NULL. peer: whose
 * memory d was read in, 0: our own. ctx current, gpu_lock held. */
struct gpu_map *gpu_map_get(const struct gpu_desc *d, gpu_ctx ctx, int peer);
/* What was read since `since` (now_ns()) in the memory of that peer, not our own, of its ring
 * `id`. Of off, len and host nothing is said. gpu_lock held. */
bool gpu_map_known(int peer, uint64_t id, gpu_ctx ctx, uint64_t since, struct gpu_desc *ret);

#endif
