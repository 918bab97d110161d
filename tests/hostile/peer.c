/*
 * peer.c - a hostile peer. It is not preloaded: it speaks the control protocol by itself (peer.h), is genuine until the
 * victim trusts it, and then lies. Each scenario is a process of its own; after it has done its worst and while it still lives,
 * an honest plain connection to the victim must work and the victim must not spin; after it was killed, the victim's
 * descriptors must be what they were.
 *
 *	peer call  PORT VICTIM [SCENARIO...]		the victim (its pid) serves echo at PORT
 *	peer serve PORT VICTIM PROGRESS [SCENARIO...]	the victim calls us at PORT; the file PROGRESS counts its honest bytes
 *
 * LINK: rdma/arena.c
 * Exits 0 if all scenarios went well, 3 if there is none of the given names.
 */
#include "peer.h"

#include <dirent.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define OTHER_UID 31337		/* nobody's; 65534 would be refused for another reason */

static int port, listener = -1, honest_port;
static unsigned seed = 1;
static pid_t victim;

static uint64_t rnd(void)
{
	static uint64_t x;

	if (!x)
		x = 0x9e3779b97f4a7c15ull * (seed + 1);
	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

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
	close(knock(&h));
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

static int memory(uint64_t size, const struct arena_header *head, int seals)
{
	int fd = memfd_create("rdmashim", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)size) || (head && pwrite(fd, head, sizeof *head, 0) != sizeof *head))
		broken("memfd: %s", strerror(errno));
	fcntl(fd, F_ADD_SEALS, seals);
	return fd;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static void one_hello(struct peer *h, const char *what, const void *rec, size_t len, const int *fds, int n)
{
	h->ctl = knock(h);
	say_raw(h->ctl, rec, len, fds, n);
	must_close(h, what);
	close(h->ctl);
}

/* Everything that a HELLO can get wrong. */
static void bad_hellos(void)
{
	struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0), x;
	struct arena_header g, b;
	char big[256] = { 0 };
	struct arena a;
	struct peer h;
	int fds[MAX_FDS], fd, good;

	get_tcp(&h);
	if (arena_create(&a, 16, 65536, &good))
		broken("arena_create");
	g = *(struct arena_header *)a.base;
	for (int i = 0; i < MAX_FDS; i++)
		fds[i] = good;
	memcpy(big, &m, sizeof m);
	one_hello(&h, "short record", &m, 63, &good, 1);
	one_hello(&h, "one byte", &m, 1, &good, 1);
	one_hello(&h, "long record", big, sizeof big, &good, 1);
	one_hello(&h, "no descriptor", &m, sizeof m, NULL, 0);
	one_hello(&h, "two descriptors", &m, sizeof m, fds, 2);
	one_hello(&h, "sixteen descriptors", &m, sizeof m, fds, MAX_FDS);
	for (int i = 0; i < 5; i++) {	/* each would leak four */
		one_hello(&h, "empty record with descriptors", &m, 0, fds, 4);
	}
	x = m, x.version = CTL_VERSION + 1;
	one_hello(&h, "wrong version", &x, sizeof x, &good, 1);
	for (unsigned t = 0; t <= CTL_TYPES + 1; t++)
		if (t != CTL_HELLO) {
			x = m, x.type = (uint16_t)t;
			one_hello(&h, "another record first", &x, sizeof x, &good, 1);
		}
	fd = open("/dev/null", O_RDWR);
	one_hello(&h, "/dev/null", &m, sizeof m, &fd, 1);
	close(fd);
	one_hello(&h, "a socket", &m, sizeof m, &h.tcp, 1);
#define ARENA(what, size, head, seals) \
	(fd = memory((size), (head), (seals)), one_hello(&h, what, &m, sizeof m, &fd, 1), close(fd))
	ARENA("unsealed", a.total, &g, 0);
	ARENA("shrink not sealed", a.total, &g, F_SEAL_GROW | F_SEAL_SEAL);
	ARENA("read-only", a.total, &g, SEALS | F_SEAL_WRITE);
	ARENA("empty", 0, NULL, SEALS);
	ARENA("a page", 4096, &g, SEALS);
	ARENA("one byte less", a.total - 1, &g, SEALS);
	ARENA("zeros", a.total, NULL, SEALS);
