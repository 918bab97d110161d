/*
 * peer.c - a hostile peer. It is not preloaded: it speaks the control protocol by itself
 * (peer.h), is genuine until the victim trusts it, and then lies. Each scenario is a process of
 * its own; after it has done its worst and while it still lives, an honest plain connection to
 * the victim must work, the victim must not spin, and the attack may cost it no more than the
 * library's share of its descriptors and a few megabytes; after it was killed, the victim's
 * descriptors must be what they were.
 *
 * 	peer call  PORT VICTIM [SCENARIO...]		the victim (its pid) serves echo at PORT
 * 	peer serve PORT VICTIM PROGRESS [SCENARIO...]	the victim calls us at PORT; the file
 * 							PROGRESS counts its honest bytes
 *
 * LINK: rdma/shm/segment.c
 * Exits 0 if all scenarios went well, 3 if there is none of the given names.
 */
#include "peer.h"

#include <dirent.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define OTHER_UID 31337		/* nobody's; 65534 would be refused for another reason */

static int port, listener = -1, honest_port;
static unsigned seed = 1;
static pid_t victim;
static volatile uint64_t *progress;	/* of the victim, where it is the client */

static uint64_t rnd(void)
{
	static uint64_t x;

	if (!x)
		x = 0x9e3779b97f4a7c15ull * (seed + 1);
	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

/* A number of the victim's /proc/PID/status; 0: it is not there. */
static long victim_status(const char *line)
{
	char path[64], text[200];
	long n = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", victim);
	f = fopen(path, "r");
	while (f && fgets(text, sizeof text, f))
		if (!strncmp(text, line, strlen(line)))
			n = atol(text + strlen(line));
	if (f)
		fclose(f);
	return n;
}

/* A thread's nanoseconds on a processor, and those that it waited for one. */
struct ran { unsigned long long on, delayed; };
static struct ran ran_of(const char *task)
{
	struct ran r = { 0, 0 };
	char path[300];
	FILE *f;

	snprintf(path, sizeof path, "%s/schedstat", task);
	f = fopen(path, "r");
	if (f && fscanf(f, "%llu %llu", &r.on, &r.delayed) != 2)
		r = (struct ran){ 0, 0 };
	if (f)
		fclose(f);
	return r;
}

/* Of the victim's threads: all, that of its program, or the library's. */
enum who { ALL, PROGRAM, LIBRARY };
static bool named(const char *task, const char *name)
{
	char path[300], is[32] = "";
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/task/%s/comm", victim, task);
	f = fopen(path, "r");
	if (f && !fgets(is, sizeof is, f))
		is[0] = 0;
	if (f)
		fclose(f);
	return !strcmp(is, name);
}

static struct ran victim_ran(enum who who)
{
	struct ran r, sum = { 0, 0 };
	struct dirent *e;
	char path[300];
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/task", victim);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.' || (who == PROGRAM && atoi(e->d_name) != victim) ||
		    (who == LIBRARY && !named(e->d_name, "rdmashim\n")))
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%s", victim, e->d_name);
		r = ran_of(path);
		sum.on += r.on, sum.delayed += r.delayed;
	}
	if (d)
		closedir(d);
	return sum;
}

/* Since when something is waited for, and who does it. */
struct since { int64_t ms; enum who who; unsigned long long delayed; };

static unsigned long long delayed_by(enum who who)
{
	return ran_of("/proc/thread-self").delayed + victim_ran(who).delayed;
}

static struct since since_now(enum who who)
{
	return (struct since){ .who = who, .delayed = delayed_by(who), .ms = now_ms() };
}

/* How long it took, but for what he and we waited for a processor that others had: he who is held
 * up does not want one. */
static int took_ms(const struct since *s)
{
	int64_t ms = now_ms() - s->ms;
	unsigned long long delayed = delayed_by(s->who);

	if (delayed > s->delayed)	/* (a thread may have ended) */
		ms -= (int64_t)((delayed - s->delayed) / 1000000);
	return ms > 0 ? (int)ms : 0;
}

#include "lies_path.h"
#include "lies_locked.h"
#include "lies_promised.h"
#include "lies_file.h"
#include "lies_device.h"

/* ---- the table ---- */

/* CALLERS: may cost a descriptor for each of 64 callers and no more. NAMED: only if asked for */
enum { CALL = 1, SERVE = 2, BOTH = 3, ROOT = 4, CALLERS = 8, NAMED = 16 };

