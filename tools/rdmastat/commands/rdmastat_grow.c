/*
 * rdmastat_grow.c - text that grows. What did not fit into memory is told by `failed`, at the end.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "commands/rdmastat_grow.h"

void put(struct text *t, const char *s, size_t len)
{
	if (t->len + len + 1 > t->cap) {
		size_t cap = 2 * (t->len + len + 1);
		char *more = realloc(t->s, cap);

		if (!more) {
			t->failed = true;
			return;
		}
		t->s = more;
		t->cap = cap;
	}
	memcpy(t->s + t->len, s, len);
	t->len += len;
	t->s[t->len] = '\0';
}

void putf(struct text *t, const char *fmt, ...)
{
	char buf[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	if (n > 0)
		put(t, buf, (size_t)n < sizeof(buf) ? (size_t)n : sizeof(buf) - 1);
}

bool read_stream(FILE *f, struct text *t)
{
	char buf[4096];
	size_t n;

	put(t, "", 0);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0 && t->len <= FILE_MAX_BYTES)
		put(t, buf, n);
	return !ferror(f) && t->len <= FILE_MAX_BYTES && !t->failed;
}
