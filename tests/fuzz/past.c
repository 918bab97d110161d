/*
 * past.c - any bytes as the histories in a counter file, as `rdmastat why` shows them: what a
 * connection went through, as text and as JSON, which can be read again, with as many events as
 * were read.
 *
 * LINK: tools/rdmastat/ground/statfile.c tools/rdmastat/ground/statfile_list.c
 * LINK: tools/rdmastat/ground/statfile_dir.c tools/rdmastat/ground/statfile_mounts.c
 * LINK: tools/rdmastat/ground/statfile_user.c tools/rdmastat/ground/rdmastat_past.c
 * LINK: tools/rdmastat/ground/rdmastat_place.c tools/rdmastat/ground/rdmastat_json.c
 * LINK: tools/rdmastat/ground/rdmastat_text.c tools/rdmastat/ground/rdmastat_table.c
 * LIBS: -ljson-c -lm
 */
#include "counter.h"
#include "tool.h"
#include "ground/rdmastat_past.h"

#define GEN 2			/* of counter.h's rows */

/* Events of these connections in their places, to be laid over: else few would be shown. */
static void tell(void)
{
	for (size_t row = 0; row < ROWS; row++) {
		struct stat_history h = { .next = (uint32_t)row * 4 };

		for (uint32_t n = 0; n < h.next; n++) {
			struct stat_event *e = &h.event[stat_event_place(n)];

			e->what = STAT_EVENT_WHAT(GEN, n, n % REASON_COUNT,
						  1 + n % (EVENT_COUNT - 1));
			e->when = 1700000000000000ull + n;
			e->arg = n;
		}
		memcpy(right + HISTORIES + row * sizeof(h), &h, sizeof(h));
	}
	memcpy(map, right, SIZE);
}

static void show(const struct stat_past *past, size_t left)
{
	char buf[512], clock[32];
	json_object *o = past_json(past, NULL, "/etc/rdmashim.conf"), *back;
	const char *text;

	if (past->n > STAT_EVENTS || past->n < left)
		abort();
	for (size_t i = 0; i < past->n; i++) {
		if (past->at[i].kind >= EVENT_COUNT || past->at[i].reason >= REASON_COUNT)
			abort();
		text = past_text(&past->at[i], NULL, "/etc/rdmashim.conf", buf, sizeof(buf));
		printable(text, strlen(text));
		text = past_time(&past->at[i], clock, sizeof(clock));
		printable(text, strlen(text));
	}
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	back = json_tokener_parse(text);
	if (!back || json_object_array_length(back) != past->n)
		abort();
	json_object_put(back);
	json_object_put(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char name[sizeof(dir) + 8];
	struct stat_proc p;
	struct stat_past past;
	int rc;

	if (file < 0) {
		start();
		tell();
		snprintf(name, sizeof(name), "%s/4242", dir);
	}
	rc = statfile_read(dirfd_, "4242", geteuid(), &p);
	if (rc || p.nconns != ROWS)
		abort();
	p.file = name;
	lay_over(data, n, HISTORIES, SIZE);
	for (size_t i = 0; i < p.nconns; i++) {
		rc = statfile_history(&p, &p.conns[i], &past);
		if (!rc)
			show(&past, n ? 0 : (i * 4 < STAT_EVENTS ? i * 4 : STAT_EVENTS));
		else if (!n)
			abort();	/* not of this version: mend this target */
	}
	p.file = NULL;
	stat_proc_clear(&p);
	mend(SIZE);
	return 0;
}
