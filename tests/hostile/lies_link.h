/*
 * lies_link.h - the scenarios up to the bound stream: HELLO, BIND, BELL, and what is said about
 * cuts. Part of peer.c, which says what a scenario is.
 */
#ifndef LIES_LINK_H
#define LIES_LINK_H

/* ---- how far a scenario goes before it lies ---- */

static void get_tcp(struct peer *h)
{
	if (listener >= 0)
		peer_take(h, listener);
	else
		peer_call(h, port);
}
static void get_linked(struct peer *h) { get_tcp(h); peer_link(h); }
static void get_bound(struct peer *h) { get_linked(h); peer_bind(h); }
static void get_path(struct peer *h) { get_bound(h); peer_path(h); }

/* ---- what must follow ---- */

static void must_close(struct peer *h, const char *what)
{
	struct ctl_msg m;
	int64_t end = now_ms() + 2500;
	int r;

	while ((r = hear(h, &m, (int)(end - now_ms()))) == 1)
		;
	if (r == 0)
		broken("%s: the victim goes on with the link", what);
}

/* Nothing but a refusal may come: a BOUND or a descriptor of the victim's is a loss. */
static void must_refuse(struct peer *h, const char *what)
{
	struct ctl_msg m;
	int64_t end = now_ms() + 1000;
	int r;

	while ((r = hear(h, &m, (int)(end - now_ms()))) == 1) {
		if (m.type == CTL_BOUND)
			broken("%s: bound", what);
		if (m.type == CTL_NOT_MINE)
			return;
	}
	if (r == 0)
		broken("%s: no answer", what);
}

/* The liar's own connection must be reset or its link closed. */
static void must_lose(struct peer *h, const char *what)
{
	int64_t end = now_ms() + 2500;
	struct pollfd p = { .fd = h->tcp, .events = 0 };
	struct ctl_msg m;

	while (now_ms() < end) {
		if (hear(h, &m, 20) < 0)
			return;
		if (poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP))
			return;
		ring_all(h);
	}
	broken("%s: believed", what);
}

/* ---- before the link ---- */

static void silent(void)
{
	struct sockaddr_un un;
	struct peer h;
	socklen_t len;
	int fd, n = 0;

	get_tcp(&h);
	close(call_victim(&h));
	len = name_of(&h, &un);
	for (int i = 0; i < 200; i++) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		n += !connect(fd, (void *)&un, len);	/* kept open */
		if (i % 8 == 7)
			nap(1);
	}
	if (n < 20)
		broken("only %d connections", n);
}

static int memory(uint64_t size, const struct segment_header *head, int seals)
{
	int fd = memfd_create("rdmashim", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)size) ||
	    (head && pwrite(fd, head, sizeof *head, 0) != sizeof *head))
		broken("memfd: %s", strerror(errno));
	fcntl(fd, F_ADD_SEALS, seals);
	return fd;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static void one_hello(struct peer *h, const char *what, const void *rec, size_t len, const int *fds,
		      int n)
{
	h->ctl = call_victim(h);
	/* Before we are let in the kernel takes no descriptors for the victim. */
	for (int i = 0; say_raw(h->ctl, rec, len, fds, n) == -EPERM && i < 500; i++)
		nap(1);
	must_close(h, what);
	close(h->ctl);
}

/* Everything that a HELLO can get wrong. It carries nothing: what comes beside it is not taken. */
static void bad_hellos(void)
{
	struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0), x;
	char big[256] = { 0 };
	struct peer h;
	int fds[MAX_FDS], good;

	get_tcp(&h);
	good = memory(4096, NULL, SEALS);
	for (int i = 0; i < MAX_FDS; i++)
		fds[i] = good;
	memcpy(big, &m, sizeof m);
	one_hello(&h, "short record", &m, 63, NULL, 0);
	one_hello(&h, "one byte", &m, 1, NULL, 0);
	one_hello(&h, "long record", big, sizeof big, NULL, 0);
	one_hello(&h, "a descriptor", &m, sizeof m, &good, 1);
	one_hello(&h, "two descriptors", &m, sizeof m, fds, 2);
	one_hello(&h, "sixteen descriptors", &m, sizeof m, fds, MAX_FDS);
	for (int i = 0; i < 5; i++) {	/* each would leak four */
		one_hello(&h, "empty record with descriptors", &m, 0, fds, 4);
	}
	x = m, x.version = CTL_VERSION + 1;
	one_hello(&h, "wrong version", &x, sizeof x, NULL, 0);
	for (unsigned t = 0; t <= CTL_TYPES + 1; t++)
		if (t != CTL_HELLO) {
			x = m, x.type = (uint16_t)t;
			one_hello(&h, "another record first", &x, sizeof x, NULL, 0);
			one_hello(&h, "another record first, with a descriptor", &x, sizeof x,
				  &good, 1);
		}
}

