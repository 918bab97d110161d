/*
 * rdmastat_text.c - sums over processes, words and colours: what rdmastat's views and rdmarun
 * have in common.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "policy/words.h"
#include "ground/rdmastat.h"

const char *const counter_names[STAT_COUNTERS] = {
#define STAT(name, doc) #name,
#include "policy/stat.def"
#undef STAT
};

/* ---- sums ---- */

void sums_add(struct sums *s, const struct stat_proc *p)
{
	int i;

	/* who was killed closed none of them in its file */
	s->live += p->dead ? 0 : p->nconns + p->more_conns;
	s->rings_held = sat_add(s->rings_held, p->dead ? 0 : p->rings_held);
	s->ring_bytes = sat_add(s->ring_bytes, p->dead ? 0 : p->ring_bytes);
	s->conns = sat_add(s->conns, p->counter[STAT_conns]);
	s->conns_fast = sat_add(s->conns_fast, p->counter[STAT_conns_fast]);
	for (i = 0; i < PATH_KINDS; i++)
		s->bytes[i] = sat_add(s->bytes[i], sat_add(p->tx_bytes[i], p->rx_bytes[i]));
	for (i = 0; i < STAT_COUNTERS; i++)
		s->counter[i] = sat_add(s->counter[i], p->counter[i]);
	for (i = 0; i < REASON_COUNT; i++)
		s->reasons[i] = sat_add(s->reasons[i], p->reasons[i]);
	for (size_t k = 0; k < p->nconns && !p->dead; k++) {
		const struct stat_conn *c = &p->conns[k];
		/* one that is well, and went home for a slow reader once */
		enum reason r = c->reason == REASON_NONE && c->overflows ? REASON_OVERFLOW
									 : c->reason;
		uint64_t *sum = &s->live_bytes[r];

		*sum = sat_add(*sum, sat_add(c->tx_bytes[PATH_TCP], c->rx_bytes[PATH_TCP]));
	}
}

double hit_of(const uint64_t bytes[PATH_KINDS])
{
	double fast = 0, all;
	int i;

	for (i = PATH_TCP + 1; i < PATH_KINDS; i++)
		fast += (double)bytes[i];
	all = fast + (double)bytes[PATH_TCP];
	return all > 0 ? fast / all : -1;
}

double hit_bytes(const struct sums *s)
{
	return hit_of(s->bytes);
}

double hit_conns(const struct sums *s)
{
	if (!s->conns)
		return -1;
	return s->conns_fast >= s->conns ? 1 : (double)s->conns_fast / (double)s->conns;
}

double waits_polled(const struct sums *s)
{
	double won = (double)s->counter[STAT_spins_won],
	       all = won + (double)s->counter[STAT_sleeps];

	return all > 0 ? won / all : -1;
}

static bool less(const struct sums *s, unsigned a, unsigned b)
{
	return s->live_bytes[a] != s->live_bytes[b] ? s->live_bytes[a] < s->live_bytes[b] :
						      s->reasons[a] < s->reasons[b];
}

size_t top_reasons(const struct sums *s, enum reason *out)
{
	size_t n = 0, i;
	unsigned r;

	for (r = REASON_NONE + 1; r < REASON_COUNT; r++) {
		if (!s->reasons[r] && !(r == REASON_OVERFLOW && s->counter[STAT_overflows]))
			continue;
		for (i = n++; i && less(s, out[i - 1], r); i--)
			out[i] = out[i - 1];
		out[i] = (enum reason)r;
	}
	return n;
}

const char *cause_text(const struct sums *s, enum reason r, char *buf, size_t len)
{
	unsigned long long n = s->counter[STAT_overflows];

	if (r != REASON_OVERFLOW || !n)
		return reason_text(r);
	snprintf(buf, len, "reader too slow %llu time%s: %s", n, plural(n), reason_text(r));
	return buf;
}

/* ---- words ---- */

const char *role_name(enum stream_role r)
{
	static const char *const names[] = { "client", "server", "unknown" };

	return (unsigned)r <= ROLE_ANY ? names[r] : "?";
}

const char *end_text(int family, const uint8_t *addr, uint16_t port, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (family == AF_UNSPEC) {
		snprintf(buf, len, "-");	/* it is looked up only for a connection that
						 * earns its upgrade */
		return buf;
	}
	inet_ntop(family, addr, ip, sizeof(ip));
	snprintf(buf, len, family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, port);
	return buf;
}

