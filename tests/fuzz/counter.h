/*
 * counter.h - a counter file for targets that read one: of the right shape, made once in
 * $FUZZ_TMP or /dev/shm, and written through a mapping. The input is laid over it: offset (3
 * bytes), length (1 byte), bytes, and so on.
 */
#ifndef FUZZ_COUNTER_H
#define FUZZ_COUNTER_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/statfile.h"

#define ROWS 8
#define HISTORIES (sizeof(struct stat_header) + ROWS * sizeof(struct stat_row) + \
		   sizeof(struct stat_calls) + STAT_SITES * sizeof(struct stat_call_site))
#define LINKS_AT (HISTORIES + ROWS * (sizeof(struct stat_history) + sizeof(struct stat_moves)) + \
		  sizeof(struct stat_move_calls))
#define SIZE (LINKS_AT + sizeof(struct stat_links))

static char dir[200];
static int dirfd_ = -1, file = -1;
static uint8_t *map, right[SIZE];	/* the file; what it holds without lies */
static size_t dirty_from = SIZE, dirty_to;

static void gone(void)
{
	unlinkat(dirfd_, "4242", 0);
	rmdir(dir);
}

static void start(void)
{
	struct stat_header h = { .magic = STAT_MAGIC, .version = STAT_VERSION,
				 .header_size = sizeof h, .row_size = sizeof(struct stat_row),
				 .rows = ROWS, .pid = 4242, .rows_used = ROWS };
	const char *tmp = getenv("FUZZ_TMP");
	uint32_t valid = 2;

	snprintf(dir, sizeof dir, "%s/fuzz-stat.XXXXXX", tmp ? tmp : "/dev/shm");
	if (!mkdtemp(dir) || (dirfd_ = open(dir, O_RDONLY | O_DIRECTORY)) < 0 ||
	    (file = openat(dirfd_, "4242", O_RDWR | O_CREAT, 0600)) < 0 || ftruncate(file, SIZE))
		abort();
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		abort();
	memcpy(right, &h, sizeof h);
	for (size_t i = 0; i < ROWS; i++) {
		uint8_t *row = right + sizeof h + i * sizeof(struct stat_row);

		memcpy(row, &valid, sizeof valid);
		memcpy(row + offsetof(struct stat_row, gen), &valid, sizeof valid);
	}
	for (size_t i = 0; i < 2; i++) {
		uint8_t *link = right + LINKS_AT + offsetof(struct stat_links, link) +
				i * sizeof(struct stat_link);

		memcpy(link, &valid, sizeof valid);
	}
	memcpy(right + LINKS_AT, &valid, sizeof valid);		/* used */
	memcpy(map, right, SIZE);
	atexit(gone);
}

static void lie(size_t at, const uint8_t *p, size_t n)
{
	memcpy(map + at, p, n);
	dirty_from = at < dirty_from ? at : dirty_from;
	dirty_to = at + n > dirty_to ? at + n : dirty_to;
}

/* As long as it was, and without lies again. */
static void mend(size_t size)
{
	if (size != SIZE) {
		if (ftruncate(file, SIZE))
			abort();
		dirty_from = size < dirty_from ? size : dirty_from;
		dirty_to = SIZE;
	}
	if (dirty_from < dirty_to)
		memcpy(map + dirty_from, right + dirty_from, dirty_to - dirty_from);
	dirty_from = SIZE;
	dirty_to = 0;
}

/* Lays the input over the file, from byte `base` on. */
static void lay_over(const uint8_t *data, size_t n, size_t base, size_t size)
{
	while (n > 4) {
		size_t at = base + (data[0] | data[1] << 8 | (data[2] & 7) << 16), len = data[3];

		data += 4;
		n -= 4;
		if (len > n)
			len = n;
		if (at + len < size)
			lie(at, data, len);
		data += len;
		n -= len;
	}
}

#endif
