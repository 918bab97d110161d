/*
 * rdmastat_bundle.c - `rdmastat bundle`: what a report of a fault needs, as one text: the output of
 * this program's own commands, and what the system says of itself. No payload and no key is ever
 * read for it. Addresses and names of hosts become numbers (rdmastat_hide.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/words.h"
#include "ground/rdmastat.h"
#include "ground/rdmastat_hide.h"

#define SECTION_S 120		/* for one command */

static const char *const sections[][6] = {
	{ "--version" },
	{ "doctor" },
	{ "overview", "-o", "all" },
	{ "link", "-o", "all" },
	{ "conn", "-o", "all" },
	{ "calls" },
	{ "dev" },
	{ "qp", "-o", "all" },
	{ "mr" },
	{ "staging" },
	{ "policy", "show" },
	{ "policy", "check" },
};

static const char *const files[] = {
	"/etc/os-release", "/proc/version", "/proc/meminfo", "/proc/self/limits",
	"/proc/self/cgroup", "/proc/sys/kernel/yama/ptrace_scope",
		"/proc/sys/net/ipv4/tcp_timestamps",
	"/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max",
};

static struct {
	bool keep;			/* addresses are wanted */
	FILE *to;
} out;

static void put_all(FILE *f)
{
	size_t cap = 0;
	char *line = NULL;
	ssize_t n;

	while ((n = getline(&line, &cap, f)) > 0) {
		make_printable(line, (size_t)n - (line[n - 1] == '\n'), '?', KEEP_UTF8);
		if (out.keep)
			fputs(line, out.to);
		else
			hide_line(out.to, line);
	}
	free(line);
}

/* ---- sections ---- */

static void put_command(const char *const *words)
{
	const char *argv[8] = { "rdmastat" };
	int fd[2], status, n;
	pid_t pid;
	FILE *f;

	fprintf(out.to, "\n==== rdmastat");
	for (n = 0; n < 6 && words[n]; n++) {
		argv[n + 1] = words[n];
		fprintf(out.to, " %s", words[n]);
	}
	fputs("\n", out.to);
	fflush(out.to);
	if (pipe2(fd, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid) {
		alarm(SECTION_S);
		dup2(fd[1], STDOUT_FILENO);
		dup2(fd[1], STDERR_FILENO);
		execv("/proc/self/exe", (char **)argv);
		_exit(127);
	}
	close(fd[1]);
	f = fdopen(fd[0], "r");
	if (f) {
		put_all(f);
		fclose(f);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid)
		fprintf(out.to, WIFEXITED(status) ? "---- status %d\n" : "---- signal %d\n",
			WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static void put_file(const char *path)
{
	FILE *f = fopen(path, "re");

	fprintf(out.to, "\n==== %s\n", path);
	if (!f) {
		fprintf(out.to, "%s\n", strerror(errno));
		return;
	}
	put_all(f);
	fclose(f);
}

/* ---- the command ---- */

/* Its user alone may read it, and nothing is replaced. */
static FILE *create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f)
		complain("bundle: %s: %s%s", path, strerror(errno),
			 errno == EEXIST ? "; name another" : "");
	return f;
}

int cmd_bundle(const struct request *r)
{
	struct utsname u;
	size_t i;
	int rc;

	out.keep = r->addresses;
	out.to = r->output ? create(r->output) : stdout;
	if (!out.to || uname(&u) || hide_start(u.nodename))
		return EXIT_FAILED;
	setenv("NO_COLOR", "1", 1);
	fprintf(out.to,
		"rdmastat bundle: no payload, no keys, addresses and hosts %s; names of programs, "
		"files and users as they are: read it before you pass it on\n",
		out.keep ? "as they are" : "as numbers");
	fprintf(out.to, "\n==== system\n%s %s %s\n", u.sysname, u.release, u.machine);
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		put_file(files[i]);
	for (i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		if (r->output)
			fprintf(stderr, "\r%zu of %zu", i + 1,
				sizeof(sections) / sizeof(sections[0]));
		put_command(sections[i]);
	}
	rc = fflush(out.to) || ferror(out.to) ? EXIT_FAILED : EXIT_OK;
	if (r->output) {
		fputs("\n", stderr);
		rc = fclose(out.to) ? EXIT_FAILED : rc;
		if (rc)
			complain("bundle: cannot write %s: %s", r->output, strerror(errno));
	}
	hide_end();
	return rc;
}