const char *human(uint64_t v, char *buf, size_t len)
{
	static const char units[] = " KMGTPE";
	double d = (double)v;
	int u = 0;

	for (; d >= 1023.95 && units[u + 1]; u++)
		d /= 1024;
	if (!u)
		snprintf(buf, len, "%u", (unsigned)v);
	else
		snprintf(buf, len, d < 99.95 ? "%.1f%c" : "%.0f%c", d, units[u]);
	return buf;
}

const char *percent(double share, char *buf, size_t len)
{
	if (share < 0)
		snprintf(buf, len, "-");
	else if (share > 0.999 && share < 1)
		snprintf(buf, len, "99.9%%");	/* 100 % only when it is all */
	else
		snprintf(buf, len, "%.1f%%", 100 * share);
	return buf;
}

const char *tint(const struct request *r, enum tint t)
{
	static const char *const codes[] = {
		[TINT_OFF] = "\033[0m", [TINT_HEAD] = "\033[1m", [TINT_GOOD] = "\033[32m",
			[TINT_WARN] = "\033[33m",
		[TINT_BAD] = "\033[31m", [TINT_DIM] = "\033[2m",
	};

	return r->color ? codes[t] : "";
}

enum tint tint_of_share(double share)
{
	return share < 0      ? TINT_OFF
	       : share >= 0.9 ? TINT_GOOD
	       : share >= 0.5 ? TINT_WARN
			      : TINT_BAD;
}

/* What a terminal shows of s, in columns: its colours take none. */
static int shown(const char *s)
{
	int n = 0;

	for (; *s; s++) {
		if (*s == '\033')
			s += strcspn(s, "m");
		else
			n++;
		if (!*s)
			break;
	}
	return n;
}

/* Returns the columns, about. */
static int print_word(FILE *f, const char *s, int len)
{
	char buf[256];
	int n, at;

	for (at = 0; at < len; at += n) {
		n = len - at < (int)sizeof(buf) ? len - at : (int)sizeof(buf);
		/* no character in two chunks */
		while (n > 1 && at + n < len && (s[at + n] & 0xc0) == 0x80)
			n--;
		memcpy(buf, s + at, (size_t)n);
		make_printable(buf, (size_t)n, '?', KEEP_UTF8);
		fwrite(buf, 1, (size_t)n, f);
	}
	return len;
}

void print_wrapped(FILE *f, const char *first, int indent, const char *text, int width)
{
	int at = shown(first);
	bool begun = false;

	fputs(first, f);
	while (*text) {
		int len = (int)strcspn(text, " ");

		if (width && at > indent && at + begun + len > width) {
			fprintf(f, "\n%*s", indent, "");
			at = indent;
			begun = false;
		}
		if (begun)
			putc(' ', f);
		at += begun + print_word(f, text, len);
		begun = true;
		text += len;
		text += strspn(text, " ");
	}
	putc('\n', f);
}

const char *remedy_text(enum reason r)
{
	const char *s = reason_remedy(r);

	return strcmp(s, "none") ? s : "nothing to do: it works as without the library";
}

#define SHELL_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@%-"

const char *shell_word(const char *s, char *buf, size_t len)
{
	size_t n = 1;

	if (*s && *s != '-' && !s[strspn(s, SHELL_PLAIN)] && strlen(s) < len) {
		strcpy(buf, s);
		return buf;
	}
	buf[0] = '\'';
	for (; *s; s++) {
		if (n + 6 > len)
			return "FILE";
		if (*s == '\'') {
			memcpy(buf + n, "'\\''", 4);
			n += 4;
		} else {
			buf[n++] = *s;
		}
	}
	buf[n++] = '\'';
	buf[n] = '\0';
	return buf;
}

void print_foreign(FILE *f, const char *fmt, va_list ap)
{
	char buf[2048];

	vsnprintf(buf, sizeof(buf), fmt, ap);
	make_printable(buf, strlen(buf), '?', KEEP_UTF8);
	fputs(buf, f);
}

void say_line(FILE *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_foreign(f, fmt, ap);
	va_end(ap);
	putc('\n', f);
}
