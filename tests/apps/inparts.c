/*
 * inparts.c - of 16 bytes that were sent, 15 are in the reader's kernel and one is on its way, for
 * the cut or the rewind that moves it has not ended. A read that does not wait finds 16, as on TCP,
 * and so do a peek, FIONREAD and a poll between two reads. The sender is this program, without the
 * library, so that each step has its place; the reader is a child with it.
 *
 *	inparts ORDER ASKS		prints what the reader says
 *	inparts left
 *	inparts reader			is the reader
 *
 * ORDER: what the sender still owes when the reader looks
 *	cut	its CUT; the header and the byte are in the ring
 *	crossed	the byte sent again, and BACK: the reader froze before it heard of the cut
 *	frozen	the same; the reader froze after the cut
 *	resent	the byte, which its kernel has not passed on; BACK was said
 *	late	the same; the reader froze before it heard of the cut
 *	left	the same as "resent"; the sender has closed, and gives the slot back
 * ASKS: r recv, v readv of a socket that does not block, w recv that may block, p peek, c FIONREAD,
 *	q recv of 15, poll, and recv; k FIONREAD, without a word, and a peek
 * "left" prints FIONREAD before and after a second and a half in which the reader may give the slot
 * back, whether it does, what is read when the byte has come, and whether it then gives it back.
 * Environment: INPARTS_PRELOAD the library; RDMASHIM_CONF, to which "crossed", "late", "left" add
 *
 * LINK: rdma/shm/segment.c
 */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "../hostile/peer.h"

#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#define LATE_MS 30	/* who does not wait for what is on its way has answered by then */
#define LEAVE_MS 1500	/* who does not keep what was told leaves after a second */

static const char text[] = "0123456789abcdef";

/* ---- the reader ---- */

static void say_what(const char *buf, ssize_t n)
{
	printf("%zd %.*s", n, n > 0 ? (int)n : 0, buf);
}

static void asked(int fd, int how)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[64];
	struct iovec v[2] = { { buf, 7 }, { buf + 7, sizeof buf - 7 } };
	int n = 0, r;

	switch (how) {
	case 'r': say_what(buf, recv(fd, buf, sizeof buf, MSG_DONTWAIT)); break;
	case 'w': say_what(buf, recv(fd, buf, sizeof buf, 0)); break;
	case 'k':
		ioctl(fd, FIONREAD, &n);
		/* fall through */
	case 'p':
		say_what(buf, recv(fd, buf, sizeof buf, MSG_DONTWAIT | MSG_PEEK));
		break;
	case 'c':
		r = ioctl(fd, FIONREAD, &n);
		printf("%d %d", r, n);
		break;
	case 'v':
		fcntl(fd, F_SETFL, O_NONBLOCK);
		say_what(buf, readv(fd, v, 2));
		break;
	case 'q':
		say_what(buf, recv(fd, buf, 15, MSG_DONTWAIT));
		printf(", poll %d, ", poll(&p, 1, 0));
		say_what(buf, recv(fd, buf, sizeof buf, MSG_DONTWAIT));
		break;
	}
	puts("");
}

static int reader(void)
{
	struct sockaddr_in a = loopback(0);
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, c;
	char one;

	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (l < 0 || bind(l, (void *)&a, sizeof a) || listen(l, 1) ||
	    getsockname(l, (void *)&a, &len))
		broken("no listener");
	printf("%d\n", ntohs(a.sin_port));
	fd = accept(l, NULL, NULL);
	if (fd < 0 || recv(fd, &one, 1, 0) != 1 || send(fd, "y", 1, 0) != 1)
		broken("no connection");
	while ((c = getchar()) != EOF)
		asked(fd, c);
	return 0;
}

/* ---- the sender ---- */

static FILE *to, *from;

static void start_reader(const char *self)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		broken("pipe");
	if (!fork()) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		setenv("LD_PRELOAD", getenv("INPARTS_PRELOAD") ?: "", 1);
		execl(self, self, "reader", NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	to = fdopen(in[1], "w");
	from = fdopen(out[0], "r");
}

static int port_of_reader(void)
{
	char line[32] = "";

	if (!fgets(line, sizeof line, from) || atoi(line) < 1)
		broken("no reader");
	return atoi(line);
}

static bool reader_has_cut;

/* The reader's own direction is cut over meanwhile or not, and falls back if it wants to. */
static struct ctl_msg hear_cut(struct peer *h, unsigned msg)
{
	static uint64_t at;
	struct ctl_msg m = { 0 };

	while (hear_type(h, CTL_CUT, &m, 10000)) {
		if (m.index == CUT_MSG_ARM) {
			say_cut(h, CUT_MSG_ARMED, m.epoch, 0);
		} else if (m.index == CUT_MSG_CUT) {
			reader_has_cut = true;
			at = m.off;
			say_cut(h, CUT_MSG_CUT_OK, m.epoch, 0);
		} else if (m.index == CUT_MSG_REWIND) {
			say_cut(h, CUT_MSG_FROZEN, m.epoch, at);
		}
		if (m.index == msg)
			return m;
	}
	broken("the reader does not say %u", msg);
}

