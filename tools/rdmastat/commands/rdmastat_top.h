/*
 * rdmastat_top.h - what `rdmastat top` has in hand: samples and keys in rdmastat_top.c, drawing
 * in rdmastat_draw.c.
 */
#ifndef RDMASHIM_RDMASTAT_TOP_H
#define RDMASHIM_RDMASTAT_TOP_H

#include "ground/rdmastat_what.h"

#define HITS 240		/* samples in the sparkline */

enum { SORT_RATE, SORT_BYTES, SORT_PID, SORT_PROGRAM, SORT_LIVE, SORTS };
extern const char *const top_sorts[SORTS];

#define ENDED_MOST 64		/* programs */

/* The processes of a program that have ended, while we looked or before. */
struct ended {
	char name[64];
	uint64_t n, n_left;
	struct sums s, left;		/* of those whose files are gone, and of those in this
					 * sample */
	uint64_t moved[PATH_KINDS];	/* bytes that were in rows of their own in the last one */
};

struct top_row {
	uint32_t pid, fd, ports;	/* fd, ports: of a connection, else 0; pid 0: of `ended` */
	const struct ended *ended;	/* ports: its number */
	uint64_t start, bytes[PATH_KINDS];
	double rate[PATH_KINDS];	/* bytes per second */
	size_t live;
	enum path_kind tx, rx;
	enum reason reason;
	char name[64], peer[64];
	what_text what;
};

struct screen {
	struct top_row *row, *old;	/* old: the sample before */
	size_t n, old_n, from, procs;
	struct ended *ended;		/* ENDED_MOST */
	size_t nended;
	struct sums total;
	double rate[PATH_KINDS], hits[HITS];	/* hits below 0: nothing moved */
	double sampled;			/* when; 0: not yet */
	unsigned every;			/* seconds */
	bool whats, conns, reverse, paused, help, editing, stale, color, utf8;
	int sort;
	char filter[256], typed[256], note[128];
};

void top_start_colors(const struct screen *s);
void top_draw(struct screen *s);

#endif
