/*
 * summary.c - RDMASHIM_STATS: one line when the program ends, saying how much of its traffic
 * left TCP. 1: to where messages go (stderr, or the log file); a path with a slash: appended to
 * that file.
 *
 * Runs as a destructor, so not after _exit(), exec or a signal. Reads counters only, takes no
 * lock; other threads may still be adding to them.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/shim.h"
#include "base/sys.h"
#include "conn/stream.h"
#include "policy/hold.h"
#include "policy/log.h"
#include "policy/stat.h"
#include "policy/trust.h"
#include "policy/words.h"
#include "process/fork.h"

static enum { SUMMARY_OFF, SUMMARY_LOG, SUMMARY_FILE } where;
static char file[PATH_MAX];

/* Kept from the start: the program may change its environment. */
__attribute__((constructor)) static void summary_init(void)
{
	const char *e = getauxval(AT_SECURE) ? NULL : getenv("RDMASHIM_STATS");

	if (!e || !*e || !strcmp(e, "0") || !strcmp(e, "off"))
		return;
	if (!strchr(e, '/')) {
		where = SUMMARY_LOG;
	} else if (strlen(e) < sizeof file) {
		memcpy(file, e, strlen(e) + 1);
		where = SUMMARY_FILE;
	}
}

struct summary {
	uint64_t conns, fast, bytes[PATH_KINDS], all;
	unsigned top;			/* most frequent reason */
	uint64_t top_conns;
};

static void add_bytes(struct summary *s, const _Atomic uint64_t *b)
{
	for (int i = 0; i < PATH_KINDS; i++) {
		uint64_t v = atomic_load_explicit(&b[i], memory_order_relaxed);

		s->bytes[i] += v;
		s->all += v;
	}
}

static void sum_up(struct summary *s)
{
	struct stat_header *h = stat_self();
	const struct stat_row *row = (const struct stat_row *)(h + 1);
	uint32_t used = atomic_load_explicit(&h->rows_used, memory_order_relaxed), i;

	memset(s, 0, sizeof *s);
	s->conns = atomic_load_explicit(&h->counter[STAT_conns], memory_order_relaxed);
	s->fast = atomic_load_explicit(&h->counter[STAT_conns_fast], memory_order_relaxed);
	add_bytes(s, h->bytes_tx);
	add_bytes(s, h->bytes_rx);
	for (i = 0; i < used && i < STAT_ROWS; i++)
		if (atomic_load_explicit(&row[i].state, memory_order_acquire) == 2) {
			add_bytes(s, row[i].tx_bytes);
			add_bytes(s, row[i].rx_bytes);
		}
	for (i = REASON_NONE + 1; i < REASON_COUNT; i++) {
		uint64_t n = atomic_load_explicit(&h->reasons[i], memory_order_relaxed);

		/* below zero for a moment while it moves */
		if (n > s->top_conns && n < 1ull << 60) {
			s->top_conns = n;
			s->top = i;
		}
	}
}

static size_t format(const struct summary *s, char *buf, size_t len)
{
	uint64_t fast = s->all - s->bytes[PATH_TCP];
	/* tenths of a percent, without overflow; 100.0 only if it is all */
	uint64_t share = !s->all	       ? 0
			 : s->all < 1ull << 50 ? fast * 1000 / s->all
					       : fast / (s->all / 1000);
	size_t n;

	n = fmt_string(buf, len, "%s: left TCP: %lu.%lu%% of %lu bytes, %lu of %lu connections",
		       shim_program, share / 10, share % 10, s->all, s->fast, s->conns);
	if (s->top_conns)
		n += fmt_string(buf + n, len - n, "; on TCP: %lu %s (%s)", s->top_conns,
				reason_name(s->top), reason_remedy(s->top));
	return n;
}

static void append(const char *line)
{
	char buf[LOG_LINE_MAX];
	size_t n = fmt_string(buf, sizeof buf - 1, "rdmashim[%ld]: %s", sys(SYS_getpid), line);
	struct trust t;
	int fd, rc = trust_walk(file, TRUST_OUTPUT, &t);

	if (rc == TRUST_REFUSED && log_on(LOG_LEVEL_ERROR))
		log_line(LOG_LEVEL_ERROR, "RDMASHIM_STATS=%s: %s", file, t.why);
	if (rc)
		return;
	buf[n++] = '\n';
	fd_hold(true);
	fd = log_open(t.path);
	if (fd >= 0) {
		sys(SYS_write, fd, buf, n);
		sys(SYS_close, fd);
	}
	fd_hold(false);
}

static void summary_print(void)
{
	struct summary s;
	char line[LOG_LINE_MAX - 64];

	if (!shim_on)
		return;
	streams_count_tcp_only();
	if (where == SUMMARY_OFF)
		return;
	sum_up(&s);
	if (!s.conns)
		return;			/* no TCP, no change */
	format(&s, line, sizeof line);
	if (where == SUMMARY_FILE) {
		append(line);
		return;
	}
	if (!log_on(LOG_LEVEL_ERROR))	/* asked for by the environment, whatever the log's level */
		atomic_store(&log_level_now, LOG_LEVEL_ERROR);
	log_line(LOG_LEVEL_ERROR, "%s", line);
}

/* What the kernel holds it delivers after the process has gone; so the streams fall back last. */
__attribute__((destructor)) static void shim_end(void)
{
	summary_print();
	exit_fallback();
}
