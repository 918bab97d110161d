/*
 * rdmastat_record.c - `rdmastat record FILE` adds a line of JSON per sample (the document of
 * rdmastat --json with "time"); `rdmastat report FILE` adds up what happened between the first
 * and the last. A record may be cut short, or not be one: every value is looked at before it is
 * used. The chart is in rdmastat_svg.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/words.h"
#include "ground/rdmastat_json.h"
#include "commands/rdmastat_record.h"
#include "ground/rdmastat_table.h"

/* ---- record ---- */

static int add_sample(const struct request *r, bool quiet, FILE *f)
{
	struct stat_list l = { 0 };
	struct timespec now;
	struct json_rows w = { f, true, false, false };
	char buf[32];
	int rc;

	rc = get_list(r, quiet, &l);
	if (rc)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(buf, sizeof(buf), "%lld.%03ld", (long long)now.tv_sec, now.tv_nsec / 1000000);
	json_rows_processes(&w, &l);
	json_rows_total(&w, &l);
	json_rows_value(&w, "time", json_object_new_double_s(strtod(buf, NULL), buf));
	json_rows_done(&w);
	stat_list_clear(&l);
	if (!fflush(f) && !ferror(f))
		return EXIT_OK;
	complain("record: cannot write: %s", strerror(errno));
	return EXIT_FAILED;
}

/* A new one is the user's alone: root's has everybody's processes in it. */
static FILE *open_record(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "a");

	if (fd >= 0 && !f)
		close(fd);
	return f;
}

int cmd_record(const struct request *asked)
{
	struct request r = *asked;
	unsigned i;
	FILE *f;
	int rc;

	if (r.words.argc != 1) {
		complain("record: name one file: rdmastat record [-w SECS] [-n N] FILE");
		return EXIT_USAGE;
	}
	r.absolute = true;
	f = !strcmp(r.words.argv[0], "-") ? stdout : open_record(r.words.argv[0]);
	if (!f) {
		complain("record: %s: %s", r.words.argv[0], strerror(errno));
		return EXIT_FAILED;
	}
	for (i = 0; ; i++) {
		rc = add_sample(&r, i > 0, f);
		if (rc || (r.count && i + 1 >= r.count))
			break;
		sleep(r.watch ? r.watch : 1);
	}
	if (f != stdout)
		fclose(f);
	return rc;
}

/* ---- reading values that may be anything ---- */

static json_object *get(json_object *o, const char *key, json_type type)
{
	json_object *v;

	return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &v) &&
			       json_object_is_type(v, type)
		       ? v
		       : NULL;
}

static uint64_t get_u64(json_object *o, const char *key)
{
	json_object *v = get(o, key, json_type_int);

	return v ? json_object_get_uint64(v) : 0;
}

static void get_bytes(json_object *o, uint64_t *out)
{
	json_object *b = get(o, "bytes", json_type_object);
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		out[i] = get_u64(b, path_name((enum path_kind)i));
}

/* ---- adding up ---- */

/* A process as the last sample had it. */
struct seen {
	uint64_t pid, start, bytes[PATH_KINDS], conns;
	size_t program;			/* index in report.prog */
};

struct reader {
	struct report *rep;
	struct seen *seen;
	size_t n, cap;
	bool failed;
};

static bool grow(void **p, size_t *cap, size_t need, size_t size)
{
	size_t to = *cap ? 2 * *cap : 64;
	void *more;

	if (need <= *cap)
		return true;
	more = realloc(*p, to * size);
	if (!more)
		return false;
	memset((char *)more + *cap * size, 0, (to - *cap) * size);
	*p = more;
	*cap = to;
	return true;
}

static size_t program_of(struct report *rep, const char *name)
{
	size_t i, k;

	for (i = 0; i < rep->progs; i++)
		if (!strncmp(rep->prog[i].name, name, sizeof(rep->prog[i].name) - 1))
			return i;
	if (!grow((void **)&rep->prog, &rep->progs_cap, rep->progs + 1, sizeof(*rep->prog)))
		return 0;
	k = strnlen(name, sizeof(rep->prog[i].name) - 1);
	memcpy(rep->prog[i].name, name, k);
	make_printable(rep->prog[i].name, k, '?', ASCII_ONLY);
	rep->progs++;
	return i;
}

static struct seen *find_seen(struct reader *rd, uint64_t pid, uint64_t start, size_t hint)
{
	size_t i;