#define LIE(f, v) (b = g, b.f = (v), ARENA(#f " " #v, a.total, &b, SEALS))
	LIE(magic, 0);
	LIE(version, ARENA_VERSION + 1);
	LIE(slots, 0);
	LIE(slots, 1);
	LIE(slots, 17);
	LIE(slots, UINT32_MAX);
	LIE(ring_size, 0);
	LIE(ring_size, 4097);
	LIE(ring_size, 1ull << 40);
	LIE(total_size, UINT64_MAX);
}

/* A valid arena of terabytes: taken or refused, but nothing else may suffer. */
static void huge_arenas(void)
{
	struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0);
	struct arena_header h = { ARENA_MAGIC, ARENA_VERSION, 4096, 1u << 30, 0 };
	struct arena a;
	struct peer p;
	int fd;

	get_tcp(&p);
	if (arena_create(&a, 4096, 65536, &fd))
		broken("arena_create");
	close(fd);
	h.total_size = a.total + 2ull * 4096 * ((1u << 30) - 65536);
	for (int i = 0; i < 20; i++) {
		fd = memory(h.total_size, &h, SEALS);
		p.ctl = knock(&p);
		say(&p, m, fd);
		hear(&p, &m, 30);
		close(fd);
	}
}

static void hang_up_early(void)
{
	struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0);
	struct arena a;
	struct peer h;
	int fd;

	get_tcp(&h);
	if (arena_create(&a, 16, 65536, &fd))
		broken("arena_create");
	for (int i = 0; i < 20; i++) {
		h.ctl = knock(&h);
		if (i % 4)
			say(&h, m, fd);
		if (i % 4 > 1)
			hear(&h, &m, 5);
		if (i % 4 == 3)
			say_bind(&h, 0, h.tcp);
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
		hello(&h);
		for (int i = 0; i < 200; i++) {
			struct ctl_msg m = record((unsigned)(rnd() % (CTL_TYPES + 2)), (uint32_t)(rnd() % 20), (uint32_t)rnd() % 70,
						  (uint32_t)rnd() % 4, rnd() % 100);

			m.tuple = h.tuple;
			if (rnd() % 4 == 0)
				m.slot = (uint32_t)rnd();
			if (rnd() % 4 == 0)
				m.index = (uint32_t)rnd();
			if (rnd() % 8 == 0)
				m.tuple.pport = (uint16_t)rnd();
			if (say_raw(h.ctl, &m, rnd() % 50 ? sizeof m : rnd() % sizeof m, kinds + rnd() % 3, (int)(rnd() % 3)))
				break;
		}
		close(h.ctl);
		arena_unmap(&h.a);
	}
}

