/*
 * rdmastat_why_conn.c - for `rdmastat why`: all that is known about one connection, as text and as
 * JSON.
 */
#include <errno.h>
#include <string.h>

#include "policy/words.h"
#include "ground/rdmastat_now.h"
#include "views/rdmastat_why.h"

static void paths_text(uint32_t paths, char *buf, size_t len)
{
	int i;

	buf[0] = '\0';
	for (i = 0; i < PATH_KINDS; i++)
		if (paths & (1u << i))
			snprintf(buf + strlen(buf), len - strlen(buf), "%s%s", buf[0] ? " " : "",
				 path_name((enum path_kind)i));
}

static void bytes_text(const uint64_t *b, char *buf, size_t len)
{
	char h[16];
	int i;

	buf[0] = '\0';
	for (i = 0; i < PATH_KINDS; i++)
		if (b[i])
			snprintf(buf + strlen(buf), len - strlen(buf), "%s%s by %s",
				 buf[0] ? ", " : "", human(b[i], h, sizeof(h)),
				 path_name((enum path_kind)i));
	if (!buf[0])
		snprintf(buf, len, "nothing yet");
}

void field(const struct request *r, const char *name, const char *text)
{
	char head[80];

	if (r->width && r->width < 40) {	/* no room beside each other */
		if (*name)
			print_wrapped(stdout, "", 0, name, r->width);
		print_wrapped(stdout, "  ", 2, text, r->width);
		return;
	}
	snprintf(head, sizeof(head), "%-12.64s ", name);
	print_wrapped(stdout, head, 13, text, r->width);
}

static void show_policy(const struct request *r, const struct subject *s)
{
	char buf[1024], place[320], text[256], paths[32];

	if (s->unreadable) {
		snprintf(buf, sizeof(buf), "%s cannot be used: %.200s", s->err.file, s->err.msg);
		field(r, "policy", buf);
		return;
	}
	if (!s->c->rule_at && unearned(s->c) && !under_way(s)) {
		field(r, "decided by",
		      "no rule yet: rules are asked when it has earned its upgrade");
	} else {
		place_text(s->pol, s->p->policy_file, s->c->rule_at, place, sizeof(place));
		snprintf(buf, sizeof(buf), "%s%s%s", place, s->c->rule_at ? ": " : "",
			 place_line(s->pol, s->c->rule_at, text, sizeof(text)));
		field(r, "decided by", buf);
	}
	paths_text(s->now.paths, paths, sizeof(paths));
	place_text(s->pol, s->p->policy_file, s->now.at, place, sizeof(place));
	snprintf(buf, sizeof(buf), "%s, by %s%s", paths, place,
		 s->recorded_differs ? " (the file was changed since this was decided)" : "");
	field(r, "permitted", buf);
}

static void show_history(const struct request *r, const struct subject *s)
{
	const struct stat_past *past = &s->past;
	char buf[600], text[512], time[32];
	size_t i;

	if (s->past_rc || !past->n) {
		snprintf(buf, sizeof(buf), "%s",
			 s->past_rc == -ENOENT ? "the connection has ended"
					       : "nothing is recorded");
		field(r, "history", buf);
		return;
	}
	for (i = 0; i < past->n; i++) {
		if (i == STAT_EVENTS_FIRST && past->left_out) {
			snprintf(buf, sizeof(buf),
				 "(%llu more events; log_level 3 logs all of them from now on)",
				 (unsigned long long)past->left_out);
			field(r, "", buf);
		}
		snprintf(buf, sizeof(buf), "%s %s", past_time(&past->at[i], time, sizeof(time)),
			 past_text(&past->at[i], s->pol, s->p->policy_file, text, sizeof(text)));
		field(r, i ? "" : "history", buf);
	}
}

void offer_stacks(const struct request *r, const struct stat_proc *p)
{
	char buf[64];

	snprintf(buf, sizeof(buf), "rdmastat stacks %u", p->pid);
	field(r, "if it hangs", buf);
}

static void show_now(const struct request *r, const struct stat_conn *c)
{
	char buf[200], a[16], b[16], ring[64] = "", h[16], share[16];

	if (ring_fill(c) >= 0)
		snprintf(ring, sizeof(ring), " (%s of a ring of %s)",
			 percent(ring_fill(c), share, sizeof(share)), human(c->ring, h, sizeof(h)));
	snprintf(buf, sizeof(buf),
		 "%s sent that the other end has not read%s, %s of its not read here",
		 bytes_known(c->unread, a, sizeof(a)), ring, bytes_known(c->to_read, b, sizeof(b)));
	field(r, "under way", buf);
	if (c->rtt != UINT64_MAX) {
		snprintf(buf, sizeof(buf), "%s, by %s", time_known(c->rtt, a, sizeof(a)),
			 c->link ? "the queue pair" : "the kernel on its TCP connection");
		field(r, "round trip", buf);
	}
}