/* ---- the victim connects ---- */

/* Its next connect to our name is answered by that. What follows must be the end of the link. */
static void one_welcome(struct peer *h, const char *what, const void *rec, size_t len,
			const int *fds, int n)
{
	struct ctl_msg m;

	if (h->name < 0)
		open_name(h);
	/* its search for that connection is over: another one */
	if (!readable(h->name, 4000)) {
		close(h->name);
		close(h->tcp);
		get_tcp(h);
		open_name(h);
		if (!readable(h->name, 4000))
			broken("%s: the victim does not connect", what);
	}
	h->ctl = accept4(h->name, NULL, NULL, SOCK_CLOEXEC);
	if (hear(h, &m, 3000) != 1 || m.type != CTL_HELLO)
		broken("%s: no HELLO", what);
	say_raw(h->ctl, rec, len, fds, n);
	must_close(h, what);
	close(h->ctl);
}

/* Everything that a WELCOME can get wrong. */
static void bad_welcomes(void)
{
	struct ctl_msg m = record(CTL_WELCOME, 0, 0, 0, 0), x;
	struct segment_header g, b;
	struct segment a;
	struct peer h;
	int fds[MAX_FDS], fd, good;

	get_tcp(&h);
	if (segment_create(&a, 16, 65536, 0, &good))
		broken("segment_create");
	g = *(struct segment_header *)a.base;
	for (int i = 0; i < MAX_FDS; i++)
		fds[i] = good;
	one_welcome(&h, "short record", &m, 63, &good, 1);
	one_welcome(&h, "no descriptor", &m, sizeof m, NULL, 0);
	one_welcome(&h, "two descriptors", &m, sizeof m, fds, 2);
	one_welcome(&h, "empty record with descriptors", &m, 0, fds, 4);
	x = m, x.version = CTL_VERSION + 1;
	one_welcome(&h, "wrong version", &x, sizeof x, &good, 1);
	for (unsigned t = 0; t <= CTL_TYPES + 1; t++)
		if (t != CTL_WELCOME) {
			x = m, x.type = (uint16_t)t;
			one_welcome(&h, "another record first", &x, sizeof x, &good, 1);
		}
	fd = open("/dev/null", O_RDWR);
	one_welcome(&h, "/dev/null", &m, sizeof m, &fd, 1);
	close(fd);
	one_welcome(&h, "a socket", &m, sizeof m, &h.tcp, 1);
#define SEGMENT(what, size, head, seals) \
	(fd = memory((size), (head), (seals)), one_welcome(&h, what, &m, sizeof m, &fd, 1), \
		close(fd))
	SEGMENT("unsealed", a.total, &g, 0);
	SEGMENT("shrink not sealed", a.total, &g, F_SEAL_GROW | F_SEAL_SEAL);
	SEGMENT("read-only", a.total, &g, SEALS | F_SEAL_WRITE);
	SEGMENT("empty", 0, NULL, SEALS);
	SEGMENT("a page", 4096, &g, SEALS);
	SEGMENT("one byte less", a.total - 1, &g, SEALS);
	SEGMENT("zeros", a.total, NULL, SEALS);
#define LIE(f, v) (b = g, b.f = (v), SEGMENT(#f " " #v, a.total, &b, SEALS))
	LIE(magic, 0);
	LIE(version, SEGMENT_VERSION + 1);
	LIE(slots, 0);
	LIE(slots, 1);
	LIE(slots, 17);
	LIE(slots, UINT32_MAX);
	LIE(ring_size, 0);
	LIE(ring_size, 4097);
	LIE(ring_size, 1ull << 40);
	LIE(total_size, UINT64_MAX);
}

