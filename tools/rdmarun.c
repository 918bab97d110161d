/*
 * rdmarun.c - starts a program under the library: finds librdmashim.so, adds it to LD_PRELOAD,
 * sets the policy and the memlock limit. Without --stat and --bench it becomes the program
 * (exec). With them it waits, passes signals on, and says at the end what left TCP, or how long
 * the program took with and without.
 *
 * Exit status: the program's; 128 + N if signal N ended it; 125 our own trouble, 126 not
 * executable, 127 not found.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../policy/places.h"
#include "../policy/words.h"
#include "findlib.h"
#include "interp.h"
#include "ground/rdmastat.h"

enum { OWN_TROUBLE = 125, NOT_EXECUTABLE, NOT_FOUND };
enum { O_POLICY, O_STAT, O_OFF, O_BENCH, O_COUNT, O_LIB, O_HELP, O_VERSION, O_ALL };
static const struct opt options[O_ALL] = {
	[O_POLICY]  = { 'p', "policy", "FILE", "this policy file instead of the one in use" },
	[O_STAT]    = { 's', "stat", NULL,
			"at the end say what left TCP, and why the rest did not" },
	[O_OFF]	    = { 'o', "off", NULL, "load the library, but switched off (RDMASHIM=off)" },
	[O_BENCH]   = { 'b', "bench", NULL,
			"run without the library and with it, in turn, and say how the times "
				"compare" },
	[O_COUNT]   = { 'n', "count", "N", "with --bench: N times each (3)" },
	[O_LIB]	    = { 'l', "lib", "FILE", "this librdmashim.so instead of the installed one" },
	[O_HELP]    = { 'h', "help", NULL, "print this text" },
	[O_VERSION] = { 'V', "version", NULL, "print the version" },
};

struct job {
	const char *policy;
	bool stat, off, bench;
	unsigned count;
	char lib[PATH_MAX];
	char **argv;
};

void complain(const char *fmt, ...)
{
	va_list ap;

	fputs("rdmarun: ", stderr);
	va_start(ap, fmt);
	print_foreign(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* ---- options: the same forms as rdmastat's; everything from the program's name on is the
 * program's ---- */

static int take_option(struct job *j, int *i, char **argv)
{
	const char *w = argv[*i], *inside = NULL, *names[O_ALL], *v;
	size_t len = strcspn(w, "=");
	int o;

	for (o = 0; o < O_ALL; o++) {
		names[o] = options[o].name;
		if (w[1] == '-' ? strlen(options[o].name) == len - 2 &&
					  !strncmp(options[o].name, w + 2, len - 2)
				: options[o].letter == w[1])
			break;
	}
	if (o == O_ALL) {
		v = len > 2 ? suggest_word(w + 2, len - 2, names, O_ALL) : NULL;
		complain("unknown option %s; %s%s", w,
			 v ? "did you mean --" : "rdmarun --help lists them", v ? v : "");
		return -1;
	}
	inside = w[1] == '-' ? (w[len] ? w + len + 1 : NULL) : w[2] ? w + 2 : NULL;
	if (!options[o].arg && inside) {
		complain("%s: --%s takes no value; give options one by one", w, options[o].name);
		return -1;
	}
	v = inside;
	if (options[o].arg && !v && !(v = argv[++*i])) {
		complain("%s needs a value: --%s %s", w, options[o].name, options[o].arg);
		return -1;
	}
	switch (o) {
	case O_POLICY:	j->policy = v; break;
	case O_STAT:	j->stat = true; break;
	case O_OFF:	j->off = true; break;
	case O_BENCH:	j->bench = true; break;
	case O_LIB:	setenv("RDMASHIM_LIB", v, 1); break;
	case O_COUNT: {
		uint64_t n;
		bool over;
		size_t digits = parse_digits(v, strlen(v), &n, &over);

		if (!digits || v[digits] || over || n < 1 || n > 1000) {
			complain("--count: %s is not a whole number from 1 to 1000", v);
			return -1;
		}
		j->count = (unsigned)n;
		break;
	}
	}
	return o;
}

static void usage(void)
{
	char buf[64];
	int i;

	puts("usage: rdmarun [OPTIONS] [--] PROGRAM [ARGUMENTS]\n\nRuns a program with its TCP "
	     "connections on fast paths where that is possible.\n\nOptions:");
	for (i = 0; i < O_ALL; i++) {
		snprintf(buf, sizeof(buf), "--%s%s%s", options[i].name, options[i].arg ? " " : "",
			 options[i].arg ? options[i].arg : "");
		printf("  -%c, %-16s %s\n", options[i].letter, buf, options[i].help);
	}
}

/* By who started us, whatever our options say. */
static bool switched_off(void)
{
	return policy_switched_off();
}