	if (hint < rd->n && rd->seen[hint].pid == pid && rd->seen[hint].start == start)
		return &rd->seen[hint];
	for (i = 0; i < rd->n; i++)
		if (rd->seen[i].pid == pid && rd->seen[i].start == start)
			return &rd->seen[i];
	return NULL;
}

/* What came since the last sample; of a process that is new in this one, all of it; of those in
 * the first sample, nothing. */
static void add_process(struct reader *rd, json_object *o, size_t hint, bool first,
			struct sample *to)
{
	uint64_t pid = get_u64(o, "pid"), start = get_u64(o, "start_time"), b[PATH_KINDS],
		 conns = get_u64(o, "connections");
	json_object *name = get(o, "program", json_type_string);
	struct seen *s = find_seen(rd, pid, start, hint);
	struct program *prog;
	int i;

	get_bytes(o, b);
	if (!s) {
		if (!grow((void **)&rd->seen, &rd->cap, rd->n + 1, sizeof(*rd->seen))) {
			rd->failed = true;
			return;
		}
		s = &rd->seen[rd->n++];
		memset(s, 0, sizeof(*s));
		s->pid = pid;
		s->start = start;
		s->program = program_of(rd->rep, name ? json_object_get_string(name) : "?");
		if (!rd->rep->progs) {
			rd->failed = true;
			return;
		}
		rd->rep->prog[s->program].processes++;
		if (first) {
			memcpy(s->bytes, b, sizeof(b));
			s->conns = conns;
		}
	}
	prog = &rd->rep->prog[s->program];
	for (i = 0; i < PATH_KINDS; i++) {
		uint64_t d = b[i] > s->bytes[i] ? b[i] - s->bytes[i] : 0;

		prog->bytes[i] = sat_add(prog->bytes[i], d);
		to->bytes[i] = sat_add(to->bytes[i], d);
		if (b[i] > s->bytes[i])
			s->bytes[i] = b[i];
	}
	if (conns > s->conns) {
		prog->conns = sat_add(prog->conns, conns - s->conns);
		s->conns = conns;
	}
}

static bool add_line(struct reader *rd, const char *line, const char *glob)
{
	json_object *o = json_tokener_parse(line), *t, *list;
	struct report *rep = rd->rep;
	struct sample *s;
	size_t i;
	double at;

	if (!o)
		return false;
	t = get(o, "time", json_type_double);
	list = get(o, "processes", json_type_array);
	at = t ? json_object_get_double(t) : 0;
	if (!t || !list || !(at > 0 && at < 1e12) || get_u64(o, "schema") != JSON_SCHEMA ||
	    (rep->n && at < rep->sample[rep->n - 1].time)) {
		json_object_put(o);
		return false;
	}
	if (!grow((void **)&rep->sample, &rep->cap, rep->n + 1, sizeof(*rep->sample))) {
		rd->failed = true;
		json_object_put(o);
		return false;
	}
	s = &rep->sample[rep->n];
	memset(s, 0, sizeof(*s));
	s->time = at;
	for (i = 0; i < json_object_array_length(list); i++) {
		json_object *p = json_object_array_get_idx(list, i),
			    *name = get(p, "program", json_type_string);

		if (glob && !(name && glob_match(glob, strlen(glob), json_object_get_string(name))))
			continue;
		add_process(rd, p, i, !rep->n, s);
	}
	rep->n++;
	json_object_put(o);
	return true;
}

