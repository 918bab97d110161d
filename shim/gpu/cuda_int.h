/*
 * cuda_int.h - what the files of the device lane share. Its lock: state.h.
 */
#ifndef RDMASHIM_CUDA_INT_H
#define RDMASHIM_CUDA_INT_H

#include "gpu/cuda.h"
#include "gpu/cuda_desc.h"
#include "gpu/hooks.h"
#include "policy/stat.h"

/* ---- cuda_rec.c: records: a range of host memory and the same bytes in device memory of ours ---- */
#define RECS  64
#define RINGS 8

enum rec_state { REC_FREE, REC_FILLING, REC_LIVE };
struct cuda_rec {
	int state;
	bool pinned;		/* a device may write the host range */
	bool done;		/* all that was asked of the snapshot is complete */
	bool rx;		/* of a receive */
	bool sent;		/* was found unchanged by a send */
	_Atomic bool early;	/* ... which could not use it yet */
	bool veiled;		/* its buffer was left without the bytes at first; while it is made: is to be */
	uint8_t site;		/* of the copy to the host */
	_Atomic uint8_t why;	/* enum reason: why its last send did without it */
	uint64_t bytes;		/* of that copy */
	_Atomic uint64_t used;	/* bytes that were fetched from it, by a peer or by a copy to the device */
	uint64_t judged;	/* ... when a send last asked if it is worth it */
	_Atomic uint8_t pins;	/* a peer, or a thread of ours, reads the snapshot */
	bool in_use;		/* a copy from it is being put into a stream, without the lock */
	_Atomic uint64_t hold_ns;	/* until then a peer that has not said so may still read it */
	int ring;
	uintptr_t lo, hi;	/* in host memory; 0, 0: no longer true, only its room is still taken */
	uint64_t off, len;	/* its room in the ring */
	uint64_t data;		/* where in the ring the byte at lo is */
	uint64_t seq;		/* cuda_seq() before the copy */
	gpu_event ev;		/* after the last use of the snapshot that may not be complete, unless it is `in` */
	int ev_ring;		/* whose context the event is of */
	gpu_stream st;		/* where that use is, and the how manieth in order it was; NULL: who is behind whom is not known */
	uint64_t turn;
	bool coming;		/* the bytes may still be on their way from a peer's device ... */
	bool only_comes;	/* ... and nothing else has used them yet: `in` is the last event */
	gpu_event in;		/* ... until then; not recorded anew while they are of use */
	int in_ring;
};
extern struct cuda_rec cuda_recs[RECS];
extern _Atomic int cuda_veil_refs[RECS];	/* veils whose bytes are in the record's room */
/* Of these, filled because somebody looked. */
extern _Atomic uint64_t cuda_veil_touched[RECS];
void cuda_reads_end(void);		/* at exit(): the driver is asked for no read's end any more */
void cuda_windows_end(void);		/* at exit(): waits for who reads through a window (1 s at most), and lets no other begin */

struct cuda_ring {
	gpu_ctx ctx;		/* NULL: free */
	bool bad;
	gpu_addr base;
	uint64_t size, next;	/* where the next snapshot goes */
	uint64_t all;		/* size, and what cuda_ring_carve() took */
	uint64_t id;
	uint8_t ipc[GPU_HANDLE];
	bool shared;		/* ipc is valid */
	struct gpu_device dev;
	gpu_stream st;		/* for receives */
	gpu_stream fill;		/* for veils, if guards are permitted */
};
extern struct cuda_ring cuda_rings[RINGS];

/* ---- under cuda_lock; those that call the driver with the ring's context current ---- */
int cuda_ring_of(gpu_ctx ctx);	/* made on first need; -1 */
int cuda_rec_new(int ring, size_t n);	/* a record in FILLING, pinned once, with room for n bytes; or -1 */
gpu_addr cuda_ring_carve(int ring, uint64_t n);	/* n bytes of it for something else, for good; 0: not now */
void cuda_rec_spare(void);		/* when there is time: so that the next one comes soon */
void cuda_rec_live(int rec, uintptr_t lo, uintptr_t hi, uint64_t data);
void cuda_drop_range(uintptr_t lo, uintptr_t hi);
bool cuda_watch(struct cuda_rec *r, uintptr_t lo, uintptr_t hi);	/* cuda_track_begin() for r, which is not yet live */
/* What is in the stream now uses the snapshot: cuda_rec_record() without the lock, since a stream that is full waits for the program,
 * then cuda_rec_marked() with it. *turn: from the one to the other. */
bool cuda_rec_record(struct cuda_rec *r, gpu_stream st, uint64_t *turn);
void cuda_rec_marked(struct cuda_rec *r, gpu_stream st, uint64_t turn);
bool cuda_rec_comes(struct cuda_rec *r, gpu_stream st);	/* ... and brings its bytes */
void cuda_rec_came(struct cuda_rec *r);			/* that was waited for */
gpu_event cuda_rec_last(const struct cuda_rec *r);	/* after all that uses the snapshot; NULL: nothing did */
bool cuda_rec_ended(struct cuda_rec *r);		/* it has happened */
void cuda_rec_stream_gone(gpu_stream st);			/* another may be called the same soon */
/* The record that holds p and whose host bytes no device has written since; or -1 and where the next one starts. */
int cuda_rec_at(uintptr_t p, uintptr_t end, uintptr_t *next);
/* From `at`, which the record has, for so many bytes, at most to `end`, the buffer is as it was at the copy: nobody has written there, and no other device can have,
 * unseen. 0: not at `at`, *next is where to look again; because of such a device: *ret_pinned. */
size_t cuda_rec_true(const struct cuda_rec *r, uintptr_t at, uintptr_t end, uintptr_t *next, bool *ret_pinned);
bool cuda_device_writes(int ring, uintptr_t lo, size_t n);	/* a device can write there: pinned, or all of memory */
void cuda_judge(struct cuda_rec *r);	/* the program writes to its range: worth it? */

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
void cuda_learn(const struct cuda_rec *r, enum fate fate);	/* what became of a snapshot */
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