/* Returns -1 to go on, else an exit code. */
static int read_line(struct job *j, int argc, char **argv)
{
	int i, o;

	for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		o = take_option(j, &i, argv);
		if (o < 0)
			return OWN_TROUBLE;
		if (o == O_HELP) {
			usage();
			return fflush(stdout) ? OWN_TROUBLE : 0;
		}
		if (o == O_VERSION) {
			printf("rdmarun %s\n", rdmashim_version);
			return fflush(stdout) ? OWN_TROUBLE : 0;
		}
	}
	j->argv = argv + i;
	if (i >= argc) {
		complain("name a program: rdmarun [OPTIONS] -- PROGRAM [ARGUMENTS]");
		return OWN_TROUBLE;
	}
	if (j->bench && (j->off || switched_off())) {
		complain(j->off ? "--bench and --off together compare nothing"
				: "RDMASHIM=%s is set, so --bench would compare nothing: unset "
				  "RDMASHIM",
			 getenv("RDMASHIM"));
		return OWN_TROUBLE;
	}
	return -1;
}

/* ---- the environment ---- */

static bool check_policy(const struct job *j)
{
	struct policy_error err;
	struct policy *p;
	char real[PATH_MAX], text[POLICY_ERROR_TEXT];
	int rc;

	if (!j->policy)
		return true;
	rc = policy_load(j->policy, &p, &err);
	if (rc) {
		complain("%s", policy_error_text(&err, text, sizeof(text)));
		return false;
	}
	policy_free(p);
	/* the program may change its directory before the library reads the file again */
	return realpath(j->policy, real) && !setenv("RDMASHIM_CONF", real, 1);
}

/* As much locked memory as we are allowed: RDMA needs it, and costs nothing where it is not
 * used. */
static void raise_memlock(void)
{
	struct rlimit l;

	if (!getrlimit(RLIMIT_MEMLOCK, &l) && l.rlim_cur != l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_MEMLOCK, &l);
	}
}

static bool set_environment(struct job *j)
{
	char *preload;

	if (!find_library(j->lib, sizeof(j->lib))) {
		complain("%s; make install, or name librdmashim.so with --lib FILE",
			 library_missing());
		return false;
	}
	if (!check_policy(j))
		return false;
	preload = preload_with(j->lib);
	if (!preload || setenv("LD_PRELOAD", preload, 1) ||
	    (j->off && setenv("RDMASHIM", "off", 1))) {
		complain("out of memory");
		return false;
	}
	free(preload);
	raise_memlock();
	return true;
}

/* For the run without the library: whatever else is preloaded stays. */
static bool leave_it_out(void)
{
	char *preload = preload_without();

	if (preload && !(*preload ? setenv("LD_PRELOAD", preload, 1) : unsetenv("LD_PRELOAD")))
		return true;
	complain("out of memory");
	return false;
}

static int exec_it(char **argv)
{
	char linker[PATH_MAX];
	int error;

	if (program_of_musl(argv[0], linker, sizeof(linker))) {
		complain("%s has musl's linker, %s, which would end it over a library of glibc: it "
			 "runs without", argv[0], linker);
		if (!leave_it_out())
			return OWN_TROUBLE;
	}
	if (program_is_static(argv[0]))
		complain("%s is static, so no library comes into it: it runs without; what it "
			 "starts may have it. (A program of Go can be built with cgo: docs/go.md)",
			 argv[0]);
	execvp(argv[0], argv);
	error = errno;
	complain("%s: %s", argv[0], strerror(error));
	return error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
}

/* ---- waiting for a child ---- */

static volatile sig_atomic_t child;

/* What a terminal sends goes to the child anyway; what somebody sends to us alone is passed on. */
static void pass_on(int sig, siginfo_t *info, void *ctx)
{
	(void)ctx;
	if (child > 0 && info->si_code <= 0)
		kill((pid_t)child, sig);
}