/* A record that ends the link, each on a link of its own. */
static void wrong_records(void)
{
	static const struct { const char *what; unsigned type; uint32_t slot, index; } row[] = {
		{ "HELLO again", CTL_HELLO, 0, 0 }, { "WELCOME back", CTL_WELCOME, 0, 0 },
		{ "BOUND unasked", CTL_BOUND, 0, 0 }, { "NOT_MINE unasked", CTL_NOT_MINE, 0, 0 },
		{ "UNBIND of nothing", CTL_UNBIND, 0, 0 }, { "slot 16", CTL_BIND, 16, 0 },
		{ "slot -1", CTL_CUT, UINT32_MAX, 1 }, { "the victim's slot", CTL_BIND, 8, 0 },
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
		arena_unmap(&h.a);
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
	h.slot = 0;
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
	say_bind(&h, 7, h.tcp);
	{
		struct ctl_msg m;

		if (!hear_type(&h, CTL_BOUND, &m, 2000))
			broken("the genuine BIND was refused");
	}
	say_bind(&h, 6, h.tcp);
	must_refuse(&h, "bound already, another slot");
	say_bind(&h, 7, h.tcp);
	must_close(&h, "the same slot again");
}

/* ---- bells ---- */

static void regular_bell(void)
{
	char path[] = "/tmp/rdmashim-bell.XXXXXX";
	struct peer h;
	int fd = mkstemp(path);

	unlink(path);
	get_linked(&h);
	say(&h, record(CTL_BELL, 0, 0, 0, 0), fd);
	must_close(&h, "a file for a bell");
	if (lseek(fd, 0, SEEK_END))
		broken("the victim wrote to the file");
}

/* A descriptor to which a write blocks. Whoever rings it must not sleep in the write. */
static void blocking_bell(int fd)
{
	struct peer h;

	get_path(&h);
	for (uint32_t i = 0; i < BELL_MAX; i++)
		say(&h, record(CTL_BELL, 0, i, 0, 0), fd);
	for (int i = 0; i < 20; i++) {
		atomic_store(&h.a.side[h.a.me].armed, UINT64_MAX);
		atomic_store(&h.a.slot[h.slot].side[h.a.me].bells, UINT64_MAX);
		put(&h, "hello", 5);
		nap(2);
	}
}

static void full_pipe_bell(void)
{
	int p[2];
	char buf[4096] = { 0 };

	if (pipe(p))
		broken("pipe");
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	while (write(p[1], buf, sizeof buf) > 0)
		;
	while (write(p[1], buf, 1) > 0)
		;
	fcntl(p[1], F_SETFL, 0);
	blocking_bell(p[1]);
}

static void full_eventfd_bell(void)
{
	int fd = eventfd(0, 0);
	uint64_t most = UINT64_MAX - 1;

	if (write(fd, &most, sizeof most) != sizeof most)
		broken("eventfd");
	blocking_bell(fd);
}

/* Non-blocking when it is handed over; then filled, and the flag, which the open file has, taken away. */
static void turned_bell(void)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	uint64_t most = UINT64_MAX - 1, n;
	struct peer h;

	get_path(&h);
	for (uint32_t i = 0; i < BELL_MAX; i++)
		say(&h, record(CTL_BELL, 0, i, 0, 0), fd);
	nap(50);
	fcntl(fd, F_SETFL, 0);
	for (int i = 0; i < 20; i++) {
		if (readable(fd, 0) && read(fd, &n, sizeof n) != sizeof n)
			broken("eventfd");
		fcntl(fd, F_SETFL, O_NONBLOCK);
		if (write(fd, &most, sizeof most) != sizeof most)
			continue;
		fcntl(fd, F_SETFL, 0);
		atomic_store(&h.a.side[h.a.me].armed, UINT64_MAX);
		atomic_store(&h.a.slot[h.slot].side[h.a.me].bells, UINT64_MAX);
		put(&h, "hello", 5);
		nap(5);
	}
}

/* All bells of many links: the victim's own descriptors must not run out for others. */
static void many_bells(void)
{
	int ev = eventfd(0, EFD_NONBLOCK);
	struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0);
	struct arena a;
	struct peer h;
	int fd;

	get_tcp(&h);
	if (arena_create(&a, 16, 65536, &fd))
		broken("arena_create");
	for (int l = 0; l < 60; l++) {
		h.ctl = knock(&h);
		if (say(&h, m, fd) || !hear_type(&h, CTL_WELCOME, &(struct ctl_msg){ 0 }, 500))
			break;		/* it has enough */
		for (uint32_t i = 0; i < BELL_MAX; i++)
			say(&h, record(CTL_BELL, 0, i, 0, 0), ev);
	}
}

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
		arena_unmap(&h.a);
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

/* ---- on the path: lies in shared memory ---- */

static struct ring_shared *mine(struct peer *h) { return &h->a.slot[h->slot].dir[h->a.me]; }
static struct ring_shared *theirs(struct peer *h) { return &h->a.slot[h->slot].dir[!h->a.me]; }

