/*
 * stat.c - any bytes as a counter file, as rdmastat reads it. The input is laid over a file of the right shape, so that
 * the checks behind the header are reached: offset (3 bytes), length (1 byte), bytes, and so on.
 *
 * LINK: tools/statfile.c
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../tools/statfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define ROWS 8
static char dir[] = "/dev/shm/fuzz-stat.XXXXXX";
static int dirfd_ = -1, file = -1;

static void gone(void)
{
	unlinkat(dirfd_, "4242", 0);
	rmdir(dir);
}

static void start(void)
{
	if (!mkdtemp(dir) || (dirfd_ = open(dir, O_RDONLY | O_DIRECTORY)) < 0 ||
	    (file = openat(dirfd_, "4242", O_RDWR | O_CREAT, 0600)) < 0)
		abort();
	atexit(gone);
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
	for (size_t i = 0; i < p->nconns; i++)
		if (p->conns[i].reason >= REASON_COUNT || p->conns[i].tx_path >= PATH_KINDS || p->conns[i].rx_path >= PATH_KINDS)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t size = sizeof(struct stat_header) + ROWS * sizeof(struct stat_row) + sizeof(struct stat_calls) +
		      STAT_SITES * sizeof(struct stat_site) + ROWS * (sizeof(struct stat_history) + sizeof(struct stat_moves)) + sizeof(struct stat_move_calls);
	struct stat_header h = { .magic = STAT_MAGIC, .version = STAT_VERSION, .header_size = sizeof h,
				 .row_size = sizeof(struct stat_row), .rows = ROWS, .pid = 4242, .rows_used = ROWS };
	struct stat_proc p;
	uint32_t valid = 2;
	int rc, plain = !n;

	if (file < 0)
		start();
	if (ftruncate(file, 0) || ftruncate(file, (off_t)size) || pwrite(file, &h, sizeof h, 0) < 0)
		abort();
	for (int i = 0; i < ROWS; i++)
		if (pwrite(file, &valid, sizeof valid, (off_t)(sizeof h + (size_t)i * sizeof(struct stat_row))) < 0 ||
		    pwrite(file, &valid, sizeof valid, (off_t)(sizeof h + (size_t)i * sizeof(struct stat_row) + offsetof(struct stat_row, gen))) < 0)
			abort();
	if (n && data[0] == 0xff)	/* cut short */
		size = n > 2 ? (size_t)(data[1] | data[2] << 8) * 8 : 0;
	while (n > 4) {
		size_t at = data[0] | data[1] << 8 | (data[2] & 1) << 16, len = data[3];

		data += 4;
		n -= 4;
		if (len > n)
			len = n;
		if (at + len < size && pwrite(file, data, len, (off_t)at) < 0)
			abort();
		data += len;
		n -= len;
	}
	if (ftruncate(file, (off_t)size))
		abort();
	rc = statfile_read(dirfd_, "4242", geteuid(), &p);
	if (plain && rc)
		abort();	/* the file without lies is not of this version: mend this target */
	if (!rc) {
		look(&p);
		stat_proc_clear(&p);
	}
	return 0;
}