/* A valid segment of terabytes: taken or refused, but nothing else may suffer. */
static void huge_segments(void)
{
	struct ctl_msg m = record(CTL_WELCOME, 0, 0, 0, 0), hello;
	struct segment_header h = { SEGMENT_MAGIC, SEGMENT_VERSION, 4096, 1u << 30, 0, 0 };
	struct segment a;
	struct peer p;
	int fd;

	if (segment_create(&a, 4096, 65536, 0, &fd))
		broken("segment_create");
	close(fd);
	h.total_size = a.total + 2ull * 4096 * ((1u << 30) - 65536);
	for (int i = 0; i < 20; i++) {
		get_tcp(&p);
		open_name(&p);
		fd = memory(h.total_size, &h, SEALS);
		if (!readable(p.name, 4000))
			broken("the victim does not connect");
		p.ctl = accept4(p.name, NULL, NULL, SOCK_CLOEXEC);
		if (hear(&p, &hello, 3000) == 1)
			say(&p, m, fd);
		hear(&p, &hello, 30);
		close(fd);
		close(p.name);
		close(p.tcp);
	}
}

static void hang_up_early(void)
{
	struct peer h;

	get_tcp(&h);
	for (int i = 0; i < 20; i++) {
		h.ctl = call_victim(&h);
		if (i % 4)
			say(&h, record(CTL_HELLO, 0, 0, 0, 0), -1);
		if (i % 4 > 1)
			hear(&h, &(struct ctl_msg){ 0 }, 5);
		if (i % 4 == 3)
			say_bind(&h, 32, h.tcp);	/* ours in a first link */
		close(h.ctl);
	}
}

/* ---- on a link, before a stream is bound ---- */

/* Random fields with a known type; a link per broken rule. */
static void any_records(void)
{
	struct peer h;
	int kinds[4], one[2];

	get_tcp(&h);
	kinds[0] = open("/dev/null", O_RDWR);
	kinds[1] = eventfd(0, 0);
	kinds[2] = h.tcp;
	if (pipe(one))
		broken("pipe");
	kinds[3] = one[1];
	for (int links = 0; links < 60; links++) {
		int door = try_call_victim(&h, 200);

		if (door < 0) {		/* one BIND was right by chance */
			close(h.tcp);
			get_tcp(&h);
			kinds[2] = h.tcp;
		} else {
			close(door);
		}
		hello(&h);
		for (int i = 0; i < 200; i++) {
			struct ctl_msg m =
				record((unsigned)(rnd() % (CTL_TYPES + 2)),
				       (uint32_t)(rnd() % 20 + (rnd() & 1 ? first_slot(&h) : 0)),
				       (uint32_t)rnd() % 70, (uint32_t)rnd() % 4, rnd() % 100);

			m.tuple = h.tuple;
			if (rnd() % 4 == 0)
				m.slot = (uint32_t)rnd();
			if (rnd() % 4 == 0)
				m.index = (uint32_t)rnd();
			if (rnd() % 8 == 0)
				m.tuple.pport = (uint16_t)rnd();
			if (say_raw(h.ctl, &m, rnd() % 50 ? sizeof m : rnd() % sizeof m,
				    kinds + rnd() % 3, (int)(rnd() % 3)))
				break;
		}
		close(h.ctl);
		segment_unmap(&h.a);
	}
}

/* A record that ends the link, each on a link of its own. */
static void wrong_records(void)
{
	static const struct { const char *what; unsigned type; uint32_t slot, index; } row[] = {
		{ "HELLO again", CTL_HELLO, 0, 0 }, { "WELCOME back", CTL_WELCOME, 0, 0 },
		{ "BOUND unasked", CTL_BOUND, 0, 0 }, { "NOT_MINE unasked", CTL_NOT_MINE, 0, 0 },
		{ "UNBIND of nothing", CTL_UNBIND, 0, 0 }, { "a slot too many", CTL_BIND, 4096, 0 },
		{ "slot -1", CTL_CUT, UINT32_MAX, 1 }, { "the victim's slot", CTL_BIND, 0, 0 },
		{ "CUT message 0", CTL_CUT, 0, 0 }, { "CUT message 8", CTL_CUT, 0, 8 },
		{ "CUT message -1", CTL_CUT, 0, UINT32_MAX }, { "BELL 63", CTL_BELL, 0, 63 },
		{ "BELL 1000", CTL_BELL, 0, 1000 },
	};
	struct peer h;
	int ev = eventfd(0, EFD_NONBLOCK);

	get_tcp(&h);
	for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
		struct ctl_msg m = record(row[i].type, row[i].slot, row[i].index, 0, 0);

		hello(&h);
		m.tuple = h.tuple;
		say(&h, m, row[i].type == CTL_BELL && row[i].index > 1 ? ev : -1);
		must_close(&h, row[i].what);
		close(h.ctl);
		segment_unmap(&h.a);
	}
}