static void lying_wr(uint64_t by, bool rings)
{
	struct peer h;

	get_path(&h);
	put(&h, "hello", 5);
	nap(20);
	atomic_store(&mine(&h)->wr, h.tx.wr + by + (rings ? h.tx.size : 0));
	ring_all(&h);
	must_lose(&h, "wr");
}

static void wr_jumps(void) { lying_wr(1ull << 40, false); }
static void wr_beyond(void) { lying_wr(1, true); }

/* Nothing to read is not looked at: only a victim that looks must see it, the others just get nothing. */
static void wr_back(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "hello", 5);
	nap(10);
	for (int i = 1; i < 6; i++) {
		atomic_store(&mine(&h)->wr, h.tx.wr - (uint64_t)i);
		ring_all(&h);
		nap(1);
	}
}

/* Credit for what was never sent. Told when the victim looks: something must make it send. */
static void rd_beyond(void)
{
	struct peer h;

	get_path(&h);
	atomic_store(&theirs(&h)->rd, h.rx.wr + 100000);
	for (int i = 0; i < 40; i++) {
		put(&h, "0123456789", 10);
		atomic_store(&theirs(&h)->rd, h.rx.wr + (1ull << 40));
		nap(1);
	}
}

static void header_garbage(void)
{
	struct peer h;

	for (size_t i = 0; i < ODDS; i++) {
		get_path(&h);
		atomic_store(&mine(&h)->final, i == 1 ? h.tx.wr - 1 : i == 2 ? h.tx.wr + 3 : odd[i]);
		atomic_store(&mine(&h)->epoch, odd[i]);
		atomic_store(&mine(&h)->cut, odd[ODDS - 1 - i]);
		put(&h, "abc", 3);
		nap(5);
		if (i % 2)
			close(h.ctl);
		if (i % 3 == 0)
			close(h.tcp);
	}
}

static void masks(void)
{
	struct peer h;

	get_path(&h);
	for (int i = 0; i < 50; i++) {
		memset(h.a.side, 0xff, 2 * sizeof *h.a.side);
		memset(h.a.slot[h.slot].side, 0xff, sizeof h.a.slot[h.slot].side);
		for (uint32_t s = 0; s < h.a.slots; s++)
			atomic_store(&h.a.slot[s].dir[0].tx_want, ~0u), atomic_store(&h.a.slot[s].dir[1].tx_want, ~0u);
		put(&h, "0123456789", 10);
		nap(1);
	}
	memset(h.a.side, 0xff, 2 * sizeof *h.a.side);
	ring_all(&h);
}

static void frozen_beyond(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "0123456789", 10);
	nap(20);
	take(&h);
	say_cut(&h, CUT_MSG_FROZEN, h.rx_epoch, h.rx.rd + 1000);
	must_lose(&h, "FROZEN beyond what was sent");
}

/* Less than was consumed: bytes that the victim may no longer have. */
static void frozen_below(void)
{
	struct peer h;

	get_path(&h);
	for (int i = 0; i < 10; i++) {
		put(&h, "0123456789", 10);
		nap(3);
		take(&h);
	}
	say_cut(&h, CUT_MSG_FROZEN, h.rx_epoch, 0);
	put(&h, "0123456789", 10);
}

static void back_early(void)
{
	struct peer h;

	get_path(&h);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 0);
	must_lose(&h, "BACK below what was consumed");
	close(h.tcp);
	get_path(&h);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 1ull << 50);
	put(&h, "abc", 3);
}

/* REWIND, and then none of what was promised. */
static void rewind_and_leave(void)
{
	struct peer h;

	get_path(&h);
	put(&h, "abc", 3);
	say_cut(&h, CUT_MSG_REWIND, h.tx_epoch, 0);
	nap(20);
	put(&h, "def", 3);
	say_cut(&h, CUT_MSG_BACK, h.tx_epoch, 0);
	if (send(h.tcp, "0123456789", 10, MSG_NOSIGNAL) < 0)
		return;
}