static void by_tcp(struct peer *h, const char *p, size_t n)
{
	if (send(h->tcp, p, n, MSG_NOSIGNAL) != (ssize_t)n)
		broken("send");
	h->sent += n;
}

/* 15 bytes in the reader's kernel, and one in the ring of epoch 1. */
static void sent_in_parts(struct peer *h)
{
	int on = 1;

	setsockopt(h->tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	say_cut(h, CUT_MSG_ARM, 1, 0);
	hear_cut(h, CUT_MSG_ARMED);
	by_tcp(h, text, 15);
	ring_tx_open(&h->tx, 1, h->sent);
	put(h, text + 15, 1);
}

static void policy_says_off(void)
{
	FILE *f = fopen(getenv("RDMASHIM_CONF") ?: "", "a");

	if (!f || fputs("mode off\n", f) < 0 || fclose(f))
		broken("no policy file");
}

static void ask(const char *asks)
{
	fputs(asks, to);
	fflush(to);
}

/* Without its newline. */
static const char *reply(void)
{
	static char line[100];

	if (!readable(fileno(from), 10000) || !fgets(line, sizeof line, from))
		broken("the reader does not answer");
	line[strcspn(line, "\n")] = 0;
	return line;
}

enum order { CUT, CROSSED, FROZEN, RESENT, LATE, LEFT };
static const char *const orders[] = { "cut", "crossed", "frozen", "resent", "late", "left" };

/* The reader answers records one after the other, and this one with a no. */
static void has_heard(struct peer *h)
{
	struct ctl_msg m = record(CTL_BIND, h->slot + 1, 0, 0, 0);

	m.tuple = h->tuple;
	m.tuple.lport ^= 1;
	if (say(h, m, h->tcp) || !hear_type(h, CTL_NOT_MINE, &m, 10000))
		broken("a stranger's connection is not refused");
}

/* Up to where the reader is asked. */
static void move_on(struct peer *h, enum order order, uint64_t cut)
{
	if (order == CUT)
		return;
	if (order == CROSSED || order == LATE) {
		policy_says_off();
		hear_cut(h, CUT_MSG_FROZEN);
	} else {
		say_cut(h, CUT_MSG_CUT, 1, cut);
		hear_cut(h, CUT_MSG_CUT_OK);
	}
	if (order == FROZEN || order == RESENT) {
		say_cut(h, CUT_MSG_REWIND, 1, 0);
		hear_cut(h, CUT_MSG_FROZEN);
	}
	if (order == LEFT) {
		if (!reader_has_cut)
			hear_cut(h, CUT_MSG_CUT);
		policy_says_off();
		hear_cut(h, CUT_MSG_FROZEN);
		hear_cut(h, CUT_MSG_BACK);
	}
	if (order >= RESENT)
		say_cut(h, CUT_MSG_BACK, 1, cut + 1);
	if (order == RESENT || order == LATE)
		has_heard(h);
}

static void left_slot(struct peer *h)
{
	struct ctl_msg m;

	ask("c");
	printf("%s, ", reply());
	say(h, record(CTL_UNBIND, h->slot, 0, 0, 0), -1);
	printf("left %d, ", hear_type(h, CTL_UNBIND, &m, LEAVE_MS));
	ask("c");
	printf("%s, ", reply());
	by_tcp(h, text + 15, 1);
	ask("r");
	printf("%s, ", reply());
	printf("left %d\n", hear_type(h, CTL_UNBIND, &m, 10000));
}

int main(int argc, char **argv)
{
	enum order order;
	struct peer h;
	uint64_t cut;

	if (argc == 2 && !strcmp(argv[1], "reader"))
		return reader();
	if (argc < 2)
		broken("see the head of inparts.c");
	for (order = CUT; order < LEFT && strcmp(argv[1], orders[order]); )
		order++;
	if (argc != (order == LEFT ? 2 : 3))
		broken("see the head of inparts.c");
	start_reader(argv[0]);
	peer_call(&h, port_of_reader());
	peer_link(&h);
	peer_bind(&h);
	sent_in_parts(&h);
	cut = h.sent;
	move_on(&h, order, cut);
	if (order == LEFT) {
		left_slot(&h);
		return 0;
	}
	ask(argv[2]);
	readable(fileno(from), LATE_MS);
	if (order == CUT)
		say_cut(&h, CUT_MSG_CUT, 1, cut);
	else
		by_tcp(&h, text + 15, 1);
	if (order == CROSSED || order == FROZEN)
		say_cut(&h, CUT_MSG_BACK, 1, cut + 1);
	puts(reply());
	return 0;
}