static int read_record(const char *path, const char *glob, struct report *rep)
{
	struct reader rd = { .rep = rep };
	FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	unsigned bad = 0, n = 0;

	if (!f) {
		complain("report: %s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	while (!rd.failed && getline(&line, &cap, f) > 0) {
		n++;
		if (!add_line(&rd, line, glob) && !bad++)
			complain("report: %s:%u is not a sample of rdmastat record; left out", path,
				 n);
	}
	free(line);
	free(rd.seen);
	if (f != stdin)
		fclose(f);
	if (rd.failed) {
		complain("report: out of memory");
		return EXIT_FAILED;
	}
	if (bad > 1)
		complain("report: %u lines were left out", bad);
	if (rep->n >= 2)
		return EXIT_OK;
	complain("report: %s has %zu samples; two are needed (rdmastat record %s)", path, rep->n,
		 path);
	return EXIT_FAILED;
}

/* ---- showing ---- */

enum { COL_PROGRAM, COL_PROCESSES, COL_CONNS, COL_PATHS, COL_RATE = COL_PATHS + PATH_KINDS, COL_HIT,
       COLS };
static const struct column cols[COLS] = {
	[COL_PROGRAM]	= { .key = "program", .title = "PROGRAM", .left = true, .min = 16 },
	[COL_PROCESSES] = { .key = "processes", .title = "PROCESSES", .rank = 4 },
	[COL_CONNS]	= { .key = "conns", .title = "CONNS", .rank = 5 },
#define PATH(NAME, name, far, unasked, doc) \
	[COL_PATHS + PATH_##NAME] = { .key = #name, .title = #NAME, .min = 7, \
				      .rank = PATH_##NAME != PATH_TCP && (far) ? 3 : 2 },
#include "policy/path.def"
#undef PATH
	[COL_RATE]	= { .key = "rate", .title = "MEAN/s", .rank = 1, .min = 7 },
	[COL_HIT]	= { .key = "hit", .title = "HIT-BYTES", .min = 9 },
};

static void program_line(struct table *t, const struct program *p, double secs)
{
	uint64_t all = 0;
	char b[64];
	int i;

	table_cell(t, TINT_OFF, p->name);
	snprintf(b, sizeof(b), "%zu", p->processes);
	table_cell(t, TINT_OFF, b);
	snprintf(b, sizeof(b), "%llu", (unsigned long long)p->conns);
	table_cell(t, TINT_OFF, b);
	for (i = 0; i < PATH_KINDS; i++) {
		all = sat_add(all, p->bytes[i]);
		table_cell(t, TINT_OFF, human(p->bytes[i], b, sizeof(b)));
	}
	table_cell(t, TINT_OFF, human(whole((double)all / secs), b, sizeof(b)));
	table_cell(t, tint_of_share(hit_of(p->bytes)), percent(hit_of(p->bytes), b, sizeof(b)));
}

static void sum_up(const struct report *rep, struct program *total)
{
	size_t i;
	int k;

	memset(total, 0, sizeof(*total));
	strcpy(total->name, "total");
	for (i = 0; i < rep->progs; i++) {
		total->processes += rep->prog[i].processes;
		total->conns = sat_add(total->conns, rep->prog[i].conns);
		for (k = 0; k < PATH_KINDS; k++)
			total->bytes[k] = sat_add(total->bytes[k], rep->prog[i].bytes[k]);
	}
}

static json_object *program_json(const struct program *p, double secs)
{
	json_object *o = json_object_new_object(), *b = json_object_new_object();
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		json_add(b, path_name((enum path_kind)i), json_num(p->bytes[i]));
	json_add(o, "program", json_str(p->name));
	json_add(o, "processes", json_num(p->processes));
	json_add(o, "connections", json_num(p->conns));
	json_add(o, "bytes", b);
	json_add(o, "seconds", json_object_new_double(secs));
	json_add(o, "hit_bytes", json_share(hit_of(p->bytes)));
	return o;
}

static void print_report(const struct request *r, const struct report *rep, double secs)
{
	static const uint8_t all[COLS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct program total;
	struct table *t;
	size_t i;

	sum_up(rep, &total);
	if (r->json) {
		json_object *o = json_root(), *a = json_object_new_array();

		for (i = 0; i < rep->progs; i++)
			json_object_array_add(a, program_json(&rep->prog[i], secs));
		json_add(o, "samples", json_num(rep->n));
		json_add(o, "programs", a);
		json_add(o, "total", program_json(&total, secs));
		json_print(r, o);
		return;
	}
	t = table_new(cols, all, COLS);
	for (i = 0; i < rep->progs; i++)
		program_line(t, &rep->prog[i], secs);
	program_line(t, &total, secs);
	printf("%.1f s, %zu sample%s\n", secs, rep->n, plural(rep->n));
	table_print(r, t, stdout);
	table_free(t);
}

int cmd_report(const struct request *r)
{
	struct report rep = { 0 };
	double secs;
	int rc;

	if (r->words.argc != 1) {
		complain("report: name one file, made by rdmastat record: rdmastat report [--svg "
			 "CHART] FILE");
		return EXIT_USAGE;
	}
	rc = read_record(r->words.argv[0], r->program, &rep);
	if (!rc) {
		secs = rep.sample[rep.n - 1].time - rep.sample[0].time;
		if (secs <= 0)
			secs = 1e-3;
		print_report(r, &rep, secs);
		if (r->svg)
			rc = svg_write(r->svg, &rep);
	}
	free(rep.sample);
	free(rep.prog);
	return rc;
}