static void close_control(void)
{
	struct peer h;

	for (int i = 0; i < 6; i++) {
		if (i < 2)
			get_bound(&h);
		else
			get_path(&h);
		if (i & 1)
			say_cut(&h, i < 2 ? CUT_MSG_ARM : CUT_MSG_REWIND, i < 2 ? 1 : h.tx_epoch, 0);
		if (i >= 4)
			shutdown(h.ctl, SHUT_WR);
		else
			close(h.ctl);
		if (i == 3 && send(h.tcp, "0123456789", 10, MSG_NOSIGNAL) < 0)
			continue;
	}
}

/* TCP ends under the path. */
static void tcp_ends(void)
{
	struct linger hard = { 1, 0 };
	struct peer h;

	for (int i = 0; i < 4; i++) {
		get_path(&h);
		put(&h, "abc", 3);
		if (i & 1) {
			setsockopt(h.tcp, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
			close(h.tcp);
		} else {
			shutdown(h.tcp, SHUT_WR);
		}
		put(&h, "def", 3);
		if (i & 2)
			close(h.ctl);
		nap(5);
	}
}

/* Never reads what the victim echoes into the ring. */
static void never_reads(void)
{
	struct peer h;
	char buf[8192] = { 1 };
	int64_t end = now_ms() + 400;

	get_path(&h);
	while (now_ms() < end) {
		put(&h, buf, sizeof buf);
		nap(1);
	}
}

/* Everything at random while bytes flow both ways. */
static void fuzz(void)
{
	int64_t end = now_ms() + 2000;
	struct peer h;

	while (now_ms() < end) {
		bool wild = rnd() & 1;	/* else the cursors stay credible for longer */

		get_path(&h);
		for (int i = 0; i < 400 && now_ms() < end; i++) {
			uint64_t at = rnd() % (h.a.slots * sizeof *h.a.slot / 8);
			_Atomic uint64_t *w = wild ? (_Atomic uint64_t *)h.a.slot + at : (_Atomic uint64_t *)&h.a.slot[h.slot].side[rnd() & 1] + rnd() % 2;
			char buf[64];

			switch (rnd() % 8) {
			case 0:
				atomic_store(w, rnd());
				break;
			case 1:
				atomic_fetch_xor(w, 1ull << rnd() % 64);
				break;
			case 2:
				atomic_store((_Atomic uint64_t *)h.a.side + rnd() % (2 * sizeof *h.a.side / 8), rnd());
				break;
			case 3:
				if (wild)
					atomic_store(rnd() & 1 ? &mine(&h)->wr : &theirs(&h)->rd, h.tx.wr + rnd() % 70000);
				break;
			case 4:
				say_cut(&h, 1 + (unsigned)(rnd() % 7), h.tx_epoch + (uint32_t)(rnd() % 2), h.tx.wr - rnd() % 20);
				break;
			default:
				memset(buf, (int)rnd(), sizeof buf);
				put(&h, buf, 1 + rnd() % sizeof buf);
				take(&h);
			}
			ring_all(&h);
			if (rnd() % 16 == 0 && hear(&h, &(struct ctl_msg){ 0 }, 0) < 0)
				break;
		}
		close(h.tcp);
		close(h.ctl);
		arena_unmap(&h.a);
		for (int i = 0; i < BELL_MAX; i++)
			if (h.bell[i] >= 0)
				close(h.bell[i]);
		if (h.name >= 0)
			close(h.name);
	}
}
static void fuzz2(void) { fuzz(); }

/* ---- another user ---- */

static void become_other(void)
{
	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		broken("setuid: %s", strerror(errno));
	prctl(PR_SET_DUMPABLE, 1);
}

static void no_peeking(void)
{
	char path[64];
	int n = 0;

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", victim, fd);
		if (open(path, O_RDWR) >= 0)
			n++;
	}
	snprintf(path, sizeof path, "/proc/%d/mem", victim);
	if (n || open(path, O_RDWR) >= 0)
		broken("another user opens the victim's descriptors or memory");
}

