/*
 * cuda_int.h - what the files of the device lane share. Its lock: state.h.
 */
#ifndef RDMASHIM_CUDA_INT_H
#define RDMASHIM_CUDA_INT_H

#include "gpu/cuda.h"
#include "gpu/hooks.h"
#include "gpu/range.h"
#include "policy/stat.h"

/* ---- at exit() ---- */
void cuda_reads_end(void);	/* the driver is asked for no read's end any more */
void cuda_windows_end(void);	/* waits for who reads through a window (1 s at most), lets no other begin */

/* ---- cuda_site.c ---- */
void cuda_site_open(void);		/* no lock held */
int cuda_site(struct cuda_from f, size_t n, bool rx);	/* not under cuda_lock */
bool cuda_site_dull(int site);		/* counts a copy; true: not worth a look */
void cuda_site_copy(int site, uintptr_t lo, size_t n);	/* not under cuda_lock; the others anywhere */
void cuda_site_not(int site, enum reason why, size_t n);
void cuda_site_taken(int site, size_t n);
/* Under cuda_lock. */
bool cuda_expected(uintptr_t lo, size_t n, int site);	/* a copy to there is made. True: with a snapshot, please. */
void cuda_sending(uintptr_t lo);
bool cuda_wants_watch(uintptr_t lo, size_t n);	/* a receive to there is probably followed by a copy to the device */
void cuda_copied_from(uintptr_t lo, size_t n, int site);	/* such a copy */
enum fate { FATE_OVER, FATE_HARM, FATE_EVICTED };
void cuda_learn(const struct gpu_range *r, enum fate fate);	/* what became of a snapshot */
bool cuda_site_may_defer(uintptr_t lo, bool rx);
void cuda_site_put_off(uintptr_t lo, bool rx);	/* a copy, or a receive, was */
void cuda_site_deferred(uintptr_t lo, bool rx, bool good);	/* ... and what came of it */

/* ---- cuda_recv.c ---- */
/* From device memory that is nobody's but ours now into the buffers. Keep: so that a copy from there to a device may be one between devices. False: they are not
 * there. */
bool cuda_take_from(gpu_ctx ctx, gpu_addr src, size_t n, const struct iovec *iov, int niov, bool keep);

/* ---- cuda_map.c: rings of others ---- */
struct cuda_map {
	struct cuda_desc desc;	/* as it was first read, ... */
	int peer;		/* ... in the memory of that process; 0: our own */
	uint64_t read_ns;	/* when it was last */
	gpu_ctx ctx;
	gpu_addr base;	/* 0: could not be mapped */
	_Atomic unsigned users;
	bool opened;
};
/* The ring that d names, checked and mapped in ctx, with a user counted, or NULL. peer: whose memory d was read in, 0: our own. ctx current,
 * cuda_lock held. */
struct cuda_map *cuda_map_get(const struct cuda_desc *d, gpu_ctx ctx, int peer);
/* What was read since `since` (now_ns()) in the memory of that peer, not our own, of its ring `id`. Of off, len and host nothing is said. cuda_lock held. */
bool cuda_map_known(int peer, uint64_t id, gpu_ctx ctx, uint64_t since, struct cuda_desc *ret);


/* ---- cuda_track.c: which pages were written ---- */
int cuda_track_open(bool guard);	/* 0 or -errno: the kernel cannot do it. guard: also cuda_track_hide(), if permitted */
bool cuda_track_guards(void);		/* it is */
/* Writes to [lo, hi) are noticed from here on; what was written before is forgotten. False: not possible there. */
bool cuda_track_begin(uintptr_t lo, uintptr_t hi);
/* The same memory is about to be written all over: spares the cost of noticing. False: as above. */
bool cuda_track_pause(uintptr_t lo, uintptr_t hi);
/* No other device has pages of the process pinned, where it might write unseen. As far as the kernel counts them (docs/limits.md). cuda_lock held. */
bool cuda_track_alone(uintptr_t lo, uintptr_t hi);
bool cuda_track_alone_lately(uintptr_t lo, uintptr_t hi);	/* ... a millisecond ago, at least */
/* Length of the run from lo whose pages were not written; 0: the first one was, *next is where a clean one starts. */
size_t cuda_track_clean(uintptr_t lo, uintptr_t hi, uintptr_t *next);
/* Can the driver, which knows no EFAULT, store there? Pages are made present. */
bool cuda_track_writable(uintptr_t lo, uintptr_t hi);
/* Is at least `limit` of it written? */
bool cuda_track_written(uintptr_t lo, uintptr_t hi, size_t limit);
void cuda_track_fork(bool child);
/* Whole pages of shared memory of our own leave the page tables; accesses wait, and are reported. False: not there. */
bool cuda_track_hide(uintptr_t lo, uintptr_t hi);
bool cuda_track_hidden(uintptr_t lo, uintptr_t hi);	/* a range that was hidden as a whole is still that memory */
void cuda_track_show(uintptr_t lo, uintptr_t hi, bool clean);	/* clean: later writes are noticed, as after cuda_track_begin() */
void cuda_track_poison(uintptr_t lo, uintptr_t hi);	/* hidden pages: accesses fail */
enum cuda_event { CUDA_EVENT_END, CUDA_EVENT_TOUCH, CUDA_EVENT_FORK, CUDA_EVENT_MOVE };
enum cuda_event cuda_track_event(uintptr_t *at, int *tid);	/* waits. at: the page, which tid touched; or what cuda_track_forked() is to be told */
void cuda_track_forked(int child);

#endif
