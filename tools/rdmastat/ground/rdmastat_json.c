/*
 * rdmastat_json.c - see rdmastat_json.h.
 */
#include <stdio.h>
#include <string.h>

#include "policy/words.h"
#include "ground/rdmastat_json.h"

#define PLAIN (JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)

json_object *json_num(uint64_t v)
{
	return json_object_new_uint64(v);
}

json_object *json_share(double v)
{
	char buf[32];

	if (v < 0)
		return NULL;		/* null: there was nothing to share */
	snprintf(buf, sizeof(buf), "%.6f", v);
	return json_object_new_double_s(v, buf);
}

json_object *json_str(const char *s)
{
	char buf[1024];
	size_t n = strnlen(s, sizeof(buf) - 1);

	memcpy(buf, s, n);
	make_printable(buf, n, '?', ASCII_ONLY);
	buf[n] = '\0';
	return json_object_new_string(buf);
}

void json_add(json_object *o, const char *key, json_object *v)
{
	json_object_object_add_ex(o, key, v,
				  JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_KEY_IS_CONSTANT);
}

json_object *json_root(void)
{
	json_object *o = json_object_new_object();

	json_add(o, "schema", json_num(JSON_SCHEMA));
	return o;
}

void json_print(const struct request *r, json_object *o)
{
	puts(json_object_to_json_string_ext(
		o, r->watch ? PLAIN : JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static json_object *by_path(const uint64_t *bytes)
{
	json_object *o = json_object_new_object();
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		json_add(o, path_name((enum path_kind)i), json_num(bytes[i]));
	return o;
}

static json_object *counters(const struct sums *s)
{
	json_object *o = json_object_new_object();
	int i;

	for (i = 0; i < STAT_COUNTERS; i++)
		json_add(o, counter_names[i], json_num(s->counter[i]));
	return o;
}

static json_object *reasons(const struct sums *s)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(s, top), i;
	json_object *a = json_object_new_array();

	for (i = 0; i < n; i++) {
		json_object *o = json_object_new_object();

		json_add(o, "reason", json_str(reason_name(top[i])));
		json_add(o, "connections", json_num(s->reasons[top[i]]));
		json_add(o, "live_bytes", json_num(s->live_bytes[top[i]]));
		json_add(o, "text", json_str(reason_text(top[i])));
		json_add(o, "remedy", json_str(reason_remedy(top[i])));
		json_object_array_add(a, o);
	}
	return a;
}

static void add_sums(json_object *o, const struct sums *s)
{
	json_add(o, "connections", json_num(s->conns));
	json_add(o, "connections_fast", json_num(s->conns_fast));
	json_add(o, "live", json_num(s->live));
	json_add(o, "bytes", by_path(s->bytes));
	json_add(o, "hit_bytes", json_share(hit_bytes(s)));
	json_add(o, "hit_connections", json_share(hit_conns(s)));
	json_add(o, "waits_polled", json_share(waits_polled(s)));
	json_add(o, "rings_held", json_num(s->rings_held));
	json_add(o, "ring_bytes", json_num(s->ring_bytes));
	json_add(o, "counters", counters(s));
	json_add(o, "reasons", reasons(s));
}

static json_object *process(const struct stat_proc *p)
{
	json_object *o = json_object_new_object();
	struct sums s = { 0 };

	sums_add(&s, p);
	json_add(o, "pid", json_num(p->pid));
	json_add(o, "uid", json_num(p->uid));
	json_add(o, "start_time", json_num(p->start_time));
	json_add(o, "program", json_str(p->program));
	json_add(o, "alive", json_object_new_boolean(!p->dead));
	json_add(o, "processes", json_num(p->folded ? p->folded : 1));
	json_add(o, "library", p->build[0] ? json_str(p->build) : NULL);
	json_add(o, "go", p->go[0] ? json_str(p->go) : NULL);
	json_add(o, "mode", json_str(stat_mode_name(p->mode)));
	json_add(o, "policy_file", json_str(p->policy_file));
	json_add(o, "tx_bytes", by_path(p->tx_bytes));
	json_add(o, "rx_bytes", by_path(p->rx_bytes));
	json_add(o, "ring_budget", json_num(p->dead ? 0 : p->ring_budget));
	add_sums(o, &s);
	return o;
}

/* ---- lists of any length: no more than one row is in memory ---- */

static const char *new_line(const struct json_rows *w)
{
	return w->one_line ? "" : "\n  ";
}

static void put_key(struct json_rows *w, const char *key)
{
	fprintf(w->f, ",%s\"%s\":", new_line(w), key);
}

void json_rows_begin(struct json_rows *w, const char *key)
{
	if (!w->begun)
		fprintf(w->f, "{%s\"schema\":%d", new_line(w), JSON_SCHEMA);
	w->begun = true;
	w->any = false;
	put_key(w, key);
	putc('[', w->f);
}

static void row_begins(struct json_rows *w)
{
	fprintf(w->f, "%s%s%s", w->any ? "," : "", new_line(w), w->one_line ? "" : "  ");
	w->any = true;
}

void json_rows_add(struct json_rows *w, json_object *o)
{
	row_begins(w);
	fputs(json_object_to_json_string_ext(o, PLAIN), w->f);
	json_object_put(o);
}

void json_rows_end(struct json_rows *w)
{
	fprintf(w->f, "%s]", w->any ? new_line(w) : "");
}

void json_rows_value(struct json_rows *w, const char *key, json_object *o)
{
	put_key(w, key);
	fputs(json_object_to_json_string_ext(o, PLAIN), w->f);
	json_object_put(o);
}

void json_rows_done(struct json_rows *w)
{
	fputs(w->one_line ? "}\n" : "\n}\n", w->f);
}

void json_rows_processes(struct json_rows *w, const struct stat_list *l)
{
	json_rows_begin(w, "processes");
	for (size_t i = 0; i < l->n; i++)
		json_rows_add(w, process(&l->proc[i]));
	json_rows_end(w);
}

void json_rows_total(struct json_rows *w, const struct stat_list *l)
{
	json_object *t = json_object_new_object();
	struct sums total = { 0 };

	for (size_t i = 0; i < l->n; i++)
		sums_add(&total, &l->proc[i]);
	add_sums(t, &total);
	json_rows_value(w, "total", t);
}

int json_processes(const struct request *r, const struct stat_list *l)
{
	struct json_rows w = { stdout, r->watch, false, false };

	json_rows_processes(&w, l);
	json_rows_total(&w, l);
	json_rows_done(&w);
	return EXIT_OK;
}

/* ---- connections: written by hand, since there may be ten thousands of them ---- */

struct line {
	char s[2048];
	size_t n;
};

static void put(struct line *l, const char *s)
{
	for (; *s && l->n + 1 < sizeof(l->s); s++)
		l->s[l->n++] = *s;
	l->s[l->n] = '\0';
}

static void put_u64(struct line *l, uint64_t v)
{
	char digits[21], *p = digits + sizeof(digits) - 1;

	*p = '\0';
	do
		*--p = (char)('0' + v % 10);
	while (v /= 10);
	put(l, p);
}

static void put_num(struct line *l, const char *key, uint64_t v)
{
	put(l, key);
	put_u64(l, v);
}

static void put_known(struct line *l, const char *key, uint64_t v)
{
	if (v != UINT64_MAX) {
		put_num(l, key, v);
		return;
	}
	put(l, key);
	put(l, "null");
}

/* Printable ASCII, as all names and addresses are that rdmastat has read. */
static void put_str(struct line *l, const char *key, const char *v)
{
	char c[3] = "";

	put(l, key);
	put(l, "\"");
	for (; *v; v++) {
		c[0] = *v == '"' || *v == '\\' ? '\\' : *v;
		c[1] = c[0] == '\\' ? *v : '\0';
		put(l, c);
	}
	put(l, "\"");
}

static void put_paths(struct line *l, const char *key, const uint64_t *bytes)
{
	put(l, key);
	for (int i = 0; i < PATH_KINDS; i++) {
		put(l, i ? ",\"" : "{\"");
		put(l, path_name((enum path_kind)i));
		put(l, "\":");
		put_u64(l, bytes[i]);
	}
	put(l, "}");
}

static void connection_line(const struct conn_ref *ref, struct line *l)
{
	const struct stat_conn *c = ref->c;
	char buf[64];

	l->n = 0;
	put_num(l, "{\"pid\":", ref->p->pid);
	put_num(l, ",\"uid\":", ref->p->uid);
	put_str(l, ",\"program\":", ref->p->program);
	put_num(l, ",\"fd\":", c->fd);
	put_str(l, ",\"local\":", end_text(c->family, c->laddr, c->lport, buf, sizeof(buf)));
	put_str(l, ",\"peer\":", end_text(c->family, c->paddr, c->pport, buf, sizeof(buf)));
	put_str(l, ",\"role\":", role_name(c->role));
	put_str(l, ",\"tx_path\":", path_name(c->tx_path));
	put_str(l, ",\"rx_path\":", path_name(c->rx_path));
	put_num(l, ",\"tx_state\":", c->tx_state);
	put_num(l, ",\"rx_state\":", c->rx_state);
	put_paths(l, ",\"tx_bytes\":", c->tx_bytes);
	put_paths(l, ",\"rx_bytes\":", c->rx_bytes);
	put_num(l, ",\"cuts\":", c->cuts);
	put_num(l, ",\"rewinds\":", c->rewinds);
	put_num(l, ",\"rule_line\":", (uint64_t)policy_at_line(c->rule_at));
	put_num(l, ",\"rule_file\":", policy_at_file(c->rule_at));
	put_str(l, ",\"reason\":", reason_name(c->reason));
	put_known(l, ",\"send_queue\":", c->unread);
	put_known(l, ",\"receive_queue\":", c->to_read);
	put_num(l, ",\"ring_bytes\":", c->ring);
	put_num(l, ",\"ring_full\":", c->fulls);
	put_num(l, ",\"overflows\":", c->overflows);
	put_known(l, ",\"rtt_ns\":", c->rtt);
	put(l, "}");
}

json_object *json_connection(const struct conn_ref *ref)
{
	struct line l;

	connection_line(ref, &l);
	return json_tokener_parse(l.s);
}

void json_connections(const struct request *r, const struct conn_ref *ref, size_t n)
{
	struct json_rows w = { stdout, r->watch, false, false };
	struct line l;

	json_rows_begin(&w, "connections");
	for (size_t i = 0; i < n; i++) {
		row_begins(&w);
		connection_line(&ref[i], &l);
		fputs(l.s, stdout);
	}
	json_rows_end(&w);
	json_rows_done(&w);
}

void json_links(struct json_rows *rows, const struct link_row *row, size_t n)
{
	size_t i;

	json_rows_begin(rows, "links");
	for (i = 0; i < n; i++) {
		const struct link_row *w = &row[i];
		json_object *o = json_object_new_object();

		json_add(o, "pid", json_num(w->a->pid));
		json_add(o, "program", json_str(w->a->program));
		json_add(o, "peer_pid", w->b ? json_num(w->b->pid) : NULL);
		json_add(o, "peer_program", w->b ? json_str(w->b->program) : NULL);
		json_add(o, "connections", json_num(w->conns));
		json_add(o, "fast", json_num(w->fast));
		json_add(o, "bytes", by_path(w->bytes));
		json_add(o, "hit_bytes", json_share(hit_of(w->bytes)));
		json_rows_add(rows, o);
	}
	json_rows_end(rows);
}
