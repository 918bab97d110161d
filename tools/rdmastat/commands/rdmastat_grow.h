/*
 * rdmastat_grow.h - text that grows, for the commands that write a policy file.
 */
#ifndef RDMASHIM_RDMASTAT_GROW_H
#define RDMASHIM_RDMASTAT_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define FILE_MAX_BYTES (1u << 20)

struct text {
	char *s;
	size_t len, cap;
	bool failed;
};

void put(struct text *t, const char *s, size_t len);
void putf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* All of f; false if it cannot be read, or is longer than FILE_MAX_BYTES. */
bool read_stream(FILE *f, struct text *t);

#endif
