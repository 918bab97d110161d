/*
 * report.c - any bytes as what `rdmastat record` has written, read by `rdmastat report`. The
 * first byte says how: 1 as JSON, 2 with a chart, 4 of one program only. What is printed is
 * printable; JSON can be read again; the chart is well-formed and has numbers that are some.
 *
 * LINK: tools/rdmastat/commands/rdmastat_record.c tools/rdmastat/commands/rdmastat_svg.c
 * LINK: tools/rdmastat/ground/rdmastat_json.c tools/rdmastat/ground/rdmastat_table.c
 * LINK: tools/rdmastat/ground/rdmastat_text.c
 * LIBS: -ljson-c -lm
 */
#include <sys/mman.h>
#include <unistd.h>

#include "tool.h"
#include "ground/rdmastat_json.h"

/* What the rest of that file wants. */
int get_list(const struct request *r, bool quiet, struct stat_list *ret)
{
	(void)r, (void)quiet, (void)ret;
	abort();
}

void stat_list_clear(struct stat_list *l)
{
	(void)l;
	abort();
}

static int chart = -1;
static char chart_name[40];

/* A tag begins and ends, and no other has begun meanwhile. */
static void look_at_chart(void)
{
	static char text[1 << 20];
	ssize_t n = pread(chart, text, sizeof(text) - 1, 0);
	bool inside = false;

	if (n <= 0)
		abort();
	text[n] = '\0';
	printable(text, (size_t)n);
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '<' || text[i] == '>') {
			if (inside == (text[i] == '<'))
				abort();
			inside = !inside;
		}
	if (inside || strstr(text, "nan") || strstr(text, "inf"))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char name[] = "-", *word = name, glob[] = "w*";
	struct request r = { .words = { 1, &word } };
	json_object *o;
	int rc;

	if (!n)
		return 0;
	if (chart < 0) {
		chart = memfd_create("chart", MFD_CLOEXEC);
		snprintf(chart_name, sizeof(chart_name), "/proc/self/fd/%d", chart);
	}
	r.json = data[0] & 1;
	r.svg = data[0] & 2 ? chart_name : NULL;
	r.program = data[0] & 4 ? glob : NULL;
	streams_open(data + 1, n - 1);
	rc = cmd_report(&r);
	streams_close();
	printable(said, said_len);
	if (rc == EXIT_OK && r.json) {
		o = json_tokener_parse(said);
		if (!o)
			abort();
		json_object_put(o);
	}
	if (rc == EXIT_OK && r.svg)
		look_at_chart();
	free(said);
	return 0;
}
