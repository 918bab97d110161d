/*
 * rdmastat_loop.c - the doctor's last word: two processes of this program, with the library
 * preloaded, send each other bytes over each path, and every byte is compared. The processes are
 * `rdmastat doctor-loop server` and `... client PORT`, started with a policy and a counter
 * directory of their own; what their counters say afterwards tells which path the bytes took.
 *
 * The server prints its port and echoes one connection. The client sends until its stdin is
 * closed (at least ROUNDS rounds), then prints "ok BYTES NANOSECONDS": the bytes compared and
 * its median round trip.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "policy/places.h"
#include "tools/findlib.h"
#include "doctor/rdmastat_doctor.h"
#include "doctor/rdmastat_killed.h"

#define ROUNDS 2000
#define SMALL 64
#define LARGE 65536
#define LARGE_EVERY 50		/* rounds between large ones */
#define WAIT_MS 4000		/* for a path to come into use */

/* ---- the two processes ---- */

/* Byte `at` of the stream: no two blocks are alike, so that bytes lost, doubled or out of order
 * show. */
static void pattern(unsigned char *buf, size_t len, uint64_t at)
{
	size_t i;

	for (i = 0; i < len; i++) {
		uint64_t v = (at + i) * 0x9e3779b97f4a7c15ull;

		buf[i] = (unsigned char)(v >> 56);
	}
}

static bool send_bytes(int fd, const unsigned char *buf, size_t len)
{
	while (len) {
		ssize_t n = send(fd, buf, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		buf += n;
		len -= (size_t)n;
	}
	return true;
}

static bool receive_bytes(int fd, unsigned char *buf, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, buf, len, 0);

		if (n <= 0)
			return false;
		buf += n;
		len -= (size_t)n;
	}
	return true;
}

static int loop_server(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	static unsigned char buf[LARGE];
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, one = 1;
	ssize_t n;

	if (l < 0 || bind(l, (struct sockaddr *)&a, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len)) {
		complain("doctor-loop: %s", strerror(errno));
		return EXIT_FAILED;
	}
	printf("%u\n", ntohs(a.sin_port));
	fflush(stdout);
	fd = accept(l, NULL, NULL);
	close(l);
	if (fd < 0)
		return EXIT_FAILED;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		if (!send_bytes(fd, buf, (size_t)n))
			return EXIT_FAILED;
	close(fd);
	return n < 0 ? EXIT_FAILED : EXIT_OK;
}

static uint64_t ns_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool enough(void)
{
	struct pollfd p = { 0, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;	/* its end is closed, or something came */
}

static int loop_client(const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static unsigned char out[LARGE], in[LARGE];
	static uint64_t took[ROUNDS];	/* the last ones */
	uint64_t at = 0, rounds = 0, p, t;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (!opt_number(port, 1, 65535, "doctor-loop", &p))
		return EXIT_USAGE;
	a.sin_port = htons((uint16_t)p);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		complain("doctor-loop: %s", strerror(errno));
		return EXIT_FAILED;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (; rounds < ROUNDS || !enough(); rounds++) {
		size_t len = rounds % LARGE_EVERY == LARGE_EVERY - 1 ? LARGE : SMALL;

		pattern(out, len, at);
		t = ns_now();
		if (!send_bytes(fd, out, len) || !receive_bytes(fd, in, len)) {
			complain("doctor-loop: the connection ended after %llu bytes",
				 (unsigned long long)at);
			return EXIT_FAILED;
		}
		if (len == SMALL)
			took[rounds % ROUNDS] = ns_now() - t;
		if (memcmp(out, in, len)) {
			complain("doctor-loop: other bytes came back, after %llu that were right",
				 (unsigned long long)at);
			return EXIT_FAILED;
		}
		at += len;
	}
	close(fd);
	qsort(took, ROUNDS, sizeof(took[0]), by_value);
	printf("ok %llu %llu\n", (unsigned long long)at, (unsigned long long)took[ROUNDS / 2]);
	return EXIT_OK;
}

int cmd_loop(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "server"))
		return loop_server();
	if (argc == 3 && !strcmp(argv[1], "client"))
		return loop_client(argv[2]);
	complain("doctor-loop is for rdmastat doctor only");
	return EXIT_USAGE;
}

/* ---- starting them ---- */

struct child {
	pid_t pid;
	int in, out;			/* our ends of its stdin and stdout, -1 closed */
};

struct run {
	char dir[200], conf[300], stat[300];
	char *env[64];
	struct child server, client;
	char why[400];			/* if it failed */
	const char *remedy;		/* and what to do, if not the usual */
};