/* A connection that root made, claimed by another user. Root's own claim is the control. */
static void claims_other(void)
{
	struct peer h;
	int fd;

	get_tcp(&h);
	become_other();
	h.ctl = knock(&h);
	if (arena_create(&h.a, 16, 65536, &fd))
		broken("arena_create");
	say(&h, record(CTL_HELLO, 0, 0, 0, 0), fd);
	if (!hear_type(&h, CTL_WELCOME, &(struct ctl_msg){ 0 }, 2000))
		broken("not welcome");
	say_bind(&h, 0, h.tcp);
	must_refuse(&h, "another user's connection");
	no_peeking();
}

/* Nobody of that user owns the other end, so nothing of the victim's may come to the meeting point: its socket first of all. */
static void squats(void)
{
	struct ctl_msg m;
	struct peer h;

	peer_take(&h, listener);
	become_other();
	open_name(&h);
	for (int64_t end = now_ms() + 1500; now_ms() < end;) {
		int r;

		if (!readable(h.name, 200))
			continue;
		h.ctl = accept4(h.name, NULL, NULL, SOCK_CLOEXEC);
		r = hear(&h, &m, 200);
		if (r == 1)
			say(&h, record(CTL_WELCOME, 0, 0, 0, 0), -1);
		while (r == 1) {
			if (m.type == CTL_BIND && h.got_fd >= 0)
				broken("the victim handed its TCP socket to another user's process");
			r = hear(&h, &m, 300);
		}
		close(h.ctl);
	}
	no_peeking();
}

/* A true link with another user's process: only that one's connections may be offered on it. */
static void offered(void)
{
	struct ctl_msg m;
	struct peer h;
	int64_t end;
	int r;

	become_other();
	get_bound(&h);
	for (end = now_ms() + 3000; now_ms() < end;) {
		r = hear(&h, &m, 100);
		if (r < 0)
			broken("link closed");
		if (r != 1)
			continue;
		if (m.type == CTL_BIND && (m.tuple.pport == honest_port || m.tuple.lport == honest_port))
			broken("the victim handed the socket of a foreign connection to another user's process");
		if (m.type == CTL_BIND)
			say(&h, record(CTL_NOT_MINE, m.slot, 6, 0, 0), -1);
	}
}

/* ---- the table ---- */

/* KNOWN: fails, nobody has mended it yet; only run when named. */
enum { CALL = 1, SERVE = 2, BOTH = 3, ROOT = 4, KNOWN = 8 };

static const struct row { const char *name; void (*run)(void); int how; } table[] = {
	{ "silent", silent, CALL }, { "bad-hellos", bad_hellos, CALL }, { "huge-arenas", huge_arenas, CALL },
	{ "hang-up-early", hang_up_early, CALL }, { "any-records", any_records, CALL }, { "wrong-records", wrong_records, CALL },
	{ "bad-binds", bad_binds, CALL }, { "many-bells", many_bells, CALL }, { "regular-bell", regular_bell, BOTH },
	{ "full-pipe-bell", full_pipe_bell, BOTH }, { "full-eventfd-bell", full_eventfd_bell, BOTH },
	{ "turned-bell", turned_bell, BOTH | KNOWN },
	{ "lone-arm", lone_arm, CALL }, { "lone-armed", lone_armed, CALL }, { "lone-cut", lone_cut, CALL },
	{ "lone-cut-ok", lone_cut_ok, CALL }, { "lone-rewind", lone_rewind, CALL }, { "lone-frozen", lone_frozen, CALL },
	{ "lone-back", lone_back, CALL }, { "arm-storm", arm_storm, BOTH }, { "deaf", deaf, BOTH },
	{ "absurd-cut", absurd_cut, CALL }, { "cut-in-the-past", cut_in_the_past, CALL }, { "unbinds", unbinds, BOTH },
	{ "wr-jumps", wr_jumps, BOTH }, { "wr-back", wr_back, BOTH }, { "wr-beyond", wr_beyond, BOTH },
	{ "rd-beyond", rd_beyond, BOTH }, { "header-garbage", header_garbage, CALL }, { "masks", masks, BOTH },
	{ "frozen-beyond", frozen_beyond, BOTH }, { "frozen-below", frozen_below, BOTH }, { "back-early", back_early, CALL },
	{ "rewind-and-leave", rewind_and_leave, BOTH }, { "close-control", close_control, CALL }, { "tcp-ends", tcp_ends, CALL },
	{ "never-reads", never_reads, BOTH }, { "fuzz-1", fuzz, CALL }, { "fuzz-2", fuzz2, BOTH },
	{ "claims-other", claims_other, CALL | ROOT }, { "squats", squats, SERVE | ROOT }, { "offered", offered, SERVE | ROOT },
};
#define ROWS (sizeof table / sizeof table[0])

