/*
 * rdmastat_why.c - `rdmastat why PID[:FD]`, or ADDRESS:PORT: what is known about one process or
 * connection, which rule decided, and what would change it, and what happened when.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/rule.h"
#include "policy/words.h"
#include "ground/rdmastat_ends.h"
#include "views/rdmastat_why.h"

#define CONNS_SHOWN 10

/* ---- which one ---- */

/* What the command line names: a process, one of its connections, or the end of a connection. */
struct name {
	uint64_t pid, fd;
	bool one;			/* a connection */
	const char *end;		/* ADDRESS:PORT, or NULL; then pid and fd follow from it */
	struct addr_pat pat;
};

static bool read_end(const char *word, struct name *ret)
{
	char msg[256];
	size_t at;

	ret->end = word;
	if (!addr_pat_parse(word, strlen(word), &ret->pat, &at, msg, sizeof(msg)))
		return true;
	complain("why: %s: %s", word, msg);
	return false;
}

static bool read_name(const struct request *r, struct name *ret)
{
	const char *word = r->words.argc == 1 ? r->words.argv[0] : "";
	char buf[64], *colon;

	if (!*word || strlen(word) >= sizeof(buf)) {
		complain("why: name a process or a connection: rdmastat why PID, PID:FD or "
			 "ADDRESS:PORT (rdmastat conn lists them)");
		return false;
	}
	strcpy(buf, word);
	colon = strchr(buf, ':');
	if (colon && (strpbrk(buf, ".[*") || strchr(colon + 1, ':')))
		return read_end(word, ret);
	ret->one = colon != NULL;
	if (colon)
		*colon++ = '\0';
	return opt_number(buf, 1, INT_MAX, "why PID", &ret->pid) &&
	       (!colon || opt_number(colon, 0, INT_MAX, "why PID:FD", &ret->fd));
}

/* The connections that have the named end, as their own or else as the other one. Returns how many;
 * *ret is the last. `tell`: each of the first ones is printed. */
static size_t with_end(const struct stat_list *l, const struct addr_pat *pat, bool own, bool tell,
		       struct conn_ref *ret)
{
	char a[64], b[64];
	size_t n = 0, i, k;

	for (i = 0; i < l->n; i++)
		for (k = 0; k < l->proc[i].nconns; k++) {
			const struct stat_conn *c = &l->proc[i].conns[k];

			if (!addr_pat_match(pat, c->family, own ? c->laddr : c->paddr,
					    own ? c->lport : c->pport))
				continue;
			*ret = (struct conn_ref){ &l->proc[i], c };
			if (tell && n < CONNS_SHOWN)
				complain("  %u:%u  %s -> %s, program %s", ret->p->pid, c->fd,
					 end_text(c->family, c->laddr, c->lport, a, sizeof(a)),
					 end_text(c->family, c->paddr, c->pport, b, sizeof(b)),
					 ret->p->program);
			n++;
		}
	return n;
}

/* An end that is named becomes a process and a descriptor. Returns an exit code. */
static int find_end(const struct stat_list *l, struct name *name)
{
	struct conn_ref c = { 0 };
	bool own = true;
	size_t n = with_end(l, &name->pat, own, false, &c);

	if (!n)
		n = with_end(l, &name->pat, own = false, false, &c);
	if (!n) {
		complain("no process under the library has a connection with the end %s; "
			 "rdmastat conn lists them", name->end);
		return EXIT_FAILED;
	}
	if (n > 1) {
		complain("%zu connections have the end %s; name one by PID:FD:", n, name->end);
		with_end(l, &name->pat, own, true, &c);
		if (n > CONNS_SHOWN)
			complain("  and more: rdmastat conn %s %s", own ? "src" : "dst", name->end);
		return EXIT_USAGE;
	}
	name->pid = c.p->pid;
	name->fd = c.c->fd;
	name->one = true;
	return EXIT_OK;
}

static const struct stat_proc *find_process(const struct stat_list *l, uint64_t pid)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->proc[i].pid == pid)
			return &l->proc[i];
	return NULL;
}

/* Its user has too many: it is not in the list of all, or not all of it. Then it is read alone. */
static const struct stat_list *list_with(const struct request *r, uint64_t pid,
					 const struct stat_list *l, struct stat_list *alone)
{
	const struct stat_proc *p = find_process(l, pid);
	struct request one = *r;

	if (p ? !p->more_conns : !l->more_procs)
		return l;
	one.pid = (pid_t)pid;
	if (get_list(&one, true, alone) || !alone->n)
		return l;
	ends_fill(alone);
	return alone;
}

