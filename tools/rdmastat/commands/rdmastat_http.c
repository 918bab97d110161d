/*
 * rdmastat_http.c - see rdmastat_http.h. One thread, one poll loop, no call that waits for a
 * client. What a client can use up is bounded: a place of CLIENTS, a head of HEAD_MAX bytes in
 * READ_MS, an answer in SEND_MS, SEND_BUFFER of the kernel's memory. The page is made at most once
 * in PAGE_MS and shared by all who get it, so slow readers hold few of them.
 *
 * When all places are taken, the client goes that has been silent for the longest: since he came,
 * as long as his request is not all there; where more than half of the places wait for readers, the
 * one of these that has taken no bytes for the longest. So neither kind can push the other out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ground/rdmastat.h"
#include "commands/rdmastat_http.h"

#define CLIENTS 128
#define ACCEPTS 16			/* in one round: those who read are heard in between */
#define HEAD_MAX 4096
#define READ_MS 2000
#define SEND_MS 3000
#define PAGE_MS 1000
#define SEND_BUFFER 65536
#define PAUSE_MS 100			/* of the listener, when descriptors are used up */

struct page {
	unsigned refs;
	long made;			/* ms */
	size_t len;
	char *text;			/* NULL: there was none */
};

struct client {
	int fd;				/* -1: a free place */
	unsigned long moved;		/* accepted, or took bytes of the answer; server.tick */
	long until;			/* ms: the latest that it may take */
	size_t used, top_len, sent;	/* of head; of top; of top and page together */
	bool answering;
	struct page *page;		/* what follows top, or NULL */
	char head[HEAD_MAX], top[512];
};

struct server {
	const struct http *h;
	int listener;
	long pause;			/* ms: do not accept before that */
	unsigned places, through;	/* how many clients there may be; how many are gone */
	unsigned long tick;
	struct page *page;		/* the last one */
	unsigned pages;			/* that are in memory */
	struct client client[CLIENTS];
};

static const char *const statuses[] = {
	[HTTP_OK] = "200 OK",
	[HTTP_BAD_REQUEST] = "400 Bad Request",
	[HTTP_NOT_FOUND] = "404 Not Found",
	[HTTP_BAD_METHOD] = "405 Method Not Allowed",
	[HTTP_OTHER_HOST] = "421 Misdirected Request",
	[HTTP_NO_PAGE] = "500 Internal Server Error",
};

static long ms_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the page ---- */

static void page_put(struct server *s, struct page *p)
{
	if (!p || --p->refs)
		return;
	s->pages--;
	free(p->text);
	free(p);
}

/* The page of now or of a moment ago. One that could not be made is not tried again at once. While
 * somebody still reads the one before, which takes him SEND_MS at most, there is no third. */
static struct page *page_now(struct server *s)
{
	long now = ms_now();
	struct page *p;
	FILE *f;
	int rc;

	if (s->page && (now - s->page->made < PAGE_MS || s->pages > 1))
		return s->page;
	page_put(s, s->page);
	s->page = NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	f = open_memstream(&p->text, &p->len);
	rc = f ? s->h->page(s->h->arg, f) : -1;
	if (f && fclose(f))
		rc = -1;
	if (rc) {
		free(p->text);
		p->text = NULL;
	}
	p->refs = 1;
	s->pages++;
	p->made = now;
	s->page = p;
	return p;
}

/* ---- a client ---- */

static void drop(struct server *s, struct client *c, bool done)
{
	struct linger at_once = { 1, 0 };

	if (!done)	/* the kernel is not to keep what he does not take */
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	page_put(s, c->page);
	close(c->fd);
	c->page = NULL;
	c->fd = -1;
	s->through++;
}

static void compose(struct server *s, struct client *c)
{
	bool only_head;
	enum http_status status = http_judge(c->head, c->used, s->h->hosts, &only_head);
	const char *hint = "the counters are at /metrics";
	char text[256] = "";
	size_t len;
	int n;

	if (status == HTTP_OK) {
		c->page = page_now(s);
		if (!c->page || !c->page->text) {
			c->page = NULL;
			status = HTTP_NO_PAGE;
		}
	}
	if (status == HTTP_OTHER_HOST)
		hint = "ask by address, or start rdmastat prometheus with --host NAME";
	if (status != HTTP_OK)
		snprintf(text, sizeof(text), "%s; %s\n", statuses[status], hint);
	len = c->page ? c->page->len : strlen(text);
	n = snprintf(c->top, sizeof(c->top),
		     "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\n"
		     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
		     statuses[status], len, only_head ? "" : text);
	c->top_len = (size_t)n;
	if (only_head)
		c->page = NULL;
	else if (c->page)
		c->page->refs++;
	c->answering = true;
	c->until = ms_now() + SEND_MS;
}

/* Takes what has come. True when the request is all there; false also if the client was dropped. */
static bool hear(struct server *s, struct client *c)
{
	ssize_t n = recv(c->fd, c->head + c->used, HEAD_MAX - 1 - c->used, 0);

	if (n > 0) {
		c->used += (size_t)n;
		c->head[c->used] = '\0';
		if (http_complete(c->head, c->used))
			return true;
		if (c->used < HEAD_MAX - 1)
			return false;
	} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return false;
	}
	drop(s, c, false);	/* too long, or gone */
	return false;
}

