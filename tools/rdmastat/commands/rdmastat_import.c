/*
 * rdmastat_import.c - `rdmastat policy import`: a libvma.conf as a policy.
 *
 * 	application-id <program|*> <id|*>
 * 	use <vma|os> <tcp_server|tcp_client|udp_...>
 * 	<address[/len]|*>:<ports|*>[:<address|*>:<ports|*>]
 *
 * The first rule that matches decides there too; none: vma. tcp_client names the remote end
 * first, as our rules do.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "policy/rule.h"
#include "ground/rdmastat.h"
#include "commands/rdmastat_grow.h"

struct import {
	const char *name;
	int line;
	unsigned left_out;
	bool dead;			/* inside a section that cannot be expressed */
	struct text out;
};

static void __attribute__((format(printf, 2, 3))) leave_out(struct import *im, const char *fmt, ...)
{
	char buf[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	say_line(stderr, "%s:%d: %s", im->name, im->line, buf);
	im->left_out++;
}

/* Host bits behind the prefix mean nothing there and are an error here. */
static void put_end(struct text *t, const char *addr, const char *port)
{
	unsigned a, b, c, d, len;
	char tail;

	if (sscanf(addr, "%u.%u.%u.%u/%u%c", &a, &b, &c, &d, &len, &tail) == 5 && a < 256 &&
	    b < 256 && c < 256 && d < 256 && len <= 32) {
		uint32_t v = a << 24 | b << 16 | c << 8 | d, mask = len ? ~0u << (32 - len) : 0;

		v &= mask;
		putf(t, " %u.%u.%u.%u/%u:%s", v >> 24, v >> 16 & 255, v >> 8 & 255, v & 255, len,
		     port);
	} else {
		putf(t, " %s:%s", addr, port);
	}
}

static bool good_end(struct import *im, const char *addr, const char *port)
{
	struct addr_pat pat;
	struct text t = { 0 };
	char msg[256];
	size_t at;
	bool ok;

	put_end(&t, addr, port);
	ok = !t.failed && !addr_pat_parse(t.s + 1, t.len - 1, &pat, &at, msg, sizeof(msg));
	if (!ok)
		leave_out(im, "%s", t.failed ? "out of memory" : msg);
	free(t.s);
	return ok;
}

static void import_use(struct import *im, char **w, int n)
{
	char *part[4] = { 0 }, *save = NULL, *s;
	int parts = 0;
	bool vma;

	if (n < 4) {
		leave_out(im, "a use line has a transport, a role and an address");
		return;
	}
	vma = !strcmp(w[1], "vma") || !strcmp(w[1], "xlio");
	if (!vma && strcmp(w[1], "os")) {
		leave_out(im, "%.40s is neither vma nor os", w[1]);
		return;
	}
	if (!strncmp(w[2], "udp_", 4))
		return;			/* only TCP is ours */
	if (strcmp(w[2], "tcp_server") && strcmp(w[2], "tcp_client")) {
		leave_out(im, "%.40s is not a role", w[2]);
		return;
	}
	for (s = strtok_r(w[3], ":", &save); s && parts < 4; s = strtok_r(NULL, ":", &save))
		part[parts++] = s;
	if ((parts != 2 && parts != 4) || s) {
		leave_out(im, "an address is ADDRESS:PORT or ADDRESS:PORT:ADDRESS:PORT");
		return;
	}
	if (!good_end(im, part[0], part[1]) || (parts == 4 && !good_end(im, part[2], part[3])))
		return;
	putf(&im->out, "%suse %s %s", im->dead ? "#" : "", vma ? "any" : "tcp", w[2] + 4);
	put_end(&im->out, part[0], part[1]);
	if (parts == 4)
		put_end(&im->out, part[2], part[3]);
	put(&im->out, "\n", 1);
}

static void import_section(struct import *im, char **w, int n)
{
	const char *program = n > 1 ? w[1] : "*", *id = n > 2 ? w[2] : "*";

	im->dead = strcmp(id, "*") != 0;
	if (strpbrk(program, "[/") || strlen(program) > 255) {
		leave_out(im, "%.40s: patterns have * and ? only", program);
		im->dead = true;
		program = "*";
	}
	if (im->dead) {
		leave_out(im,
			  "rules for the id %.40s cannot be told apart by program: left as "
			  "comments; write them to a file of their own, named by RDMASHIM_CONF",
			  id);
		putf(&im->out, "\n# id %.100s\n#program %.200s\n", id, program);
	} else {
		putf(&im->out, "\nprogram %s\n", program);
	}
}

static void import_line(struct import *im, char *line)
{
	char *w[8], *save = NULL, *s;
	int n = 0;

	line[strcspn(line, "#\n")] = '\0';
	for (s = line; *s; s++)
		if ((unsigned char)*s > 0x7e ||
		    ((unsigned char)*s < 0x20 && *s != '\t' && *s != '\r')) {
			leave_out(im, "this line has bytes that are no text");
			return;
		}
	for (s = strtok_r(line, " \t\r", &save); s && n < 8; s = strtok_r(NULL, " \t\r", &save))
		w[n++] = s;
	/* cppcheck-suppress uninitvar; n of them are set */
	if (!n || !strcmp(w[0], "log"))
		return;
	if (!strcmp(w[0], "application-id"))
		import_section(im, w, n);
	else if (!strcmp(w[0], "use"))
		import_use(im, w, n);
	else
		leave_out(im, "%.40s is no statement of libvma.conf", w[0]);
}

int policy_import(int argc, char **argv)
{
	struct import im = { 0 };
	struct policy_error err;
	struct policy *p = NULL;
	char *line = NULL;
	size_t cap = 0;
	FILE *f;
	int rc = EXIT_OK;

	if (argc > 2 || (argc == 2 && argv[1][0] == '-' && argv[1][1])) {
		complain("policy import: write rdmastat policy import [FILE] > POLICY");
		return EXIT_USAGE;
	}
	im.name = argc == 2 ? argv[1] : "/etc/libvma.conf";
	f = !strcmp(im.name, "-") ? stdin : fopen(im.name, "re");
	if (!f) {
		complain("policy import: %s: %s", im.name, strerror(errno));
		return EXIT_FAILED;
	}
	putf(&im.out, "# From %.200s by rdmastat policy import. vma: any path; os: tcp.\nmode on\n",
	     strpbrk(im.name, "\r\n") ? "a file" : im.name);
	while (getline(&line, &cap, f) > 0 && im.out.len < FILE_MAX_BYTES) {
		im.line++;
		import_line(&im, line);
	}
	putf(&im.out, "\n# Where no rule matched, libvma took the connection:\nprogram *\nuse any "
		      "both *:*\n");
	if (ferror(f) || im.out.failed || policy_parse(im.out.s, im.out.len, im.name, &p, &err)) {
		complain("policy import: %s cannot be read, or makes no policy", im.name);
		rc = EXIT_FAILED;
	} else {
		fwrite(im.out.s, 1, im.out.len, stdout);
		if (im.left_out)
			complain("policy import: %u lines were not carried over, see above",
				 im.left_out);
	}
	policy_free(p);
	if (f != stdin)
		fclose(f);
	free(line);
	free(im.out.s);
	return rc;
}
