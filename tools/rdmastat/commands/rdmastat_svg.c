/*
 * rdmastat_svg.c - the chart of `rdmastat report --svg`: bytes per second by path as stacked
 * areas above, the share that left TCP as a line below. At most POINTS points are drawn, each
 * the mean of its share of the samples.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/rdmastat_record.h"

#define POINTS 400
#define LEFT 70.0
#define WIDTH 700.0
#define TOP 40.0
#define HEIGHT 200.0
#define HIT_TOP 280.0
#define HIT_HEIGHT 80.0

struct point {
	double t0, t1, rate[PATH_KINDS], hit;	/* hit below 0: nothing moved */
};

static const char *color_of(int path)
{
	static const char *const colors[] = { "#d98c3f", "#3f7fd9", "#4fae62", "#9b59b6" };

	return colors[path < 4 ? path : 3];
}

static size_t make_points(const struct report *rep, struct point *pt)
{
	size_t intervals = rep->n - 1, n = intervals < POINTS ? intervals : POINTS, i, k;
	int p;

	for (i = 0; i < n; i++) {
		size_t from = i * intervals / n, to = (i + 1) * intervals / n;
		uint64_t b[PATH_KINDS] = { 0 };
		double secs;

		for (k = from; k < to; k++)
			for (p = 0; p < PATH_KINDS; p++)
				b[p] = sat_add(b[p], rep->sample[k + 1].bytes[p]);
		pt[i].t0 = rep->sample[from].time - rep->sample[0].time;
		pt[i].t1 = rep->sample[to].time - rep->sample[0].time;
		secs = pt[i].t1 - pt[i].t0;
		if (secs < 1e-3)
			secs = 1e-3;
		for (p = 0; p < PATH_KINDS; p++)
			pt[i].rate[p] = (double)b[p] / secs;
		pt[i].hit = hit_of(b);
	}
	return n;
}

/* A round number at or above v: of bytes, or with unit 10 of seconds. */
static double nice(double v, double unit)
{
	static const double steps[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1024 };
	double base = 1, m;
	size_t i;

	while (base * unit <= v && base < 1e18)
		base *= unit;
	m = v / base;
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (m <= steps[i])
			return fmin(steps[i], unit) * base;
	return unit * base;
}

static void text(FILE *f, double x, double y, const char *anchor, const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s);
}

static void grid(FILE *f, double top, double height, int lines, double max, bool share, double secs)
{
	double step = secs < 5 ? secs / 5 : nice(secs / 10, 10), t;
	char b[32], h[16];
	int i;

	for (i = 0; i <= lines; i++) {
		double y = top + height - height * i / lines;

		fprintf(f,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
			LEFT, y, LEFT + WIDTH, y);
		if (share)
			snprintf(b, sizeof(b), "%.0f%%", max * 100 * i / lines);
		else
			snprintf(b, sizeof(b), "%s/s", human(whole(max * i / lines), h, sizeof(h)));
		text(f, LEFT - 6, y + 4, "end", b);
	}
	for (t = 0; t <= secs * 1.001; t += step) {
		snprintf(b, sizeof(b), "%.*f s", secs < 5 ? 2 : 0, t);
		text(f, LEFT + WIDTH * t / secs, top + height + 16, "middle", b);
	}
}

static void areas(FILE *f, const struct point *pt, size_t n, double max, double secs)
{
	double low, high;
	size_t i;
	int p, k;

	for (p = 0; p < PATH_KINDS; p++) {
		fprintf(f, "<path fill=\"%s\" stroke=\"none\" d=\"", color_of(p));
		for (i = 0; i < n; i++) {
			for (k = 0, low = 0; k < p; k++)
				low += pt[i].rate[k];
			high = low + pt[i].rate[p];
			if (high > low)
				fprintf(f, "M%.1f %.1fH%.1fV%.1fH%.1fz",
					LEFT + WIDTH * pt[i].t0 / secs,
					TOP + HEIGHT - HEIGHT * low / max,
					LEFT + WIDTH * pt[i].t1 / secs,
					TOP + HEIGHT - HEIGHT * high / max,
					LEFT + WIDTH * pt[i].t0 / secs);
		}
		fprintf(f, "\"/>\n");
	}
}

static void hit_line(FILE *f, const struct point *pt, size_t n, double secs)
{
	bool pen = false;
	size_t i;

	fprintf(f, "<path fill=\"none\" stroke=\"#333\" stroke-width=\"1.5\" d=\"");
	for (i = 0; i < n; i++) {
		double y = HIT_TOP + HIT_HEIGHT - HIT_HEIGHT * pt[i].hit;

		if (pt[i].hit >= 0)
			fprintf(f, "%c%.1f %.1fH%.1f", pen ? 'L' : 'M',
				LEFT + WIDTH * pt[i].t0 / secs, y, LEFT + WIDTH * pt[i].t1 / secs);
		pen = pt[i].hit >= 0;
	}
	fprintf(f, "\"/>\n");
}

static void draw(FILE *f, const struct report *rep, const struct point *pt, size_t n)
{
	double secs = pt[n - 1].t1 > 0 ? pt[n - 1].t1 : 1e-3, max = 1, sum;
	size_t i;
	int p, lines;

	for (i = 0; i < n; i++) {
		for (p = 0, sum = 0; p < PATH_KINDS; p++)
			sum += pt[i].rate[p];
		if (sum > max)
			max = sum;
	}
	lines = (int)ceil(max / nice(max / 4, 1024));
	max = lines * nice(max / 4, 1024);
	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 400\" "
		   "font-family=\"sans-serif\" font-size=\"11\">\n"
		   "<rect width=\"800\" height=\"400\" fill=\"white\"/>\n");
	text(f, LEFT, 20, "start", "Bytes per second, both directions, by path");
	text(f, LEFT, HIT_TOP - 8, "start", "Share of the bytes that left TCP");
	for (p = 0; p < PATH_KINDS; p++) {
		fprintf(f, "<rect x=\"%d\" y=\"10\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
			560 + 70 * p, color_of(p));
		text(f, 576 + 70 * p, 20, "start", path_name((enum path_kind)p));
	}
	areas(f, pt, n, max, secs);
	grid(f, TOP, HEIGHT, lines, max, false, secs);
	grid(f, HIT_TOP, HIT_HEIGHT, 2, 1, true, secs);
	hit_line(f, pt, n, secs);
	fprintf(f, "<desc>%zu samples</desc>\n</svg>\n", rep->n);
}

int svg_write(const char *path, const struct report *rep)
{
	struct point *pt = calloc(POINTS, sizeof(*pt));
	FILE *f = pt ? fopen(path, "we") : NULL;
	bool ok = f != NULL;

	if (ok)
		draw(f, rep, pt, make_points(rep, pt));
	if (f && (fflush(f) || ferror(f)))
		ok = false;
	if (!ok)
		complain("report: cannot write %s: %s", path, strerror(errno));
	if (f && fclose(f))
		ok = false;
	free(pt);
	return ok ? EXIT_OK : EXIT_FAILED;
}