static void one_bind(struct peer *h, const char *what, const struct ctl_tuple *t, int fd)
{
	struct ctl_msg m = record(CTL_BIND, h->slot++, 0, 0, 0);

	m.tuple = *t;
	say(h, m, fd);
	must_refuse(h, what);
}

static void bad_binds(void)
{
	struct ctl_tuple t, wide;
	struct peer h, other;
	int fd, un[2];

	get_linked(&h);
	h.slot = first_slot(&h);
	peer_call(&other, port);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, un))
		broken("socketpair");
	one_bind(&h, "no descriptor", &h.tuple, -1);
	fd = open("/dev/null", O_RDWR);
	one_bind(&h, "/dev/null", &h.tuple, fd);
	one_bind(&h, "AF_UNIX socket", &h.tuple, un[0]);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	one_bind(&h, "unconnected socket", &h.tuple, fd);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	one_bind(&h, "UDP socket", &h.tuple, fd);
	one_bind(&h, "foreign connection", &h.tuple, other.tcp);
	close(h.ctl);
	hello(&h);
	h.slot = first_slot(&h);
	one_bind(&h, "tuple of another connection", &other.tuple, h.tcp);
	t = h.tuple, t.pport++;
	one_bind(&h, "a port where nobody is", &t, h.tcp);
	t = h.tuple, t.family = AF_INET6;
	one_bind(&h, "another family", &t, h.tcp);
	t = h.tuple, t.family = 77;
	one_bind(&h, "no family", &t, h.tcp);
	memset(&t, 0xff, sizeof t);
	one_bind(&h, "ones", &t, h.tcp);
	wide = h.tuple, wide.laddr[15] = 1;
	one_bind(&h, "IPv4 with a tail", &wide, h.tcp);
	/* After all that the truth is still believed, once. */
	say_bind(&h, first_slot(&h) + 7, h.tcp);
	{
		struct ctl_msg m;

		if (!hear_type(&h, CTL_BOUND, &m, 2000))
			broken("the genuine BIND was refused");
	}
	say_bind(&h, first_slot(&h) + 6, h.tcp);
	must_refuse(&h, "bound already, another slot");
	say_bind(&h, first_slot(&h) + 7, h.tcp);
	must_close(&h, "the same slot again");
}

/* A connection that is reset, and another of the same names, while the victim's program neither
 * closes the one nor accepts the other: only its own thread goes on. */
static void names_again(void)
{
	struct linger reset = { 1, 0 };
	struct sockaddr_in from, to = loopback(port);
	struct peer h, old;
	socklen_t len = sizeof from;
	int one = 1, fd;
	char c;

	get_linked(&h);
	h.slot = first_slot(&h);
	peer_call(&old, port);
	getsockname(old.tcp, (void *)&from, &len);
	if (ptrace(PTRACE_SEIZE, victim, NULL, NULL) ||
	    ptrace(PTRACE_INTERRUPT, victim, NULL, NULL) || waitpid(victim, NULL, __WALL) < 0)
		not_here("ptrace");
	setsockopt(old.tcp, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	close(old.tcp);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (void *)&from, sizeof from) || connect(fd, (void *)&to, sizeof to))
		broken("the names are not free: %s", strerror(errno));
	one_bind(&h, "another connection of the names of one that was reset", &old.tuple, fd);
	ptrace(PTRACE_DETACH, victim, NULL, NULL);
	if (send(fd, "y", 1, 0) != 1 || !readable(fd, 3000) || recv(fd, &c, 1, 0) != 1 || c != 'y')
		broken("the new connection is not served");
}

#include "lies_bells.h"

/* ---- bound: lies about the cut ---- */

