/*
 * rdmastat_staging.c - rdmastat staging: the places from which programs copy between host and
 * device memory, how much of it went by device memory, and why the rest did not.
 */
#include <stdio.h>
#include <stdlib.h>

#include "policy/renamed.h"
#include "ground/rdmastat.h"
#include "ground/rdmastat_json.h"

struct site_ref {
	const struct stat_proc *p;
	const struct stat_copies *c;
};

static int most_bytes(const void *a, const void *b)
{
	const struct site_ref *x = a, *y = b;

	return (x->c->bytes < y->c->bytes) - (x->c->bytes > y->c->bytes);
}

static double share(uint64_t part, uint64_t whole)
{
	return !whole ? -1 : part >= whole ? 1 : (double)part / (double)whole;
}

/* Its reasons by bytes, most first. */
static size_t reasons_of(const struct stat_copies *c, enum reason *out)
{
	size_t n = 0;

	for (int i = 0; i < REASON_COUNT; i++) {
		size_t at = n;

		if (!c->why[i])
			continue;
		for (n++; at && c->why[out[at - 1]] < c->why[i]; at--)
			out[at] = out[at - 1];
		out[at] = (enum reason)i;
	}
	return n;
}

static const char *gpu_path_of(const struct stat_copies *c)
{
	static const char *const paths[] = { "host", "eager", "lazy" };

	return c->gpu_path < 3 ? paths[c->gpu_path] : "?";
}

static json_object *json_site(const struct site_ref *s)
{
	json_object *o = json_object_new_object(), *list = json_object_new_array();
	enum reason why[REASON_COUNT];
	size_t n = reasons_of(s->c, why);
	char at[40];

	json_add(o, "pid", json_num(s->p->pid));
	json_add(o, "program", json_str(s->p->program));
	json_add(o, "direction", json_str(s->c->rx ? "to-device" : "to-host"));
	json_add(o, "call_site", json_str(s->c->where));
	json_add(o, "gpu_path", json_str(gpu_path_of(s->c)));
	json_add(o, "lane", json_str(former_name("device", gpu_path_of(s->c))));
	json_add(o, "copies", json_num(s->c->copies));
	json_add(o, "bytes", json_num(s->c->bytes));
	json_add(o, "taken", json_num(s->c->taken));
	json_add(o, "share", json_share(share(s->c->taken, s->c->bytes)));
	snprintf(at, sizeof(at), "0x%llx-0x%llx", (unsigned long long)s->c->lo,
		 (unsigned long long)s->c->hi);
	json_add(o, "last_range", json_str(at));
	for (size_t i = 0; i < n; i++) {
		json_object *w = json_object_new_object();

		json_add(w, "reason", json_str(reason_name(why[i])));
		json_add(w, "text", json_str(reason_text(why[i])));
		json_add(w, "remedy", json_str(reason_remedy(why[i])));
		json_add(w, "bytes", json_num(s->c->why[why[i]]));
		json_object_array_add(list, w);
	}
	json_add(o, "why_not", list);
	return o;
}

static void print_site(const struct request *r, const struct site_ref *s)
{
	enum reason why[REASON_COUNT];
	size_t n = reasons_of(s->c, why);
	char bytes[16], part[16], first[64];

	printf("%8u %-15.15s %-9s %8s %9llu %6s %-8s %s\n", s->p->pid, s->p->program,
	       s->c->rx ? "to-device" : "to-host", human(s->c->bytes, bytes, sizeof(bytes)),
	       (unsigned long long)s->c->copies,
	       percent(share(s->c->taken, s->c->bytes), part, sizeof(part)), gpu_path_of(s->c),
	       s->c->where);
	printf("%35s last range 0x%llx-0x%llx\n", "", (unsigned long long)s->c->lo,
	       (unsigned long long)s->c->hi);
	for (size_t i = 0; i < n; i++) {
		snprintf(first, sizeof(first), "%35s %6s %s: ", "",
			 percent(share(s->c->why[why[i]], s->c->bytes), part, sizeof(part)),
			 reason_name(why[i]));
		print_wrapped(stdout, first, 44, reason_text(why[i]), r->width);
	}
}

static int staging_json(const struct request *r, const struct site_ref *s, size_t n)
{
	struct json_rows w = { stdout, r->watch, false, false };

	json_rows_begin(&w, "staging");
	for (size_t i = 0; i < n; i++)
		json_rows_add(&w, json_site(&s[i]));
	json_rows_end(&w);
	json_rows_done(&w);
	return EXIT_OK;
}

int show_staging(const struct request *r, const struct stat_list *l)
{
	struct site_ref *s;
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += l->proc[i].ncall_sites;
	s = calloc(n + 1, sizeof(*s));
	n = 0;
	if (!s) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->proc[i].ncall_sites; k++)
			s[n++] = (struct site_ref){ &l->proc[i], &l->proc[i].sites[k] };
	qsort(s, n, sizeof(*s), most_bytes);
	if (r->json) {
		staging_json(r, s, n);
	} else if (!n) {
		print_wrapped(stdout, "", 0,
			      "No copies between device and host memory were seen. They are looked "
			      "at in programs that use CUDA, from the first connection on a fast "
			      "path "
			      "on, unless the policy file says `device off`.",
			      r->width);
	} else {
		printf("%8s %-15s %-9s %8s %9s %6s %-8s %s\n", "PID", "PROGRAM", "WAY", "BYTES",
		       "COPIES", "SHARE", "GPU-PATH", "CALL-SITE");
		for (size_t i = 0; i < n; i++)
			print_site(r, &s[i]);
	}
	free(s);
	return EXIT_OK;
}