/* Sends what goes out now. */
static void speak(struct server *s, struct client *c)
{
	size_t all = c->top_len + (c->page ? c->page->len : 0);

	while (c->sent < all) {
		bool top = c->sent < c->top_len;
		const char *p = top ? c->top + c->sent : c->page->text + (c->sent - c->top_len);
		size_t left = (top ? c->top_len : all) - c->sent;
		ssize_t n = send(c->fd, p, left, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0)
			break;
		c->sent += (size_t)n;
		c->moved = ++s->tick;
	}
	drop(s, c, c->sent == all);
}

static void advance(struct server *s, struct client *c)
{
	if (!c->answering) {
		if (!hear(s, c))
			return;
		compose(s, c);
	}
	speak(s, c);
}

/* A free place, made free if there is none. */
static struct client *place(struct server *s)
{
	struct client *c, *end = s->client + s->places, *last = NULL;
	unsigned readers = 0;

	for (c = s->client; c < end; c++) {
		if (c->fd < 0)
			return c;
		readers += c->answering;
	}
	for (c = s->client; c < end; c++)
		if (c->answering == (readers > s->places / 2) && (!last || c->moved < last->moved))
			last = c;
	drop(s, last, false);
	return last;
}

static void accept_some(struct server *s)
{
	unsigned patience = SEND_MS;
	int buffer = SEND_BUFFER;
	struct client *c;
	int i, fd;

	for (i = 0; i < ACCEPTS; i++) {
		fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (fd < 0) {
			if (errno != ECONNABORTED)
				s->pause = ms_now() + PAUSE_MS;
			return;
		}
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
		/* what the kernel still has to send when we have closed it, too */
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
		c = place(s);
		memset(c, 0, offsetof(struct client, head));
		c->fd = fd;
		c->moved = ++s->tick;
		c->until = ms_now() + READ_MS;
		advance(s, c);	/* who asks at once is answered at once */
	}
}

/* ---- the loop ---- */

static bool serve_round(struct server *s)
{
	struct pollfd p[CLIENTS + 1];
	long now = ms_now(), next = now + 60000;
	bool paused = s->pause > now;
	unsigned i;

	p[s->places] = (struct pollfd){ paused ? -1 : s->listener, POLLIN, 0 };
	if (paused)
		next = s->pause;
	for (i = 0; i < s->places; i++) {
		struct client *c = &s->client[i];

		p[i] = (struct pollfd){ c->fd, c->answering ? POLLOUT : POLLIN, 0 };
		if (c->fd >= 0 && c->until < next)
			next = c->until;
	}
	/* it takes no more than there may be descriptors */
	if (poll(p, s->places + 1, next > now ? (int)(next - now) : 0) < 0)
		return errno == EINTR;
	now = ms_now();
	for (i = 0; i < s->places; i++) {
		struct client *c = &s->client[i];

		if (c->fd < 0)
			continue;
		if (c->until <= now)
			drop(s, c, false);
		else if (p[i].revents)
			advance(s, c);
	}
	if (p[s->places].revents)
		accept_some(s);
	return true;
}

/* "9101", "10.0.0.1:9101" or "[::1]:9101". Returns the socket, or -1 after a complaint. */
static int open_listener(const char *where)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;
	const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
	char host[64] = "127.0.0.1";
	socklen_t len = sizeof(*in);
	int fd, one = 1, patience = READ_MS / 1000;
	uint64_t n;

	if (!opt_number(port, 1, 65535, "--listen", &n))
		return -1;
	if (colon && colon > where) {
		bool v6 = where[0] == '[' && colon[-1] == ']';

		snprintf(host, sizeof(host), "%.*s", (int)(colon - where - 2 * v6), where + v6);
	}
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		ss.ss_family = AF_INET;
		in->sin_port = htons((uint16_t)n);
	} else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
		ss.ss_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)n);
		len = sizeof(*in6);
	} else {
		complain("--listen: %s is not an address; write 9101, 0.0.0.0:9101 or [::]:9101",
			 where);
		return -1;
	}
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&ss, len) || listen(fd, SOMAXCONN)) {
		complain("--listen %s: %s", where, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	/* Who has not asked needs no place: the next clients would push him out before he can. */
	setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &patience, sizeof(patience));
	return fd;
}

int http_serve(const struct http *h)
{
	static struct server s;
	struct rlimit files = { 0, 0 };
	bool ok = true;
	int i;

	s = (struct server){ .h = h, .listener = open_listener(h->where), .places = CLIENTS };
	if (s.listener < 0)
		return EXIT_FAILED;
	/* the page needs some, too */
	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < 2 * CLIENTS)
		s.places = files.rlim_cur < 4 ? 1 : (unsigned)files.rlim_cur / 2;
	for (i = 0; i < CLIENTS; i++)
		s.client[i].fd = -1;
	while (ok && (!h->count || s.through < h->count))
		ok = serve_round(&s);
	if (!ok)
		complain("poll: %s", strerror(errno));
	for (i = 0; i < CLIENTS; i++)
		if (s.client[i].fd >= 0)
			drop(&s, &s.client[i], false);
	page_put(&s, s.page);
	close(s.listener);
	return ok ? EXIT_OK : EXIT_FAILED;
}
