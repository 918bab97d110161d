/*
 * rdmastat_hide.c - see rdmastat_hide.h. One thread.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ground/rdmastat_hide.h"

#define NAMES_MAX 4096		/* that get a number of their own */
#define WORD_MAX 79
#define HEX "0123456789abcdefABCDEF"
#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

enum kind { ADDRESS, HOST };

static struct {
	char (*name[2])[WORD_MAX + 1];
	size_t n[2];
	char own[256];
} known;

int hide_start(const char *own)
{
	snprintf(known.own, sizeof(known.own), "%.*s", (int)strcspn(own, "."), own);
	for (int k = 0; k < 2; k++) {
		known.n[k] = 0;
		known.name[k] = calloc(NAMES_MAX, sizeof(*known.name[k]));
	}
	if (known.name[0] && known.name[1])
		return 0;
	hide_end();
	return -ENOMEM;
}

void hide_end(void)
{
	for (int k = 0; k < 2; k++) {
		free(known.name[k]);
		known.name[k] = NULL;
	}
}

static size_t number_of(enum kind k, const char *word)
{
	size_t i;

	for (i = 0; i < known.n[k]; i++)
		if (!strcasecmp(known.name[k][i], word))
			return i + 1;
	if (known.n[k] < NAMES_MAX)
		strcpy(known.name[k][known.n[k]++], word);
	return known.n[k];
}

/* An address has many spellings. */
static void put_hidden(FILE *to, enum kind k, const char *s, size_t len)
{
	char word[WORD_MAX + 1];
	uint8_t a[16];

	snprintf(word, sizeof(word), "%.*s", (int)(len < WORD_MAX ? len : WORD_MAX), s);
	if (k == ADDRESS && inet_pton(AF_INET6, word, a) == 1)
		inet_ntop(AF_INET6, a, word, sizeof(word));
	fprintf(to, "%s-%zu", k == ADDRESS ? "address" : "host", number_of(k, word));
}

/* ---- addresses: the length of what s begins with, 0: none ---- */

/* Four numbers of up to 255, between points, or between dashes as in names of hosts of a cloud. */
static size_t ipv4_at(const char *s)
{
	size_t at = 0, digits;
	char sep = 0;

	for (int i = 0; i < 4; i++) {
		if (i && ((s[at] != '.' && s[at] != '-') || (i > 1 && s[at] != sep)))
			return 0;
		if (i)
			sep = s[at++];
		digits = strspn(s + at, "0123456789");
		if (!digits || digits > 3 || atoi(s + at) > 255)
			return 0;
		at += digits;
	}
	return at;
}

/* Groups of up to four hex digits between colons. */
struct groups {
	size_t len, last;		/* where the last one begins */
	unsigned n, twos, fours;
	bool gap, digits;
};

static struct groups groups_at(const char *s)
{
	struct groups g = { 0 };
	size_t at = 0, n;

	for (;;) {
		n = strspn(s + at, HEX);
		if (n > 4)
			break;
		g.n++;
		g.twos += n == 2;
		g.fours += n == 4;
		g.digits |= n > 0;
		g.last = at;
		g.len = at + n;
		if (s[g.len] != ':')
			return g;
		g.gap |= s[g.len + 1] == ':';
		at = g.len + 1;
	}
	return g;
}

/* IPv6's, perhaps with IPv4's at its end, or one of hardware: 6 groups of two digits, 4 of four. */
static size_t colons_at(const char *s)
{
	struct groups g = groups_at(s);

	if (s[0] == ':' && s[1] != ':')
		return 0;
	if (!g.digits || (!g.gap && g.n < 8 && g.twos < 6 && g.fours < 4))
		return 0;
	if (s[g.len] == '.' && ipv4_at(s + g.last))
		return g.last + ipv4_at(s + g.last);
	if (g.len > 2 && s[g.len - 1] == ':' && s[g.len - 2] != ':')	/* "fe80::1: it answers" */
		g.len--;
	return g.len;
}

static bool is_word(char c) { return isalnum((unsigned char)c); }

/* In the middle of a word what stands before its colon is not part of it: "word:fe80::1". */
static size_t address_at(const char *line, const char *s)
{
	bool within = s > line && is_word(s[-1]);
	size_t n = within && isdigit((unsigned char)s[-1]) ? 0 : ipv4_at(s);
	const char *colon = s + strspn(s, HEX);

	if (n)
		return n;
	n = colons_at(s);
	if (n && within && colon[0] == ':' && colon[1] != ':' && colons_at(colon + 1))
		return 0;
	return n;
}

/* All hosts have these: they tell nothing. The last is a cgroup's. */
static bool common(const char *s, size_t len)
{
	static const char *const all[] = { "0.0.0.0", "::1", "::", "0::", "localhost" };

	if (!strncmp(s, "127.", 4))
		return true;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strlen(all[i]) == len && !strncmp(s, all[i], len))
			return true;
	return false;
}

/* ---- hosts ---- */

/* What is behind user@ or in a URL, and this host's name with its domain. */
static size_t host_at(const char *line, const char *s)
{
	size_t own = strlen(known.own), len = strspn(s, HOST_CHARS), before = (size_t)(s - line);

	if (before > 1 && s[-1] == '@' && is_word(s[-2]))
		return len;
	if (before > 2 && !strncmp(s - 3, "://", 3))
		return len;
	if (own && len >= own && !strncasecmp(s, known.own, own) && (len == own || s[own] == '.') &&
	    (!before || !strchr(HOST_CHARS, s[-1])))
		return len;
	return 0;
}

void hide_line(FILE *to, const char *line)
{
	for (const char *s = line; *s;) {
		size_t n = address_at(line, s);
		enum kind k = n ? ADDRESS : HOST;

		n = n ? n : host_at(line, s);
		if (n && !common(s, n)) {
			put_hidden(to, k, s, n);
		} else {
			n = n ? n : 1;
			fwrite(s, 1, n, to);
		}
		s += n;
	}
}
