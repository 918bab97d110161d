/*
 * rdmastat_doctor.h - what the files of `rdmastat doctor` share: verdicts and facts.
 */
#ifndef RDMASHIM_RDMASTAT_DOCTOR_H
#define RDMASHIM_RDMASTAT_DOCTOR_H

#include <limits.h>

#include "policy/policy.h"
#include "ground/rdmastat.h"

enum verdict { V_OK, V_NONE, V_WARN, V_FAIL };	/* V_NONE: not there and not needed */

#define WORD 300	/* a path in a command, quoted, no longer: there is room for two in MEND */
#define MEND (2 * WORD + 100)

struct check {
	enum verdict verdict;
	char name[24], fact[400], mend[MEND];
};

struct doctor {
	struct request r;		/* width, colour, json */
	char lib[PATH_MAX];		/* "" if not found */
	const char *root;		/* before /sys, /proc and /dev: another tree, in tests */
	const struct policy *policy;	/* never NULL */
	bool has_rdma, has_gpu, transfer;
	struct check check[96];
	size_t n;
};

/* Adds a check. mend: the command or step that mends it, "" for none. */
void verdict(struct doctor *d, enum verdict v, const char *name, const char *mend, const char *fmt,
	     ...) __attribute__((format(printf, 5, 6)));

/* The first line of a file under d->root, without its newline; false if it cannot be read. */
bool fact(const struct doctor *d, char *buf, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The names in a directory under d->root, sorted; NULL-terminated, names_free(). NULL if there
 * is none. */
char **names_in(const struct doctor *d, const char *dir);
void names_free(char **names);

void check_machine(struct doctor *d);		/* rdmastat_machine.c */
void check_services(struct doctor *d);		/* rdmastat_services.c */
void check_go(struct doctor *d);		/* rdmastat_go.c */
void check_versions(struct doctor *d);		/* rdmastat_versions.c */
void check_children(struct doctor *d);		/* rdmastat_children.c */
void check_devices(struct doctor *d);		/* rdmastat_devices.c */
void check_transfers(struct doctor *d);		/* rdmastat_loop.c */
void check_cuda(struct doctor *d);		/* rdmastat_cuda.c */
void check_peer(struct doctor *d, const char *peer);	/* rdmastat_peer.c */

/* Bytes of address space that a link takes under this policy. */
uint64_t segment_size(const struct policy *p);

#endif