static void show_so_far(const struct request *r, const struct stat_conn *c)
{
	char buf[300], slow[80] = "", full[80] = "";

	if (c->overflows)
		snprintf(slow, sizeof(slow), ", of these %u since the reader was too slow",
			 c->overflows);
	if (c->fulls)
		snprintf(full, sizeof(full), ", found its ring too full %u time%s", c->fulls,
			 plural(c->fulls));
	snprintf(buf, sizeof(buf), "cut over %u time%s, went back to TCP %u time%s%s%s", c->cuts,
		 plural(c->cuts), c->rewinds, plural(c->rewinds), slow, full);
	field(r, "so far", buf);
}

void show_connection(const struct request *r, const struct subject *s)
{
	char buf[1024], a[64], b[64];
	const struct stat_conn *c = s->c;

	snprintf(buf, sizeof(buf), "%u:%u  %s -> %s, %s, program %s", s->p->pid, c->fd,
		 end_text(c->family, c->laddr, c->lport, a, sizeof(a)),
		 end_text(c->family, c->paddr, c->pport, b, sizeof(b)), role_name(c->role),
		 s->p->program);
	field(r, "connection", buf);
	if (s->other.c)
		snprintf(buf, sizeof(buf), "%u:%u, program %s, on %s/%s, reason %s",
			 s->other.p->pid, s->other.c->fd, s->other.p->program,
			 path_name(s->other.c->tx_path), path_name(s->other.c->rx_path),
			 reason_name(s->other.c->reason));
	else
		snprintf(buf, sizeof(buf),
			 "in no process that is under the library and that this user may see");
	field(r, "other end", buf);
	snprintf(buf, sizeof(buf), "sends by %s, receives by %s", path_name(c->tx_path),
		 path_name(c->rx_path));
	field(r, "now", buf);
	bytes_text(c->tx_bytes, buf, sizeof(buf));
	field(r, "sent", buf);
	bytes_text(c->rx_bytes, buf, sizeof(buf));
	field(r, "received", buf);
	show_now(r, c);
	show_so_far(r, c);
	show_policy(r, s);
	snprintf(buf, sizeof(buf), "%s: %s", reason_name(c->reason), unearned(c) && under_way(s) ?
		 "not on a fast path yet" : reason_text(c->reason));
	field(r, "reason", buf);
	fputs(tint(r, TINT_GOOD), stdout);
	field(r, "to change it", s->advice);
	fputs(tint(r, TINT_OFF), stdout);
	offer_stacks(r, s->p);
	show_history(r, s);
}

json_object *connection_json(const struct subject *s)
{
	struct conn_ref me = { s->p, s->c };
	json_object *o = json_connection(&me), *other = NULL, *paths = json_object_new_array();
	char text[256], place[320];
	int i;

	json_add(o, "reason_text", json_str(reason_text(s->c->reason)));
	json_add(o, "remedy", json_str(reason_remedy(s->c->reason)));
	json_add(o, "advice", json_str(s->advice));
	json_add(o, "policy_file", json_str(s->p->policy_file));
	json_add(o, "rule_place",
		 s->c->rule_at ? json_str(place_text(s->pol, s->p->policy_file, s->c->rule_at,
						     place, sizeof(place)))
			       : NULL);
	json_add(o, "rule_text",
		 s->c->rule_at ? json_str(place_line(s->pol, s->c->rule_at, text, sizeof(text)))
			       : NULL);
	for (i = 0; i < PATH_KINDS; i++)
		if (s->now.paths & (1u << i))
			json_object_array_add(paths, json_str(path_name((enum path_kind)i)));
	json_add(o, "permitted_paths", paths);
	json_add(o, "permitted_line", json_num((uint64_t)s->now.line));
	json_add(o, "permitted_place",
		 s->now.at ? json_str(place_text(s->pol, s->p->policy_file, s->now.at, place,
						 sizeof(place)))
			   : NULL);
	if (s->other.c) {
		other = json_object_new_object();
		json_add(other, "pid", json_num(s->other.p->pid));
		json_add(other, "fd", json_num(s->other.c->fd));
		json_add(other, "program", json_str(s->other.p->program));
		json_add(other, "reason", json_str(reason_name(s->other.c->reason)));
	}
	json_add(o, "other_end", other);
	json_add(o, "history", past_json(&s->past, s->pol, s->p->policy_file));
	return o;
}