static bool start(struct run *r, struct child *c, char **argv)
{
	posix_spawn_file_actions_t fa;
	int in[2], out[2], rc;

	if (pipe2(in, O_CLOEXEC))
		return false;
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]);
		close(in[1]);
		return false;
	}
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, in[0], 0);
	posix_spawn_file_actions_adddup2(&fa, out[1], 1);
	rc = posix_spawn(&c->pid, "/proc/self/exe", &fa, NULL, argv, r->env);
	posix_spawn_file_actions_destroy(&fa);
	close(in[0]);
	close(out[1]);
	c->in = in[1];
	c->out = out[0];
	if (rc)
		c->pid = 0;
	return !rc;
}

/* One line of the child's, within ms. */
static bool line_from(struct child *c, char *buf, size_t len, int ms)
{
	uint64_t until = ns_now() + (uint64_t)ms * 1000000u;
	size_t used = 0;

	while (used + 1 < len) {
		struct pollfd p = { c->out, POLLIN, 0 };
		int64_t left = (int64_t)(until - ns_now()) / 1000000;

		if (left <= 0 || poll(&p, 1, (int)left) != 1 || read(c->out, buf + used, 1) != 1)
			return false;
		if (buf[used] == '\n') {
			buf[used] = '\0';
			return true;
		}
		used++;
	}
	return false;
}

static void end(struct child *c)
{
	if (c->in >= 0)
		close(c->in);
	if (c->out >= 0)
		close(c->out);
	if (c->pid > 0) {
		kill(c->pid, SIGKILL);	/* it has printed its result, or has none */
		waitpid(c->pid, NULL, 0);
	}
	*c = (struct child){ 0, -1, -1 };
}

/* The environment of ours without what steers the library, and with what the run says. */
static bool make_env(struct run *r, const char *lib)
{
	static char preload[PATH_MAX + 4096];
	static const char *const drop[] = { "LD_PRELOAD=", "RDMASHIM=", "RDMASHIM_CONF=",
					    "RDMASHIM_STAT_DIR=", "RDMASHIM_STATS=", "COLUMNS=" };
	extern char **environ;
	char *list = preload_with(lib);
	size_t n = 0, i, k;

	if (!list)
		return false;
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", list);
	free(list);
	for (i = 0; environ[i] && n < 56; i++) {
		for (k = 0; k < sizeof(drop) / sizeof(drop[0]); k++)
			if (!strncmp(environ[i], drop[k], strlen(drop[k])))
				break;
		if (k == sizeof(drop) / sizeof(drop[0]))
			r->env[n++] = environ[i];
	}
	r->env[n++] = preload;
	r->env[n++] = r->conf;
	r->env[n++] = r->stat;
	r->env[n] = NULL;
	return true;
}

static bool prepare(struct run *r, const char *lib, const char *path)
{
	const char *tmp = getenv("TMPDIR");
	bool made = false;
	char file[256];
	FILE *f;

	if ((size_t)snprintf(r->dir, sizeof(r->dir), "%s/rdmashim-doctor.XXXXXX",
			     tmp && *tmp ? tmp : "/tmp") >= sizeof(r->dir))
		errno = ENAMETOOLONG;
	else if (mkdtemp(r->dir))
		made = true;
	if (!made) {
		snprintf(r->why, sizeof(r->why), "no directory for the trial, %.100s: %s", r->dir,
			 strerror(errno));
		return false;
	}
	snprintf(file, sizeof(file), "%s/policy", r->dir);
	f = fopen(file, "we");
	if (!f)
		return false;
	fprintf(f, "mode on\nearn_bytes 0\nearn_rounds 0\nuse %s both *:*\n", path);
	fclose(f);
	snprintf(r->conf, sizeof(r->conf), "RDMASHIM_CONF=%s", file);
	snprintf(r->stat, sizeof(r->stat), "RDMASHIM_STAT_DIR=%s/stat", r->dir);
	return make_env(r, lib);
}

/* What both processes have counted so far, of the files in the run's directory. */
static void read_counts(const struct run *r, struct sums *s)
{
	const char *own = getenv("RDMASHIM_STAT_DIR");
	char *saved = own ? strdup(own) : NULL;
	struct stat_list l = { 0 };
	size_t i;

	memset(s, 0, sizeof(*s));
	setenv("RDMASHIM_STAT_DIR", r->stat + strlen("RDMASHIM_STAT_DIR="), 1);
	if (!statfile_list(true, 0, NULL, &l))
		for (i = 0; i < l.n; i++)
			sums_add(s, &l.proc[i]);
	stat_list_clear(&l);
	if (saved)
		setenv("RDMASHIM_STAT_DIR", saved, 1);
	else
		unsetenv("RDMASHIM_STAT_DIR");
	free(saved);
}

static void tidy(struct run *r)
{
	struct sums s;
	char path[256];

	end(&r->client);
	end(&r->server);
	read_counts(r, &s);		/* which removes the files of the dead */
	snprintf(path, sizeof(path), "%s/policy", r->dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/stat/" PLACES_FILE, r->dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/stat", r->dir);
	rmdir(path);
	rmdir(r->dir);
}