static const struct row { const char *name; void (*run)(void); int how; } table[] = {
	{ "silent", silent, CALL | CALLERS }, { "unproven", unproven, CALL },
		{ "many-links", many_links, CALL }, { "bad-hellos", bad_hellos, CALL },
			{ "bad-welcomes", bad_welcomes, SERVE }, { "huge-segments", huge_segments,
				SERVE },
	{ "hang-up-early", hang_up_early, CALL }, { "any-records", any_records, CALL },
		{ "wrong-records", wrong_records, CALL },
	{ "bad-binds", bad_binds, CALL }, { "names-again", names_again, CALL },
		{ "many-bells", many_bells, CALL },
		{ "regular-bell", regular_bell, BOTH },
	{ "full-pipe-bell", full_pipe_bell, BOTH }, { "full-eventfd-bell", full_eventfd_bell,
						      BOTH },
	{ "socket-bell", socket_bell, BOTH }, { "turned-bell", turned_bell, BOTH },
		{ "lingers", lingers, CALL },
	{ "lingers-inside", lingers_inside, CALL },
	{ "locked-bind", locked_bind, CALL | ROOT | NAMED },
		{ "locked-bind-other", locked_bind_other, CALL | ROOT | NAMED },
	{ "locked-own", locked_own, CALL | ROOT | NAMED },
		{ "turned-own", turned_own, CALL | ROOT },
	{ "lingers-own", lingers_own, CALL | ROOT }, { "takes-own", takes_own, BOTH | ROOT },
	{ "locked-asked", locked_asked, SERVE | ROOT | NAMED },
	{ "locked-segment", locked_segment, SERVE | ROOT | NAMED },
	{ "promised-many", promised_many, CALL }, { "promised-other", promised_other, CALL | ROOT },
	{ "promised-fallback", promised_fallback, CALL | ROOT | NAMED },
	{ "lingers-second", lingers_second, CALL }, { "lingers-wrong", lingers_wrong, CALL },
	{ "lingers-left", lingers_left, CALL }, { "lingers-many", lingers_many, CALL },
	{ "lingers-at-the-door", lingers_at_the_door, CALL },
	{ "lone-arm", lone_arm, CALL }, { "lone-armed", lone_armed, CALL },
		{ "lone-cut", lone_cut, CALL },
	{ "lone-cut-ok", lone_cut_ok, CALL }, { "lone-rewind", lone_rewind, CALL },
		{ "lone-frozen", lone_frozen, CALL },
	{ "lone-back", lone_back, CALL }, { "arm-storm", arm_storm, BOTH }, { "deaf", deaf, BOTH },
	{ "absurd-cut", absurd_cut, CALL }, { "cut-in-the-past", cut_in_the_past, CALL },
		{ "unbinds", unbinds, BOTH },
	{ "wr-jumps", wr_jumps, BOTH }, { "wr-back", wr_back, BOTH },
		{ "large-beyond", large_beyond, BOTH }, { "wr-beyond", wr_beyond, BOTH },
	{ "rd-beyond", rd_beyond, BOTH }, { "header-garbage", header_garbage, CALL },
		{ "masks", masks, BOTH },
	{ "frozen-beyond", frozen_beyond, BOTH }, { "frozen-below", frozen_below, BOTH },
		{ "back-early", back_early, CALL }, { "counts-lie", counts_lie, CALL },
	{ "rewind-and-leave", rewind_and_leave, BOTH }, { "close-control", close_control, CALL },
		{ "tcp-ends", tcp_ends, CALL },
	{ "never-reads", never_reads, BOTH }, { "fuzz-1", fuzz, CALL }, { "fuzz-2", fuzz2, BOTH },
	{ "claims-other", claims_other, CALL | ROOT }, { "squats", squats, SERVE | ROOT },
		{ "offered", offered, SERVE | ROOT },
	{ "thief", thief, SERVE | ROOT }, { "other-offers", other_offers, CALL | ROOT },
	{ "stranger-freezes", stranger_freezes, CALL | ROOT }, { "stranger-calls", stranger_calls,
		CALL | ROOT | NAMED },
	{ "stuck-bell", stuck_bell, BOTH | ROOT }, { "stuck-bind", stuck_bind, CALL | ROOT },
		{ "stuck-cut", stuck_cut, CALL | ROOT },
	{ "stuck-welcome", stuck_welcome, SERVE | ROOT }, { "stuck-low", stuck_low, CALL | ROOT },
	{ "stuck-fork", stuck_fork, CALL | ROOT },
	{ "offers-own", offers_own, CALL }, { "becomes-another", becomes_another, CALL },
		{ "becomes-lookalike", becomes_lookalike, CALL },
	{ "becomes-relay", becomes_relay, CALL | ROOT }, { "gives-rights-up", gives_rights_up,
							   CALL | ROOT },
	{ "number-taken", number_taken, CALL | ROOT },
		{ "never-comes", never_comes, CALL | ROOT | NAMED },
	{ "crowds", crowds, CALL | ROOT },
	{ "removed", removed, CALL | ROOT | NAMED },
	{ "device-own", device_own, CALL | NAMED },
	{ "device-beyond", device_beyond, CALL | NAMED },
	{ "device-handles", device_handles, CALL | NAMED },
	{ "device-rings", device_rings, CALL | NAMED },
	{ "device-twice", device_twice, CALL | NAMED },
	{ "device-other", device_other, CALL | NAMED | ROOT },
	{ "device-becomes", device_becomes, CALL | NAMED },
	{ "closes-meanwhile", closes_meanwhile, CALL | NAMED },
	{ "crams", crams, CALL | ROOT },	/* last: none of that user is let in after it */
};
#define ROWS (sizeof table / sizeof table[0])

