/*
 * procstat.c - see procstat.h.
 */
#include "procstat.h"

#include <string.h>

#include "words.h"

/* Field 2 may itself hold blanks and brackets, so the fields are counted from its last bracket. */
bool proc_stat_parse(const char *text, size_t len, struct proc_stat *ret)
{
	const char *end = text + len, *s = memrchr(text, ')', len);
	uint64_t v;
	bool over;

	for (int field = 3; s && field <= 22; field++) {
		s = memchr(s, ' ', (size_t)(end - s));
		if (!s || ++s == end)
			return false;
		if (field == 3)
			ret->state = *s;
		if (field != 9 && field != 22)
			continue;
		if (!parse_digits(s, (size_t)(end - s), &v, &over) || over)
			return false;
		*(field == 9 ? &ret->flags : &ret->start) = v;
	}
	return s != NULL;
}