/* Lets them run until bytes have gone by the path at both ends, or for WAIT_MS. */
static void wait_for_path(struct run *r, enum path_kind path, struct sums *s)
{
	uint64_t until = ns_now() + WAIT_MS * 1000000ull;
	struct timespec nap = { 0, 20000000 };

	do {
		nanosleep(&nap, NULL);
		read_counts(r, s);
	} while (s->bytes[path] < 4 * LARGE && ns_now() < until && kill(r->client.pid, 0) == 0);
}

/* One of them has ended, or neither has and nothing comes. */
static void explain(struct run *r, const char *else_)
{
	bool filter = false;

	if (!killed("server", r->server.pid, r->why, sizeof(r->why), &filter) &&
	    !killed("client", r->client.pid, r->why, sizeof(r->why), &filter)) {
		snprintf(r->why, sizeof(r->why), "%s", else_);
		return;
	}
	if (filter)
		r->remedy = "allow these calls where the process is started (SystemCallFilter= of "
			    "a unit), or don't load the library there";
}

/* By what it says itself. */
static const char *client_failed(const struct run *r)
{
	siginfo_t si = { .si_pid = 0 };

	waitid(P_PID, (id_t)r->client.pid, &si, WEXITED | WNOHANG | WNOWAIT);
	return si.si_pid ? "bytes were lost or changed, or the connection broke"
			 : "the connection hung";
}

static bool run_pair(struct run *r, enum path_kind path, struct sums *s, uint64_t *bytes,
		     uint64_t *ns)
{
	char *server[] = { "rdmastat", "doctor-loop", "server", NULL };
	char port[32] = "", line[128] = "";
	char *client[] = { "rdmastat", "doctor-loop", "client", port, NULL };
	unsigned long long b, t;

	if (!start(r, &r->server, server) || !line_from(&r->server, port, sizeof(port), 5000)) {
		explain(r, "the server did not start");
		return false;
	}
	if (!start(r, &r->client, client)) {
		snprintf(r->why, sizeof(r->why), "the client did not start");
		return false;
	}
	wait_for_path(r, path, s);
	close(r->client.in);		/* enough */
	r->client.in = -1;
	if (!line_from(&r->client, line, sizeof(line), 20000) ||
	    sscanf(line, "ok %llu %llu", &b, &t) != 2) {
		explain(r, client_failed(r));
		return false;
	}
	*bytes = b;
	*ns = t;
	return true;
}

/* Returns the round trip in ns, 0 if it did not work. */
static uint64_t transfer(struct doctor *d, enum path_kind path, uint64_t tcp_ns)
{
	struct run r = { .server = { 0, -1, -1 }, .client = { 0, -1, -1 } };
	enum reason top[REASON_COUNT];
	struct sums s = { 0 };
	uint64_t bytes = 0, ns = 0;
	char name[32], h[16], f[16], gain[64] = "";
	bool ok = prepare(&r, d->lib, path_name(path)) && run_pair(&r, path, &s, &bytes, &ns);

	snprintf(name, sizeof(name), "transfer %s", path_name(path));
	human(bytes, h, sizeof(h));
	human(s.bytes[path], f, sizeof(f));
	if (ns && tcp_ns > ns + ns / 10)
		snprintf(gain, sizeof(gain), ", TCP's is %.1f times as long",
			 (double)tcp_ns / (double)ns);
	if (!ok)
		verdict(d, V_FAIL, name,
			r.remedy ? r.remedy
				 : "run with log_level 4 in the policy file, and report it",
			"%s", r.why[0] ? r.why : strerror(errno));
	else if (s.bytes[path])
		verdict(d, V_OK, name, "",
			"%s there and back, every byte compared; round trip of 64 bytes %.1f us%s",
			h, (double)ns / 1e3, gain);
	else if (PATHS_FAR & 1 << path)
		verdict(d, V_WARN, name, "",
			"%s compared, but none by it: this version has no such path between "
			"processes of one host",
			h);
	else
		verdict(d, V_FAIL, name, top_reasons(&s, top) ? reason_remedy(top[0]) : "",
			"%s compared, but none by %s: %s", h, path_name(path),
			top_reasons(&s, top) ? reason_text(top[0]) : "no reason is known");
	tidy(&r);
	return ok ? ns : 0;
}

void check_transfers(struct doctor *d)
{
	uint64_t tcp;

	if (!d->lib[0]) {
		verdict(d, V_FAIL, "transfer", "make install, or rdmastat doctor --lib FILE",
			"no library to try");
		return;
	}
	tcp = transfer(d, PATH_TCP, 0);
	for (int path = PATH_TCP + 1; path < PATH_KINDS; path++)
		if (path != PATH_RDMA || d->has_rdma)
			transfer(d, (enum path_kind)path, tcp);
		else
			verdict(d, V_NONE, "transfer rdma", "", "no RDMA device");
}