/* ---- what the victim does meanwhile ---- */

/* Nanoseconds on a CPU, all threads. */
static uint64_t cpu_ns(void)
{
	char path[300], buf[100];
	struct dirent *e;
	uint64_t sum = 0;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/task", victim);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", victim, e->d_name);
		f = fopen(path, "r");
		if (f && fgets(buf, sizeof buf, f))
			sum += strtoull(buf, NULL, 10);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return sum;
}

static int count_fds(void)
{
	char path[64];
	int n = 0;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/fd", victim);
	d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n - 2;
}

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

static volatile uint64_t *progress;

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
		struct pollfd p = { .fd = fd, .events = (short)(POLLIN | (sent < sizeof out ? POLLOUT : 0)) };
		ssize_t n;

		poll(&p, 1, 100);
		if (p.revents & POLLOUT && (n = send(fd, out + sent, sizeof out - sent, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
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

static int base_fds;
#define FDS_SLACK 6		/* honest clients come and go */

/* One scenario. NULL, or what went wrong. */
static const char *one(const struct row *r)
{
	static char text[100];
	const char *bad = NULL;
	uint64_t cpu, t;
	int ready[2], st;
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
	cpu = cpu_ns();
	t = (uint64_t)now_ms();
	nap(120);
	t = (uint64_t)now_ms() - t;
	cpu = cpu_ns() - cpu;
	if (!bad)
		bad = honest();
	if (!bad && cpu > t * 600000) {
		snprintf(text, sizeof text, "the victim spins: %d ms of CPU in %d ms", (int)(cpu / 1000000), (int)t);
		bad = text;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	if (!alive())
		return "the victim died";
	for (end = now_ms() + 3000; count_fds() > base_fds + FDS_SLACK && now_ms() < end;)
		nap(10);
	if (count_fds() > base_fds + FDS_SLACK && !bad) {
		snprintf(text, sizeof text, "descriptors: %d, were %d", count_fds(), base_fds);
		bad = text;
	}
	return bad;
}

static bool wanted(const struct row *r, int n, char **names)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], r->name))
			return true;
	return !n && !(r->how & KNOWN);
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
	int names, failed = 0, ran = 0, mode;
	const char *s = getenv("SEED");

	if (argc < 4 || (mode = !strcmp(argv[1], "call") ? CALL : !strcmp(argv[1], "serve") ? SERVE : 0) == 0 ||
	    (mode == SERVE && argc < 6)) {
		fprintf(stderr, "usage: peer call PORT VICTIM [SCENARIO...] | peer serve PORT VICTIM PROGRESS HONEST-PORT [SCENARIO...]\n");
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
		if (bind(listener, (void *)&a, sizeof a) || listen(listener, 64))
			broken("listen: %s", strerror(errno));
	}
	nap(300);	/* honest clients are under way */
	base_fds = count_fds();
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &table[i];
		const char *bad;
		int64_t t = now_ms();

		if (!(r->how & mode) || !wanted(r, argc - names, argv + names) || (r->how & ROOT && geteuid()))
			continue;
		ran++;
		bad = one(r);
		printf("%s %s (%d ms)%s%s\n", bad ? "FAILED" : "ok", r->name, (int)(now_ms() - t), bad ? ": " : "", bad ? bad : "");
		fflush(stdout);
		failed += bad != NULL;
		if (!alive())
			break;
	}
	printf("%d scenarios, %d failed, seed %u\n", ran, failed, seed);
	return failed ? 1 : ran ? 0 : 3;
}
