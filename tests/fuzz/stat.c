/*
 * stat.c - any bytes as a counter file, as rdmastat reads it. The input is laid over a file of
 * the right shape, so that the checks behind the header are reached.
 *
 * LINK: tools/rdmastat/ground/statfile.c tools/rdmastat/ground/statfile_list.c
 * LINK: tools/rdmastat/ground/statfile_dir.c tools/rdmastat/ground/statfile_mounts.c
 * LINK: tools/rdmastat/ground/statfile_user.c
 */
#include "counter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

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
	for (size_t i = 0; i < p->ncall_sites; i++)
		printable(p->sites[i].where, STAT_CALL_SITE_NAME);
	for (size_t i = 0; i < p->nqps; i++) {
		printable(p->qps[i].device, STAT_DEVICE);
		if (p->qps[i].phase >= STAT_LINK_PHASES || p->qps[i].kind >= STAT_LINK_KINDS)
			abort();
	}
	for (size_t i = 0; i < p->nconns; i++)
		if (p->conns[i].reason >= REASON_COUNT || p->conns[i].tx_path >= PATH_KINDS ||
		    p->conns[i].rx_path >= PATH_KINDS)
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
	lay_over(data, n, 0, size);
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
