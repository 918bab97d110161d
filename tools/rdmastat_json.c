/*
 * rdmastat_json.c - the views as JSON. Field names are an interface: add, don't rename.
 */
#include <json-c/json.h>
#include <stdio.h>

#include "rdmastat.h"

static json_object *num(uint64_t v)
{
	return json_object_new_uint64(v);
}

static json_object *share(double v)
{
	char buf[32];

	if (v < 0)
		return NULL;		/* null: there was nothing to share */
	snprintf(buf, sizeof(buf), "%.6f", v);
	return json_object_new_double_s(v, buf);
}

static json_object *by_path(const uint64_t *bytes)
{
	json_object *o = json_object_new_object();
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		json_object_object_add(o, path_name((enum path_kind)i), num(bytes[i]));
	return o;
}

static json_object *counters(const struct sums *s)
{
	static const char *const names[] = {
#define STAT(name, doc) #name,
#include "../policy/stat.def"
#undef STAT
	};
	json_object *o = json_object_new_object();
	int i;

	for (i = 0; i < STAT_COUNTERS; i++)
		json_object_object_add(o, names[i], num(s->counter[i]));
	return o;
}

static json_object *reasons(const struct sums *s)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(s, top), i;
	json_object *a = json_object_new_array();

	for (i = 0; i < n; i++) {
		json_object *o = json_object_new_object();

		json_object_object_add(o, "reason", json_object_new_string(reason_name(top[i])));
		json_object_object_add(o, "connections", num(s->reasons[top[i]]));
		json_object_object_add(o, "text", json_object_new_string(reason_text(top[i])));
		json_object_object_add(o, "remedy", json_object_new_string(reason_remedy(top[i])));
		json_object_array_add(a, o);
	}
	return a;
}

static void add_sums(json_object *o, const struct sums *s)
{
	json_object_object_add(o, "connections", num(s->conns));
	json_object_object_add(o, "connections_fast", num(s->conns_fast));
	json_object_object_add(o, "live", num(s->live));
	json_object_object_add(o, "bytes", by_path(s->bytes));
	json_object_object_add(o, "hit_bytes", share(hit_bytes(s)));
	json_object_object_add(o, "hit_connections", share(hit_conns(s)));
	json_object_object_add(o, "counters", counters(s));
	json_object_object_add(o, "reasons", reasons(s));
}

static void print(json_object *o, bool one_line)
{
	puts(json_object_to_json_string_ext(o, (one_line ? JSON_C_TO_STRING_PLAIN : JSON_C_TO_STRING_PRETTY) |
					       JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static json_object *process(const struct stat_proc *p)
{
	json_object *o = json_object_new_object();
	struct sums s = { 0 };

	sums_add(&s, p);
	json_object_object_add(o, "pid", num(p->pid));
	json_object_object_add(o, "uid", num(p->uid));
	json_object_object_add(o, "program", json_object_new_string(p->program));
	json_object_object_add(o, "alive", json_object_new_boolean(!p->dead));
	json_object_object_add(o, "mode", json_object_new_string(p->mode_on ? "on" : "off"));
	json_object_object_add(o, "policy_file", json_object_new_string(p->policy_file));
	json_object_object_add(o, "tx_bytes", by_path(p->tx_bytes));
	json_object_object_add(o, "rx_bytes", by_path(p->rx_bytes));
	add_sums(o, &s);
	return o;
}

void json_processes(const struct stat_list *l, bool one_line)
{
	json_object *root = json_object_new_object(), *a = json_object_new_array(), *t = json_object_new_object();
	struct sums total = { 0 };
	size_t i;

	for (i = 0; i < l->n; i++) {
		sums_add(&total, &l->proc[i]);
		json_object_array_add(a, process(&l->proc[i]));
	}
	add_sums(t, &total);
	json_object_object_add(root, "processes", a);
	json_object_object_add(root, "total", t);
	print(root, one_line);
}

static json_object *connection(const struct stat_proc *p, const struct stat_conn *c)
{
	json_object *o = json_object_new_object();
	char buf[64];

	json_object_object_add(o, "pid", num(p->pid));
	json_object_object_add(o, "program", json_object_new_string(p->program));
	json_object_object_add(o, "fd", num(c->fd));
	json_object_object_add(o, "local", json_object_new_string(end_text(c->family, c->laddr, c->lport, buf, sizeof(buf))));
	json_object_object_add(o, "peer", json_object_new_string(end_text(c->family, c->paddr, c->pport, buf, sizeof(buf))));
	json_object_object_add(o, "role", json_object_new_string(role_name(c->role)));
	json_object_object_add(o, "tx_path", json_object_new_string(path_name(c->tx_path)));
	json_object_object_add(o, "rx_path", json_object_new_string(path_name(c->rx_path)));
	json_object_object_add(o, "tx_state", num(c->tx_state));
	json_object_object_add(o, "rx_state", num(c->rx_state));
	json_object_object_add(o, "tx_bytes", by_path(c->tx_bytes));
	json_object_object_add(o, "rx_bytes", by_path(c->rx_bytes));
	json_object_object_add(o, "cuts", num(c->cuts));
	json_object_object_add(o, "rewinds", num(c->rewinds));
	json_object_object_add(o, "rule_line", num(c->rule_line));
	json_object_object_add(o, "reason", json_object_new_string(reason_name(c->reason)));
	return o;
}

void json_connections(const struct stat_list *l, bool one_line)
{
	json_object *root = json_object_new_object(), *a = json_object_new_array();
	size_t i, k;

	for (i = 0; i < l->n; i++)
		for (k = 0; !l->proc[i].dead && k < l->proc[i].nconns; k++)
			json_object_array_add(a, connection(&l->proc[i], &l->proc[i].conns[k]));
	json_object_object_add(root, "connections", a);
	print(root, one_line);
}

void json_calls(const struct stat_list *l, bool one_line)
{
	json_object *root = json_object_new_object(), *a = json_object_new_array();
	struct call_sum calls[STAT_CALLS];
	size_t n = call_sums(l, calls, STAT_CALLS), i;

	for (i = 0; i < n; i++) {
		json_object *o = json_object_new_object();

		json_object_object_add(o, "call", json_object_new_string(calls[i].name));
		json_object_object_add(o, "tcp", num(calls[i].tcp));
		json_object_object_add(o, "fast", num(calls[i].fast));
		json_object_array_add(a, o);
	}
	json_object_object_add(root, "calls", a);
	print(root, one_line);
}
