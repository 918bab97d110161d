/*
 * rdmastat_past.h - the history of a connection as text and as JSON, for `rdmastat why`.
 */
#ifndef RDMASHIM_RDMASTAT_PAST_H
#define RDMASHIM_RDMASTAT_PAST_H

#include "ground/rdmastat_json.h"

/* What happened, in a sentence. policy: what policy_file and the files that it includes say now,
 * for places of rules; may be NULL. */
const char *past_text(const struct stat_moment *m, const struct policy *policy,
		      const char *policy_file, char *buf, size_t len);
/* "09:31:07.123456", local time; "-" if the time is not known. buf of 32. */
const char *past_time(const struct stat_moment *m, char *buf, size_t len);
json_object *past_json(const struct stat_past *p, const struct policy *policy,
		       const char *policy_file);

#endif