/* ---- what the victim does meanwhile ---- */

/* Descriptors of the victim, from a number on. */
static int count_fds_from(int from)
{
	struct dirent *e;
	char path[64];
	int n = 0;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/fd", victim);
	d = opendir(path);
	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && atoi(e->d_name) >= from;
	if (d)
		closedir(d);
	return n;
}

static int count_fds(void) { return count_fds_from(0); }

static bool alive(void)
{
	char path[64], state = 'X';
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", victim);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d %*s %c", &state) != 1)
		state = 'X';
	if (f)
		fclose(f);
	return state != 'X' && state != 'Z';
}

/* An honest connection gets all its bytes back, or the victim's own honest bytes go on. */
static const char *honest(void)
{
	struct sockaddr_in a = loopback(port);
	char out[20000], in[20000];
	size_t sent = 0, got = 0;
	int64_t end = now_ms() + 3000;
	int fd;

	if (progress) {
		uint64_t was = *progress;

		while (*progress == was && now_ms() < end)
			nap(5);
		return *progress == was ? "its honest connection stands still" : NULL;
	}
	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (char)rnd();
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (void *)&a, sizeof a))
		return "an honest client cannot connect";
	while (got < sizeof in && now_ms() < end) {
		struct pollfd p = { .fd = fd,
				    .events = (short)(POLLIN | (sent < sizeof out ? POLLOUT : 0)) };
		ssize_t n;

		poll(&p, 1, 100);
		if (p.revents & POLLOUT &&
		    (n = send(fd, out + sent, sizeof out - sent, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
			sent += (size_t)n;
		if (p.revents & POLLIN) {
			n = recv(fd, in + got, sizeof in - got, MSG_DONTWAIT);
			if (n <= 0)
				break;
			got += (size_t)n;
		}
	}
	close(fd);
	if (got < sizeof in)
		return "an honest client is not served";
	return memcmp(in, out, sizeof in) ? "an honest client got wrong bytes" : NULL;
}

/* What it has written to, in KiB; not what the peer has in shared memory. */
static long victim_memory(void) { return victim_status("RssAnon:"); }

static int victim_limit(void)
{
	struct rlimit r = { 0 };

	prlimit(victim, RLIMIT_NOFILE, NULL, &r);
	return (int)r.rlim_cur;
}

/* The library's own: an eighth, and high numbers (docs/limits.md). */
static int library_share(void) { return victim_limit() / 8; }
static int count_library_fds(void)
{
	int base = victim_limit() - library_share();

	return count_fds_from(base < 8192 ? base : 8192);
}

static int base_fds, base_library_fds;
static long base_memory;
#define MEMORY_SLACK 8192	/* KiB */
#define FDS_SLACK 6		/* honest clients come and go */

/* What one() says of a scenario that cannot be had here, and of one whose victim was late. */
static char skipped[1], was_late[] = "the victim is late, again and again";
#define TRIES 3

/* One scenario. NULL, or what went wrong. */
static const char *one(const struct row *r)
{
	static char text[100];
	const char *bad = NULL;
	/* of a million; the honest clients' work is slower under a sanitizer */
	uint64_t cpu, t, most = getenv("SAN") ? 900000 : 600000;
	int ready[2], st, n;
	int64_t end;
	pid_t pid;
	char ok;

	if (pipe2(ready, O_CLOEXEC))
		return "pipe";
	pid = fork();
	if (!pid) {
		close(ready[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGPIPE, SIG_IGN);
		scenario = r->name;
		r->run();
		if (write(ready[1], "k", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (!readable(ready[0], 15000))
		bad = "the peer hangs";
	else if (read(ready[0], &ok, 1) != 1)
		bad = "the victim did not do as expected";
	close(ready[0]);
	nap(20);
	/* who spins does not stop; one who was kept from work catches up */
	for (int i = 0; i < 3 && (!i || cpu > t * most); i++) {
		cpu = victim_ran(ALL).on;
		t = (uint64_t)now_ms();
		nap(120);
		t = (uint64_t)now_ms() - t;
		cpu = victim_ran(ALL).on - cpu;
	}
	if (!bad)
		bad = honest();
	n = count_library_fds();
	if (!bad && n > (r->how & CALLERS ? base_library_fds + FDS_SLACK + 64 : library_share())) {
		snprintf(text, sizeof text,
			 "it costs the library too many descriptors: %d, were %d", n,
			 base_library_fds);
		bad = text;
	}
	if (!bad && !getenv("SAN") && victim_memory() > base_memory + MEMORY_SLACK) {
		snprintf(text, sizeof text, "it costs too much memory: %ld KiB, were %ld",
			 victim_memory(), base_memory);
		bad = text;
	}
	if (!bad && cpu > t * most) {
		snprintf(text, sizeof text, "the victim spins: %d ms of CPU in %d ms",
			 (int)(cpu / 1000000), (int)t);
		bad = text;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	if (!alive())
		return "the victim died";
	if (WIFEXITED(st) && WEXITSTATUS(st) == NOT_HERE)
		return skipped;
	if (bad && WIFEXITED(st) && WEXITSTATUS(st) == EXIT_LATE)
		bad = was_late;
	/* one look that is good: the honest come and go */
	for (end = now_ms() + 20000; (n = count_fds()) > base_fds + FDS_SLACK && now_ms() < end;)
		nap(10);
	if (n > base_fds + FDS_SLACK && !bad) {
		snprintf(text, sizeof text, "descriptors: %d, were %d", n, base_fds);
		bad = text;
	}
	return bad;
}

static bool wanted(const struct row *r, int n, char **names)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], r->name))
			return true;
	return !n;
}

static void map_progress(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	progress = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || progress == MAP_FAILED)
		broken("%s: %s", path, strerror(errno));
	close(fd);
}

int main(int argc, char **argv)
{
	int names, failed = 0, ran = 0, skips = 0, mode;
	const char *s = getenv("SEED");

	if (argc == 2 && !strcmp(argv[1], "vault"))
		return vault();
	if (argc == 2 && !strcmp(argv[1], "uffd"))
		return syscall(SYS_userfaultfd, O_CLOEXEC) < 0;

	if (argc < 4 ||
	    (mode = !strcmp(argv[1], "call")	? CALL
		    : !strcmp(argv[1], "serve") ? SERVE
						: 0) == 0 ||
	    (mode == SERVE && argc < 6)) {
		fprintf(stderr, "usage: peer call PORT VICTIM [SCENARIO...] | peer serve PORT "
				"VICTIM PROGRESS HONEST-PORT [SCENARIO...]\n");
		return 2;
	}
	port = atoi(argv[2]);
	victim = atoi(argv[3]);
	seed = s ? (unsigned)atoi(s) : (unsigned)getpid();
	names = mode == SERVE ? 6 : 4;
	if (mode == SERVE) {
		struct sockaddr_in a = loopback(port);
		int one = 1;

		map_progress(argv[4]);
		honest_port = atoi(argv[5]);
		listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		claim(listener);
		if (bind(listener, (void *)&a, sizeof a) || listen(listener, 64))
			broken("listen: %s", strerror(errno));
	}
	nap(300);	/* honest clients are under way */
	base_fds = count_fds();
	base_library_fds = count_library_fds();
	base_memory = victim_memory();
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &table[i];
		const char *bad;
		int64_t t = now_ms();

		if (!(r->how & mode) || (r->how & NAMED && argc == names) ||
		    !wanted(r, argc - names, argv + names) || (r->how & ROOT && geteuid()))
			continue;
		for (int try = 0; !try || (bad == was_late && try < TRIES); try++)
			bad = one(r);
		if (bad == skipped) {
			printf("skip %s\n", r->name);
			fflush(stdout);
			skips++;
			continue;
		}
		ran++;
		printf("%s %s (%d ms)%s%s\n", bad ? "FAILED" : "ok", r->name, (int)(now_ms() - t),
		       bad ? ": " : "", bad ? bad : "");
		fflush(stdout);
		failed += bad != NULL;
		if (!alive())
			break;
	}
	printf("%d scenarios, %d failed, %d skipped, seed %u\n", ran, failed, skips, seed);
	return failed ? 1 : ran ? 0 : 3;
}
