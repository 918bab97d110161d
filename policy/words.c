/*
 * words.c - see words.h. No state, no locks.
 */
#include <string.h>

#include "words.h"

struct out {
	char *buf;
	size_t len, used;
};

static void put(struct out *o, char c)
{
	if (o->used + 1 < o->len)
		o->buf[o->used++] = c;
}

static void put_str(struct out *o, const char *s)
{
	for (s = s ? s : "(null)"; *s; s++)
		put(o, *s);
}

static void put_u64(struct out *o, uint64_t v, unsigned base)
{
	char tmp[20];
	int n = 0;

	do {
		tmp[n++] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	while (n)
		put(o, tmp[--n]);
}

static void put_i64(struct out *o, int64_t v)
{
	uint64_t u = (uint64_t)v;

	if (v < 0) {
		put(o, '-');
		u = 0 - u;
	}
	put_u64(o, u, 10);
}

size_t fmt_vstring(char *buf, size_t len, const char *fmt, va_list ap)
{
	struct out o = { buf, len, 0 };
	bool wide;

	for (; *fmt; fmt++) {
		if (*fmt != '%') {
			put(&o, *fmt);
			continue;
		}
		/* long, long long and size_t have one width on every target of this library */
		for (wide = false, fmt++; *fmt == 'l' || *fmt == 'z'; fmt++)
			wide = true;
		switch (*fmt) {
		case 's': put_str(&o, va_arg(ap, const char *)); break;
		case 'c': put(&o, (char)va_arg(ap, int)); break;
		case 'd':
		case 'i': put_i64(&o, wide ? va_arg(ap, long) : va_arg(ap, int)); break;
		case 'u':
			put_u64(&o, wide ? va_arg(ap, unsigned long) : va_arg(ap, unsigned), 10);
			break;
		case 'x':
			put_u64(&o, wide ? va_arg(ap, unsigned long) : va_arg(ap, unsigned), 16);
			break;
		case 'p':
			put_str(&o, "0x");
			put_u64(&o, (uintptr_t)va_arg(ap, void *), 16);
			break;
		case '%': put(&o, '%'); break;
		default: goto end;	/* its argument's size is not known: nothing after it can
					 * be read */
		}
	}
end:
	if (len)
		buf[o.used] = '\0';
	return o.used;
}

_Static_assert(sizeof(long) == sizeof(long long) && sizeof(long) == sizeof(size_t),
	       "fmt_vstring reads l, ll and z as long: give them their own va_arg");

size_t fmt_string(char *buf, size_t len, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = fmt_vstring(buf, len, fmt, ap);
	va_end(ap);
	return n;
}

size_t parse_digits(const char *s, size_t len, uint64_t *ret, bool *overflow)
{
	uint64_t v = 0;
	size_t i;

	*overflow = false;
	for (i = 0; i < len && s[i] >= '0' && s[i] <= '9'; i++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			*overflow = true;
	*ret = *overflow ? UINT64_MAX : v;
	return i;
}

/* Bytes of the character at s, of which len are there; 0: it is not UTF-8. */
static size_t utf8_char(const unsigned char *s, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (!n || n > len || s[0] >= 0xf8)
		return 0;
	*ret = n == 1 ? s[0] : s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*ret = *ret << 6 | (s[i] & 0x3f);
	}
	return *ret < least[n] || *ret > 0x10ffff || (*ret >= 0xd800 && *ret < 0xe000) ? 0 : n;
}

static bool steers(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void make_printable(char *s, size_t len, char instead, int keep)
{
	size_t i, n;
	uint32_t c;

	for (i = 0; i < len; i += n) {
		n = utf8_char((unsigned char *)s + i, len - i, &c);
		if (n && !steers(c) && (n == 1 || keep == KEEP_UTF8))
			continue;
		n = n ? n : 1;
		for (size_t k = 0; k < n; k++)
			s[i + k] = instead;
	}
}

#define QUOTE_MAX 40	/* bytes of a wrong word that are shown */

const char *quote_word(const char *s, size_t len, char *buf, size_t buflen)
{
	struct out o = { buf, buflen, 0 };
	size_t i;

	put(&o, '\'');
	for (i = 0; i < len && i < QUOTE_MAX; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c >= 0x20 && c < 0x7f) {
			put(&o, (char)c);
			continue;
		}
		put_str(&o, "\\x");
		put(&o, "0123456789abcdef"[c >> 4]);
		put(&o, "0123456789abcdef"[c & 15]);
	}
	if (i < len)
		put_str(&o, "...");
	put(&o, '\'');
	if (buflen)
		buf[o.used] = '\0';
	return buf;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

#define SUGGEST_MAX 24

/* Edits (insert, delete, replace, swap of neighbours) from a to b, both at most SUGGEST_MAX
 * long. */
static unsigned edit_distance(const char *a, size_t la, const char *b, size_t lb)
{
	unsigned d[SUGGEST_MAX + 1][SUGGEST_MAX + 1];
	size_t i, j;

	for (i = 0; i <= la; i++)
		d[i][0] = (unsigned)i;
	for (j = 0; j <= lb; j++)
		d[0][j] = (unsigned)j;
	for (i = 1; i <= la; i++)
		for (j = 1; j <= lb; j++) {
			bool same = lower(a[i - 1]) == lower(b[j - 1]);
			unsigned best = d[i - 1][j - 1] + !same;

			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
			    lower(a[i - 2]) == lower(b[j - 1]) && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	return d[la][lb];
}

const char *suggest_word(const char *s, size_t len, const char *const *list, size_t n)
{
	const char *best = NULL;
	unsigned best_d, d;
	size_t i, l;

	if (!len || len > SUGGEST_MAX)
		return NULL;
	best_d = len < 4 ? 1 : len < 8 ? 2 : 3;
	for (i = 0; i < n; i++) {
		l = strlen(list[i]);
		if (l > SUGGEST_MAX)
			continue;
		d = edit_distance(s, len, list[i], l);
		if (d < best_d || (d == best_d && !best)) {
			best = list[i];
			best_d = d;
		}
	}
	return best;
}

bool glob_match(const char *pat, size_t patlen, const char *name)
{
	const char *end = pat + patlen, *star = NULL, *retry = NULL;

	while (*name) {
		if (pat < end && *pat == '*') {
			star = ++pat;
			retry = name;
		} else if (pat < end && (*pat == '?' || *pat == *name)) {
			pat++;
			name++;
		} else if (star) {
			/* only the last star is ever extended: that keeps it quadratic at worst */
			pat = star;
			name = ++retry;
		} else {
			return false;
		}
	}
	while (pat < end && *pat == '*')
		pat++;
	return pat == end;
}

bool word_is(const char *s, size_t len, const char *lit)
{
	return strlen(lit) == len && !memcmp(s, lit, len);
}
