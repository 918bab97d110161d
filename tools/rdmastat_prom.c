/*
 * rdmastat_prom.c - `rdmastat prometheus`: the text exposition format, to stdout, to a file for node_exporter's textfile
 * collector, or to whoever asks over HTTP. The server answers one client at a time and gives each two seconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../policy/words.h"
#include "rdmastat.h"

#define REQUEST_MAX 4096
#define CLIENT_MS 2000

static const char *const counter_docs[STAT_COUNTERS] = {
#define STAT(name, doc) doc,
#include "../policy/stat.def"
#undef STAT
};

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP rdmashim_%s %s.\n# TYPE rdmashim_%s %s\n", name, help, name, type);
}

/* Names are printable ASCII by now; a quote and a backslash still need one. */
static void quoted(FILE *f, const char *s)
{
	for (; *s; s++)
		fprintf(f, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
}

static void labels(FILE *f, const struct stat_proc *p)
{
	fprintf(f, "{pid=\"%u\",uid=\"%u\",program=\"", p->pid, p->uid);
	quoted(f, p->program);
	putc('"', f);
}

static void bytes(FILE *f, const struct stat_list *l)
{
	size_t i;
	int k;

	head(f, "bytes_total", "counter", "Bytes of application data by direction and path");
	for (i = 0; i < l->n; i++)
		for (k = 0; k < 2 * PATH_KINDS; k++) {
			const struct stat_proc *p = &l->proc[i];

			fputs("rdmashim_bytes_total", f);
			labels(f, p);
			fprintf(f, ",direction=\"%s\",path=\"%s\"} %llu\n", k < PATH_KINDS ? "tx" : "rx", path_name((enum path_kind)(k % PATH_KINDS)),
				(unsigned long long)(k < PATH_KINDS ? p->tx_bytes[k] : p->rx_bytes[k - PATH_KINDS]));
		}
}

static void gauge(FILE *f, const struct stat_list *l, const char *name, const char *help, uint64_t (*get)(const struct stat_proc *p))
{
	size_t i;

	head(f, name, "gauge", help);
	for (i = 0; i < l->n; i++) {
		fprintf(f, "rdmashim_%s", name);
		labels(f, &l->proc[i]);
		fprintf(f, "} %llu\n", (unsigned long long)get(&l->proc[i]));
	}
}

static uint64_t get_live(const struct stat_proc *p)
{
	return p->nconns;
}

static uint64_t get_fast(const struct stat_proc *p)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < p->nconns; i++)
		n += p->conns[i].tx_path != PATH_TCP || p->conns[i].rx_path != PATH_TCP;
	return n;
}

static uint64_t get_mode(const struct stat_proc *p)
{
	return p->mode_on;
}

static void reasons(FILE *f, const struct stat_list *l)
{
	size_t i;
	unsigned k;

	head(f, "tcp_connections", "gauge", "Connections that are or ended on TCP, by their last reason");
	for (i = 0; i < l->n; i++)
		for (k = REASON_NONE + 1; k < REASON_COUNT; k++)
			if (l->proc[i].reasons[k]) {
				fputs("rdmashim_tcp_connections", f);
				labels(f, &l->proc[i]);
				fprintf(f, ",reason=\"%s\"} %llu\n", reason_name(k), (unsigned long long)l->proc[i].reasons[k]);
			}
}

/* One sample per queue pair that is up. */
static void queue_pairs(FILE *f, const struct stat_list *l, const char *name, const char *help, bool rtt)
{
	head(f, name, "gauge", help);
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->proc[i].nqps; k++) {
			const struct stat_qp *q = &l->proc[i].qps[k];

			if (q->phase != STAT_LINK_UP || (rtt && !q->rtt))
				continue;
			fprintf(f, "rdmashim_%s", name);
			labels(f, &l->proc[i]);
			fputs(",device=\"", f);
			quoted(f, q->device);
			fprintf(f, "\",port=\"%u\",qpn=\"%u\",peer_qpn=\"%u\"} ", q->port, q->qpn, q->peer_qpn);
			if (rtt)
				fprintf(f, "%.9f\n", q->rtt / 1e9);
			else
				fprintf(f, "%u\n", q->streams);
		}
}

static void expose(FILE *f, const struct stat_list *l)
{
	char name[64];
	size_t i;
	int k;

	head(f, "processes", "gauge", "Processes under the shim that this user may see");
	fprintf(f, "rdmashim_processes %zu\n", l->n);
	if (!l->n)
		return;
	gauge(f, l, "mode_on", "1 if the policy of the process says mode on", get_mode);
	gauge(f, l, "connections_live", "TCP connections that are open now", get_live);
	gauge(f, l, "connections_live_fast", "Of these, on a fast path in one direction at least", get_fast);
	bytes(f, l);
	for (k = 0; k < STAT_COUNTERS; k++) {
		snprintf(name, sizeof(name), "%s_total", counter_names[k]);
		head(f, name, "counter", counter_docs[k]);
		for (i = 0; i < l->n; i++) {
			fprintf(f, "rdmashim_%s", name);
			labels(f, &l->proc[i]);
			fprintf(f, "} %llu\n", (unsigned long long)l->proc[i].counter[k]);
		}
	}
	reasons(f, l);
	queue_pairs(f, l, "rdma_link_streams", "Connections that are on a queue pair now", false);
	queue_pairs(f, l, "rdma_link_rtt_seconds", "Shortest of the last times from posting a small record to seeing its completion", true);
}