static const uint64_t odd[] = { 0, 1, 2, 1ull << 32, 1ull << 40, 1ull << 63, UINT64_MAX };
#define ODDS (sizeof odd / sizeof odd[0])

static void lone_cuts(unsigned msg)
{
	struct peer h;

	for (size_t i = 0; i < ODDS; i++) {
		get_bound(&h);
		for (unsigned e = 0; e < 4; e++)
			say_cut(&h, msg, e, odd[i]);
		say_cut(&h, msg, UINT32_MAX, odd[i]);
		nap(5);
		if (i % 2)
			close(h.tcp);
		close(h.ctl);
		segment_unmap(&h.a);
	}
	get_bound(&h);
	say_cut(&h, msg, 1, 0);
	say_cut(&h, msg, UINT32_MAX, 0);
}

static void lone_arm(void) { lone_cuts(CUT_MSG_ARM); }
static void lone_armed(void) { lone_cuts(CUT_MSG_ARMED); }
static void lone_cut(void) { lone_cuts(CUT_MSG_CUT); }
static void lone_cut_ok(void) { lone_cuts(CUT_MSG_CUT_OK); }
static void lone_rewind(void) { lone_cuts(CUT_MSG_REWIND); }
static void lone_frozen(void) { lone_cuts(CUT_MSG_FROZEN); }
static void lone_back(void) { lone_cuts(CUT_MSG_BACK); }

static void arm_storm(void)
{
	struct peer h;

	get_bound(&h);
	for (int i = 0; i < 30000; i++) {
		say_cut(&h, CUT_MSG_ARM, 1 + (uint32_t)i / 3, 0);
		if (i % 64 == 0)
			hear(&h, &(struct ctl_msg){ 0 }, 0);
	}
}

/* Asks and never listens. */
static void deaf(void)
{
	struct peer h;

	get_path(&h);
	for (int i = 0; i < 30000; i++) {
		if (say_cut(&h, CUT_MSG_CUT, h.tx_epoch, h.sent) == -EAGAIN)
			nap(1);
		if (i % 100 == 0)
			put(&h, "x", 1);
		if (now_ms() % 1024 == 0 && i > 25000)
			break;
	}
}

/* CUT at a byte that never comes. */
static void absurd_cut(void)
{
	struct ctl_msg m;
	struct peer h;

	for (size_t i = 3; i < ODDS; i++) {
		get_bound(&h);
		say_cut(&h, CUT_MSG_ARM, 1, 0);
		while (hear_type(&h, CTL_CUT, &m, 1000) && m.index != CUT_MSG_ARMED)
			if (m.index == CUT_MSG_ARM)
				say_cut(&h, CUT_MSG_ARMED, m.epoch, 0);
		ring_tx_open(&h.tx, 1, odd[i]);
		say_cut(&h, CUT_MSG_CUT, 1, odd[i]);
		for (int k = 0; k < 5; k++) {
			put(&h, "yyyy", 4);
			if (send(h.tcp, "z", 1, MSG_NOSIGNAL) != 1)
				break;
			nap(3);
		}
	}
}

/* A cut below what was already read. */
static void cut_in_the_past(void)
{
	struct ctl_msg m;
	struct peer h;

	get_bound(&h);
	if (send(h.tcp, "0123456789", 10, 0) != 10)
		broken("send");
	nap(50);
	say_cut(&h, CUT_MSG_ARM, 1, 0);
	while (hear_type(&h, CTL_CUT, &m, 2000) && m.index != CUT_MSG_ARMED)
		if (m.index == CUT_MSG_ARM)
			say_cut(&h, CUT_MSG_ARMED, m.epoch, 0);
	say_cut(&h, CUT_MSG_CUT, 1, 0);
	must_lose(&h, "S below what was consumed");
}

static void unbinds(void)
{
	struct ctl_msg m;
	struct peer h;

	get_path(&h);
	say(&h, record(CTL_UNBIND, h.slot, 0, 0, 0), -1);
	put(&h, "more", 4);
	say_cut(&h, CUT_MSG_REWIND, h.tx_epoch, 0);
	hear(&h, &m, 50);
	say(&h, record(CTL_UNBIND, h.slot, 0, 0, 0), -1);
	must_close(&h, "UNBIND twice");
}

#endif