static void catch_signals(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };
	struct sigaction sa = { .sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART };
	size_t i;

	for (i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		struct sigaction old;

		/* nohup: ignored by the program, too */
		if (!sigaction(sigs[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(sigs[i], &sa, NULL);
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Runs the program; returns its exit code, as a shell would say it. */
static int run_child(const struct job *j, bool with)
{
	sigset_t all, old;
	int status;
	pid_t pid;

	fflush(NULL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);	/* a signal between fork and `child =` would be
						 * lost */
	pid = fork();
	if (!pid) {
		int sig;

		for (sig = 1; sig < 32; sig++)
			if (sig != SIGKILL && sig != SIGSTOP) {
				struct sigaction sa;

				if (!sigaction(sig, NULL, &sa) && sa.sa_sigaction == pass_on)
					signal(sig, SIG_DFL);
			}
		sigprocmask(SIG_SETMASK, &old, NULL);
		if (!with && !leave_it_out())
			_exit(OWN_TROUBLE);
		_exit(exec_it(j->argv));
	}
	child = pid;
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0) {
		complain("fork: %s", strerror(errno));
		return OWN_TROUBLE;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return OWN_TROUBLE;
	child = 0;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- --stat: counters in a directory of their own, below the usual one, so that rdmastat sees
 * them too ---- */

static bool make_stat_dir(char *dir, size_t len)
{
	char base[PATH_MAX - 32];
	int fd = stat_dir_open(geteuid(), true, base, sizeof(base));

	if (fd >= 0)
		close(fd);
	if (fd < 0) {
		complain("%s is not a directory of ours with mode 0700: no counters", base);
		return false;
	}
	snprintf(dir, len, "%s/run.%d", base, getpid());
	if (mkdir(dir, 0700) && errno != EEXIST) {
		complain("%s: %s", dir, strerror(errno));
		return false;
	}
	return !setenv("RDMASHIM_STAT_DIR", dir, 1);
}

/* On a terminal lines are broken at words. */
static void say(const char *first, const char *text)
{
	struct winsize w;
	int width = isatty(STDERR_FILENO) && !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) ? w.ws_col : 0;

	print_wrapped(stderr, first, (int)strlen(first), text, width);
}

static void summary_line(const char *name, size_t n, const struct sums *s)
{
	char all[16], bytes[16], conns[16], buf[512];
	uint64_t sum = 0;

	for (int i = 0; i < PATH_KINDS; i++)
		sum = sat_add(sum, s->bytes[i]);
	human(sum, all, sizeof(all));
	snprintf(buf, sizeof(buf),
		 "%.128s (%zu process%s): left TCP: %s of %s bytes, %s of %llu connections; %llu "
		 "cuts, %llu rewinds",
		 name, n, n == 1 ? "" : "es", percent(hit_bytes(s), bytes, sizeof(bytes)), all,
		 percent(hit_conns(s), conns, sizeof(conns)), (unsigned long long)s->conns,
		 (unsigned long long)s->counter[STAT_cuts],
		 (unsigned long long)s->counter[STAT_rewinds]);
	say("rdmarun: ", buf);
}

static void print_summary(const struct job *j, const char *dir)
{
	struct stat_list l = { 0 };
	struct sums total = { 0 };
	enum reason top[REASON_COUNT];
	char buf[512], cause[200], places[PATH_MAX + 16];
	size_t i, n;

	if (statfile_list(true, 0, NULL, &l)) {
		complain("out of memory");
		return;
	}
	for (i = n = 0; i < l.n; i++) {
		sums_add(&total, &l.proc[i]);
		n += l.proc[i].folded ? l.proc[i].folded : 1;
	}
	if (!l.n) {
		complain("%s made no TCP connection, or the library was not in it (static, "
			 "set-user-id, or switched off): rdmastat doctor",
			 j->argv[0]);
	} else {
		summary_line(l.n == 1 ? l.proc[0].program : j->argv[0], n, &total);
		n = top_reasons(&total, top);
		for (i = 0; i < n && i < 3; i++) {
			snprintf(buf, sizeof(buf), "on TCP: %llu %s%s%s -> %s",
				 (unsigned long long)total.reasons[top[i]], reason_name(top[i]),
				 top[i] == REASON_OVERFLOW ? ", " : "", top[i] == REASON_OVERFLOW ?
				 cause_text(&total, top[i], cause, sizeof(cause)) : "",
				 remedy_text(top[i]));
			say("rdmarun:   ", buf);
		}
	}
	stat_list_clear(&l);
	snprintf(places, sizeof(places), "%s/" PLACES_FILE, dir);
	unlink(places);
	rmdir(dir);			/* stays if something it started still runs; rdmastat
					 * removes it then */
}

/* ---- --bench ---- */

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int bench(const struct job *j)
{
	double t[2][1000], at;
	unsigned i;
	int with, rc;

	for (i = 0; i < j->count; i++)
		for (with = 0; with < 2; with++) {
			at = seconds();
			rc = run_child(j, with);
			t[with][i] = seconds() - at;
			if (rc) {
				complain("%s ended with status %d; nothing is compared", j->argv[0],
					 rc);
				return rc;
			}
		}
	for (with = 0; with < 2; with++)
		qsort(t[with], j->count, sizeof(double), by_time);
	fprintf(stderr,
		"rdmarun: median of %u: %.3f s without, %.3f s with the library, ratio %.2f\n",
		j->count, t[0][j->count / 2], t[1][j->count / 2],
		t[0][j->count / 2] / t[1][j->count / 2]);
	return 0;
}

int main(int argc, char **argv)
{
	struct job j = { .count = 3 };
	char dir[PATH_MAX];
	int rc = read_line(&j, argc, argv);

	if (rc >= 0)
		return rc;
	if (!set_environment(&j))
		return OWN_TROUBLE;
	if (!j.stat && !j.bench)
		return exec_it(j.argv);
	catch_signals();
	j.stat = j.stat && make_stat_dir(dir, sizeof(dir));
	rc = j.bench ? bench(&j) : run_child(&j, true);
	if (j.stat)
		print_summary(&j, dir);
	return rc;
}
