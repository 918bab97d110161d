/*
 * rdmastat_record.h - what `rdmastat report` found in a record.
 */
#ifndef RDMASHIM_RDMASTAT_RECORD_H
#define RDMASHIM_RDMASTAT_RECORD_H

#include "ground/rdmastat.h"

struct sample {
	double time;			/* seconds since 1970 */
	uint64_t bytes[PATH_KINDS];	/* since the sample before, both directions */
};

struct program {
	char name[64];
	size_t processes;
	uint64_t conns, bytes[PATH_KINDS];
};

struct report {
	struct sample *sample;
	size_t n, cap;
	struct program *prog;
	size_t progs, progs_cap;
};

/* Draws rates by path and the hit rate over time. Returns an exit code. */
int svg_write(const char *path, const struct report *rep);

#endif
