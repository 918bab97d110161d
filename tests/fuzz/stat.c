/*
 * stat.c - any bytes as a counter file, as rdmastat reads it. The input is laid over a file of the right shape, so that
 * the checks behind the header are reached: offset (3 bytes), length (1 byte), bytes, and so on. The file is made once, in $FUZZ_TMP or
 * /dev/shm, and written through a mapping.
 *
 * LINK: tools/statfile.c
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../tools/statfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define ROWS 8
#define SIZE (sizeof(struct stat_header) + ROWS * sizeof(struct stat_row) + sizeof(struct stat_calls) + STAT_SITES * sizeof(struct stat_site) + \
	      ROWS * (sizeof(struct stat_history) + sizeof(struct stat_moves)) + sizeof(struct stat_move_calls) + \
	      sizeof(struct stat_links))

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
	struct stat_header h = { .magic = STAT_MAGIC, .version = STAT_VERSION, .header_size = sizeof h,
				 .row_size = sizeof(struct stat_row), .rows = ROWS, .pid = 4242, .rows_used = ROWS };
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
		uint8_t *link = right + SIZE - sizeof(struct stat_links) + offsetof(struct stat_links, link) + i * sizeof(struct stat_link);

		memcpy(link, &valid, sizeof valid);
	}
	memcpy(right + SIZE - sizeof(struct stat_links), &valid, sizeof valid);		/* used */
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

/* Names must be terminated and printable: they go to a terminal. */
static void printable(const char *s, size_t size)
{
	if (!memchr(s, 0, size))
		abort();
	for (; *s; s++)
		if (*s < 0x20 || *s > 0x7e)
			abort();
}

static void look(struct stat_proc *p)
{
	printable(p->program, sizeof p->program);
	printable(p->policy_file, sizeof p->policy_file);
	for (int i = 0; i < STAT_CALLS; i++)
		printable(p->call[i], STAT_CALL_NAME);
	for (size_t i = 0; i < p->nsites; i++)
		printable(p->sites[i].where, STAT_SITE_NAME);
	for (size_t i = 0; i < p->nqps; i++) {
		printable(p->qps[i].device, STAT_DEVICE);
		if (p->qps[i].phase >= STAT_LINK_PHASES || p->qps[i].kind >= STAT_LINK_KINDS)
			abort();
	}
	for (size_t i = 0; i < p->nconns; i++)
		if (p->conns[i].reason >= REASON_COUNT || p->conns[i].tx_path >= PATH_KINDS || p->conns[i].rx_path >= PATH_KINDS)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t size = SIZE;
	struct stat_proc p;
	int rc, plain = !n;

	if (file < 0)
		start();
	if (n && data[0] == 0xff) {	/* cut short */
		size = n > 2 ? (size_t)(data[1] | data[2] << 8) * 8 : 0;
		size = size < SIZE ? size : SIZE;
	}
	while (n > 4) {
		size_t at = data[0] | data[1] << 8 | (data[2] & 7) << 16, len = data[3];

		data += 4;
		n -= 4;
		if (len > n)
			len = n;
		if (at + len < size)
			lie(at, data, len);
		data += len;
		n -= len;
	}
	if (size != SIZE && ftruncate(file, (off_t)size))
		abort();
	rc = statfile_read(dirfd_, "4242", geteuid(), &p);
	if (plain && (rc || p.nconns != ROWS || p.nqps != 2))
		abort();	/* the file without lies is not of this version: mend this target */
	if (!rc) {
		look(&p);
		stat_proc_clear(&p);
	}
	mend(size);
	return 0;
}