static bool find(const struct stat_list *l, uint64_t pid, uint64_t fd, bool one, struct subject *s)
{
	size_t k;

	s->p = find_process(l, pid);
	if (!s->p) {
		complain("no counters of process %d: %s", (int)pid, no_counters_why((pid_t)pid));
		return false;
	}
	for (k = 0; one && k < s->p->nconns; k++)
		if (s->p->conns[k].fd == fd)
			s->c = &s->p->conns[k];
	if (one && !s->c) {
		complain("process %d has no TCP connection on descriptor %d that the library "
			 "follows; rdmastat conn pid = %d lists what it has",
			 (int)pid, (int)fd, (int)pid);
		return false;
	}
	return true;
}

/* ---- a whole process ---- */

static void show_waits(const struct request *r, const struct stat_proc *p, const struct sums *s)
{
	unsigned long long full = s->counter[STAT_ring_full],
			   larger = s->counter[STAT_rings_enlarged],
			   again = s->counter[STAT_rings_reused];
	char buf[200], share[16], most[16];

	if (waits_polled(s) >= 0) {
		snprintf(buf, sizeof(buf),
			 "%s of them got what they waited for by polling, without a sleep",
			 percent(waits_polled(s), share, sizeof(share)));
		field(r, "waits", buf);
	}
	if (full || larger || again) {
		snprintf(buf, sizeof(buf),
			 "%llu time%s too full for a send, %llu made larger, %llu used again", full,
			 plural(full), larger, again);
		field(r, "rings", buf);
	}
	if (s->rings_held || s->counter[STAT_rings_rested] || s->counter[STAT_rings_refused]) {
		snprintf(buf, sizeof(buf),
			 "%llu rings with %s%s%s; given back unused %llu times, refused %llu",
			 (unsigned long long)s->rings_held,
			 human(s->ring_bytes, share, sizeof(share)),
			 p->ring_budget ? " of at most " : "",
			 p->ring_budget ? human(p->ring_budget, most, sizeof(most)) : "",
			 (unsigned long long)s->counter[STAT_rings_rested],
			 (unsigned long long)s->counter[STAT_rings_refused]);
		field(r, "memory", buf);
	}
	if (s->counter[STAT_bytes_past]) {
		snprintf(buf, sizeof(buf), "%llu bytes of connections that went back to TCP",
			 (unsigned long long)s->counter[STAT_bytes_past]);
		field(r, "past the library", buf);
	}
}

static void process_head(const struct request *r, const struct subject *s, const struct sums *sums)
{
	char buf[900], h[16], c[16], error[POLICY_ERROR_TEXT];

	snprintf(buf, sizeof(buf), "%u, program %s, user %u", s->p->pid, s->p->program, s->p->uid);
	field(r, "process", buf);
	if (s->p->go[0])
		field(r, "go", s->p->go);
	if (s->not_read)
		snprintf(buf, sizeof(buf), "%s was not read: %.200s", s->err.file, s->err.msg);
	else if (s->unreadable)
		snprintf(buf, sizeof(buf), "cannot be used, everything is TCP: %s",
			 policy_error_text(&s->err, error, sizeof(error)));
	else
		snprintf(buf, sizeof(buf), "%s, mode %s%s",
			 s->p->policy_file[0] ? s->p->policy_file : "built-in",
			 stat_mode_name(s->p->mode),
			 s->pol ? "" : " (no such file: built-in default)");
	field(r, "policy", buf);
	snprintf(buf, sizeof(buf),
		 "%llu so far, %zu live; %s of the connections and %s of the bytes left TCP",
		 (unsigned long long)sums->conns, s->p->nconns + s->p->more_conns,
		 percent(hit_conns(sums), c, sizeof(c)), percent(hit_bytes(sums), h, sizeof(h)));
	field(r, "connections", buf);
	show_waits(r, s->p, sums);
}

/* Why they are on TCP, all together. */
static void show_reasons(const struct request *r, const struct sums *sums)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(sums, top), i;
	char buf[1300];

	if (!n)
		field(r, "on TCP", "nothing");
	for (i = 0; i < n; i++) {
		char h[16], now[40] = "", cause[200];
		uint64_t count = sums->reasons[top[i]], bytes = sums->live_bytes[top[i]];

		if (bytes)
			snprintf(now, sizeof(now), " (%s in open ones)",
				 human(bytes, h, sizeof(h)));
		snprintf(buf, sizeof(buf), "%llu connection%s, %s%s: %s", (unsigned long long)count,
			 plural(count), reason_name(top[i]), now,
			 cause_text(sums, top[i], cause, sizeof(cause)));
		field(r, i ? "" : "on TCP", buf);
		snprintf(buf, sizeof(buf), "-> %s", remedy_text(top[i]));
		field(r, "", buf);
	}
}

