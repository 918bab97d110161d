/*
 * init.h - the policy in use: read at the start, by the library's constructor, and again when it
 * has changed. Background thread only.
 */
#ifndef RDMASHIM_INIT_H
#define RDMASHIM_INIT_H

#include "base/loop.h"
#include "policy/policy.h"

extern struct policy_deps shim_policy_deps;	/* what the policy file and the newest policy are
						 * made of */

/* Reads the policy file again; true if the policy is another one now. */
bool shim_reload_policy(void);
/* A line in the log, once: which library this is, and what is not by default. */
void shim_log_start(void);

/* What the background thread does: bg.c. */
extern const struct loop_duties bg_duties;
extern const struct link_user bg_link_user;

#endif
