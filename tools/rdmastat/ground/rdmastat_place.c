/*
 * rdmastat_place.c - places in policy files (POLICY_AT) as text, for all that show them.
 */
#include <stdio.h>
#include <string.h>

#include "policy/rule.h"
#include "policy/words.h"
#include "ground/rdmastat.h"

const char *place_text(const struct policy *p, const char *first, uint32_t at, char *buf,
		       size_t len)
{
	const char *path = p ? policy_at_path(p, at) : "";

	if (!policy_at_file(at))
		path = first;
	if (!at)
		snprintf(buf, len, "built-in default");
	else if (*path)
		snprintf(buf, len, "%s:%d", path, policy_at_line(at));
	else	/* the files are others now */
		snprintf(buf, len, "line %d of file %u that %s includes", policy_at_line(at),
			 policy_at_file(at), first);
	return buf;
}

const char *place_line(const struct policy *p, uint32_t at, char *buf, size_t len)
{
	const char *s = at && p && policy_at_file(at) < p->nfiles ? p->file[policy_at_file(at)].text
								  : NULL;
	int line = policy_at_line(at);
	size_t n = 0;

	while (s && --line > 0) {
		s = strchr(s, '\n');
		s = s ? s + 1 : NULL;
	}
	for (; s && *s && *s != '\n' && n + 1 < len; s++)
		buf[n++] = *s;
	make_printable(buf, n, ' ', ASCII_ONLY);
	buf[n] = '\0';
	return buf;
}