static int expose_now(const struct request *r, bool quiet, FILE *f)
{
	struct request all = *r;
	struct stat_list l = { 0 };
	int rc;

	all.absolute = true;		/* a scraper finds resets by itself, and its own counters must not fall */
	rc = get_list(&all, quiet, &l);
	if (!rc)
		expose(f, &l);
	stat_list_clear(&l);
	return rc;
}

/* ---- a file ---- */

static int to_file(const struct request *r, bool quiet)
{
	char tmp[PATH_MAX];
	FILE *f = NULL;
	int fd = -1, rc = EXIT_FAILED;

	if (!replaceable(r->output))
		return EXIT_FAILED;
	/* the collector reads *.prom: the name of the unfinished file must not end so */
	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.XXXXXX", r->output) < sizeof(tmp))
		fd = mkostemp(tmp, O_CLOEXEC);
	if (fd >= 0)
		f = fdopen(fd, "w");
	if (f) {
		rc = expose_now(r, quiet, f);
		if (!rc && (fchmod(fd, 0644) || fflush(f) || ferror(f) || rename(tmp, r->output)))
			rc = EXIT_FAILED;
		else if (!rc) {
			fclose(f);
			return EXIT_OK;
		}
	}
	complain("cannot write %s: %s", r->output, strerror(errno));
	if (fd >= 0)
		unlink(tmp);
	if (f)
		fclose(f);
	return rc;
}

/* ---- HTTP ---- */

static int open_listener(const char *where)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;
	const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
	char host[64] = "127.0.0.1";
	socklen_t len = sizeof(*in);
	int fd, one = 1;
	uint64_t n;

	if (!opt_number(port, 1, 65535, "--listen", &n))
		return -1;
	if (colon && colon > where) {
		bool v6 = where[0] == '[' && colon[-1] == ']';

		snprintf(host, sizeof(host), "%.*s", (int)(colon - where - (v6 ? 2 : 0)), where + v6);
	}
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		ss.ss_family = AF_INET;
		in->sin_port = htons((uint16_t)n);
	} else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
		ss.ss_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)n);
		len = sizeof(*in6);
	} else {
		complain("--listen: %s is not an address; write 9101, 0.0.0.0:9101 or [::]:9101", where);
		return -1;
	}
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) || bind(fd, (struct sockaddr *)&ss, len) || listen(fd, 16)) {
		complain("--listen %s: %s", where, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static long ms_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The head of a request, or false: too long, too slow, gone. */
static bool read_request(int fd, char *buf, long until)
{
	size_t used = 0;

	while (used < REQUEST_MAX - 1) {
		struct pollfd p = { fd, POLLIN, 0 };
		long left = until - ms_now();
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			return false;
		n = recv(fd, buf + used, REQUEST_MAX - 1 - used, MSG_DONTWAIT);
		if (n <= 0)
			return false;
		used += (size_t)n;
		buf[used] = '\0';
		if (strstr(buf, "\r\n\r\n") || strstr(buf, "\n\n"))
			return true;
	}
	return false;
}

static void send_all(int fd, const char *s, size_t len, long until)
{
	while (len) {
		struct pollfd p = { fd, POLLOUT, 0 };
		long left = until - ms_now();
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			return;
		n = send(fd, s, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n <= 0)
			return;
		s += n;
		len -= (size_t)n;
	}
}

static void answer(const struct request *r, int fd)
{
	char buf[REQUEST_MAX], top[256], *body = NULL;
	const char *status = "200 OK";
	long until = ms_now() + CLIENT_MS;
	bool only_head;
	size_t len = 0;
	FILE *f;

	if (!read_request(fd, buf, until))
		return;
	f = open_memstream(&body, &len);
	if (!f)
		return;
	only_head = !strncmp(buf, "HEAD ", 5);
	if (strncmp(buf, "GET ", 4) && !only_head)
		status = "405 Method Not Allowed";
	else if (strncmp(strchr(buf, ' ') + 1, "/metrics", 8) || !strchr(" ?\r\n", strchr(buf, ' ')[9]))
		status = "404 Not Found";
	else if (expose_now(r, true, f))
		status = "500 Internal Server Error";
	if (strcmp(status, "200 OK"))
		fprintf(f, "%s; the counters are at /metrics\n", status);
	fclose(f);
	snprintf(top, sizeof(top), "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
		 status, len);
	send_all(fd, top, strlen(top), until);
	if (!only_head)
		send_all(fd, body, len, until);
	free(body);
}

static int serve(const struct request *r)
{
	int l = open_listener(r->listen);
	unsigned served = 0;

	if (l < 0)
		return EXIT_FAILED;
	while (!r->count || served < r->count) {
		int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
				sleep(1);	/* others may give some back */
				continue;
			}
			complain("accept: %s", strerror(errno));
			close(l);
			return EXIT_FAILED;
		}
		answer(r, fd);
		close(fd);
		served++;
	}
	close(l);
	return EXIT_OK;
}

int cmd_prometheus(const struct request *r)
{
	unsigned i;
	int rc;

	if (r->json) {
		complain("prometheus has a format of its own; rdmastat --json prints the same numbers");
		return EXIT_USAGE;
	}
	if (r->listen && (r->output || r->watch)) {
		complain("--listen answers when asked; leave out -O and -w");
		return EXIT_USAGE;
	}
	if (r->listen)
		return serve(r);
	for (i = 0; ; i++) {
		rc = r->output ? to_file(r, i > 0) : expose_now(r, i > 0, stdout);
		if (rc || !r->watch || (r->count && i + 1 >= r->count))
			return rc;
		rc = finish(rc);
		if (rc)
			return rc;
		sleep(r->watch);
	}
}