static uint64_t by_tcp(const struct stat_conn *c)
{
	return sat_add(c->tx_bytes[PATH_TCP], c->rx_bytes[PATH_TCP]);
}

static int by_tcp_bytes(const void *a, const void *b)
{
	const struct stat_conn *x = *(const struct stat_conn *const *)a,
			       *y = *(const struct stat_conn *const *)b;

	if (by_tcp(x) != by_tcp(y))
		return by_tcp(x) < by_tcp(y) ? 1 : -1;
	return (x > y) - (x < y);
}

/* Those with a reason, most bytes by TCP first; malloc, NULL: out of memory. */
static const struct stat_conn **worst_first(const struct stat_proc *p, size_t *ret_n)
{
	const struct stat_conn **c = malloc((p->nconns + 1) * sizeof(*c));

	*ret_n = 0;
	for (size_t i = 0; c && i < p->nconns; i++)
		if (p->conns[i].reason != REASON_NONE)
			c[(*ret_n)++] = &p->conns[i];
	if (c)
		qsort(c, *ret_n, sizeof(*c), by_tcp_bytes);
	return c;
}

static void show_one_of(const struct request *r, struct subject *s, const struct pairs *ps)
{
	char a[64], b[64], buf[1300];

	s->other.c = NULL;
	pairs_find(ps, s->c, &s->other);
	decide(s);
	advise(s);
	snprintf(buf, sizeof(buf), "%s -> %s: %s",
		 end_text(s->c->family, s->c->laddr, s->c->lport, a, sizeof(a)),
		 end_text(s->c->family, s->c->paddr, s->c->pport, b, sizeof(b)),
		 reason_name(s->c->reason));
	snprintf(a, sizeof(a), "%u:%u", s->p->pid, s->c->fd);
	field(r, a, buf);
	snprintf(buf, sizeof(buf), "-> %s", s->advice);
	field(r, "", buf);
}

static void show_process(const struct request *r, struct subject *s, const struct pairs *ps)
{
	const struct stat_conn **c;
	struct sums sums = { 0 };
	size_t n, i;

	sums_add(&sums, s->p);
	process_head(r, s, &sums);
	show_reasons(r, &sums);
	c = worst_first(s->p, &n);
	for (i = 0; i < n && i < CONNS_SHOWN; i++) {
		s->c = c[i];
		show_one_of(r, s, ps);
	}
	if (n > CONNS_SHOWN)
		printf("and more: rdmastat conn pid = %u\n", s->p->pid);
	free(c);
	offer_stacks(r, s->p);
}

static void process_json(const struct request *r, struct subject *s, const struct pairs *ps)
{
	struct stat_list one = { .proc = (struct stat_proc *)s->p, .n = 1 };
	struct json_rows w = { stdout, r->watch, false, false };
	size_t i;

	json_rows_processes(&w, &one);
	json_rows_begin(&w, "connections");
	for (i = 0; i < s->p->nconns; i++) {
		s->c = &s->p->conns[i];
		s->other.c = NULL;
		pairs_find(ps, s->c, &s->other);
		decide(s);
		advise(s);
		json_rows_add(&w, connection_json(s));
	}
	json_rows_end(&w);
	json_rows_done(&w);
}

static void show_subject(const struct request *r, struct subject *s, bool one,
			 const struct pairs *ps)
{
	if (one) {
		pairs_find(ps, s->c, &s->other);
		decide(s);
		advise(s);
	}
	if (r->json && one) {
		json_object *root = json_root(), *a = json_object_new_array();

		json_object_array_add(a, connection_json(s));
		json_add(root, "connections", a);
		json_print(r, root);
	} else if (r->json) {
		process_json(r, s, ps);
	} else if (one) {
		show_connection(r, s);
	} else {
		show_process(r, s, ps);
	}
}

int show_why(const struct request *r, const struct stat_list *l)
{
	struct subject s = { 0 };
	struct name name = { 0 };
	struct stat_list alone = { 0 };
	struct pairs *ps;
	enum whose who;
	int rc = EXIT_OK;

	if (!read_name(r, &name))
		return EXIT_USAGE;
	if (name.end)
		rc = find_end(l, &name);
	if (rc)
		return rc;
	rc = EXIT_FAILED;
	ps = pairs_make(l);
	if (find(list_with(r, name.pid, l, &alone), name.pid, name.fd, name.one, &s)) {
		who = read_policy(&s, &rc);
		if (who != PARENT) {
			show_subject(r, &s, name.one, ps);
			rc = EXIT_OK;
		}
		if (who == CHILD)
			_exit(finish(rc));
	}
	policy_free(s.pol);
	pairs_free(ps);
	stat_list_clear(&alone);
	return rc;
}
