/*
 * rdmastat_why.h - what the files of `rdmastat why` share: what is asked about, and its lines.
 */
#ifndef RDMASHIM_RDMASTAT_WHY_H
#define RDMASHIM_RDMASTAT_WHY_H

#include "policy/policy.h"
#include "ground/rdmastat_past.h"

enum whose { ALONE, PARENT, CHILD };

struct subject {
	const struct stat_proc *p;
	const struct stat_conn *c;	/* NULL: the whole process */
	struct conn_ref other;		/* c NULL: not in the list */
	struct policy *pol;		/* its policy file as it is now; NULL: built-in or
					 * unreadable */
	bool unreadable;
	bool not_read;			/* by us; what its process does with it is not known */
	struct policy_error err;
	struct policy_decision now;	/* what the file would decide now */
	struct stat_past past;		/* of c; empty if it cannot be read */
	int past_rc;
	char advice[1280];
	bool recorded_differs;		/* the file was changed since */
};

/* ---- rdmastat_why_policy.c: what the policy says, and advice ---- */

/* Reads the policy file of s->p; *rc only with PARENT. */
enum whose read_policy(struct subject *s, int *rc);
void decide(struct subject *s);			/* s->now, of s->c */
void advise(struct subject *s);			/* s->advice and s->past, of s->c */
bool under_way(const struct subject *s);	/* its latest event is no reason */
bool unearned(const struct stat_conn *c);	/* it has yet to earn its upgrade */

/* ---- rdmastat_why_conn.c: one connection ---- */

/* One line, or more where it is too long: the name, and the text beside it. */
void field(const struct request *r, const char *name, const char *text);
void offer_stacks(const struct request *r, const struct stat_proc *p);	/* the line of it */
void show_connection(const struct request *r, const struct subject *s);
json_object *connection_json(const struct subject *s);

#endif
