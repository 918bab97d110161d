/*
 * control.c - the control socket of two processes of one host: connecting to a discovery socket,
 * records of any kind with any descriptors beside them, and the shared memory behind, all by a
 * peer that is genuine as far as the first byte of the input says and then does what the rest
 * says. One stream of ours was accepted, one connected. After each input all is closed: no link,
 * stream or descriptor may be left.
 *
 * LINK: SHIM
 * LIBS: -Wl,--wrap=clock_gettime
 */
#include "world.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static struct chan {
	bool client;		/* our stream connected: the peer has the discovery socket */
	struct stream *s;
	int fd, tcp, name, ctl;	/* ours; the peer's */
	struct segment a;
	struct ctl_tuple t;	/* as the peer sees it */
	uint32_t slot, tx_epoch;
	bool bound, binds;
} chans[2];

static uint8_t buf[1 << 17];
static int some_tcp = -1;

static void say(struct chan *c, unsigned type, uint32_t slot, uint32_t index, uint32_t epoch,
		uint64_t off, int fd)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot,
			     .index = index, .epoch = epoch,
			     .off = off, .tuple = c->t };

	if (c->ctl >= 0)
		ctl_send_fd(c->ctl, &m, fd);
}

static socklen_t name_of_(const struct chan *c, struct sockaddr_un *un)
{
	struct ctl_tuple t = c->t;
	char text[200];
	int n;

	if (c->client)
		tuple_reverse(&t, &c->t);
	n = snprintf(text, sizeof text, "rdmashim1.%04x%04x", t.lport, t.pport);
	for (int i = 0; i < 32; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, "%02x",
			      i < 16 ? t.laddr[i] : t.paddr[i - 16]);
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, text, (size_t)n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* The peer connects. What it gets is the segment of the process. */
static void hello(struct chan *c)
{
	struct sockaddr_un un;
	socklen_t len = name_of_(c, &un);

	c->ctl = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connect(c->ctl, (void *)&un, len)) {
		close(c->ctl);
		c->ctl = -1;
		return;
	}
	say(c, CTL_HELLO, 0, 0, 0, 0, -1);
}

/* The peer is called. A header may lie: what follows is the segment of the peer all the same. */
static void welcome(struct chan *c, struct input *in, bool lie)
{
	int memfd = -1;

	if (segment_create(&c->a, 4, 4096, 0, &memfd))
		abort();
	if (lie) {
		struct segment_header *h = (void *)c->a.base;

		for (int i = get8(in) & 7; i > 0; i--)
			((uint8_t *)h)[get8(in) % sizeof *h] ^= get8(in);
	}
	say(c, CTL_WELCOME, 0, 0, 0, 0, memfd);
	close(memfd);
}

/* What a genuine peer answers to everything that it was told. */
static void genuine(struct chan *c, struct input *in, bool lie)
{
	struct ctl_tuple mine;
	struct ctl_msg m;
	int fd;

	if (c->client && c->ctl < 0 && c->name >= 0) {
		c->ctl = accept4(c->name, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	}
	while (c->ctl >= 0 && ctl_recv(c->ctl, true, &m, &fd) == 1) {
		if (m.type == CTL_HELLO && !c->a.base)
			welcome(c, in, lie);
		if (m.type == CTL_WELCOME && fd >= 0 && !c->a.base) {
			if (segment_attach(&c->a, fd))
				abort();
			c->slot = c->a.slots / 2;
			if (c->binds)
				say(c, CTL_BIND, c->slot, 0, 0, 0, c->tcp);
		}
		if (fd >= 0)
			fd_internal_close(fd);
		tuple_reverse(&mine, &m.tuple);
		if (m.type == CTL_BIND && !tuple_equal(&mine, &c->t)) {
			say(c, CTL_NOT_MINE, m.slot, REASON_NO_PEER_SHIM, 0, 0, -1);
		} else if (m.type == CTL_BIND) {
			c->slot = m.slot;
			c->bound = true;
			say(c, CTL_BOUND, m.slot, 0, 0, 0, c->tcp);
		} else if (m.type == CTL_BOUND) {
			c->bound = true;
		} else if (m.type == CTL_CUT && m.index == CUT_MSG_ARM) {
			say(c, CTL_CUT, m.slot, CUT_MSG_ARMED, m.epoch, 0, -1);
		} else if (m.type == CTL_CUT && m.index == CUT_MSG_CUT) {
			say(c, CTL_CUT, m.slot, CUT_MSG_CUT_OK, m.epoch, m.off, -1);
		} else if (m.type == CTL_CUT && m.index == CUT_MSG_REWIND && c->a.base) {
			say(c, CTL_CUT, m.slot, CUT_MSG_FROZEN, m.epoch,
			    c->a.slot[c->slot & 3].dir[!c->a.me].rd, -1);
		} else if (m.type == CTL_CUT && m.index == CUT_MSG_ARMED && c->a.base) {
			struct ring_tx tx;

			segment_ring_tx(&c->a, c->slot & 3, &tx);
			ring_tx_open(&tx, m.epoch, 0);
			say(c, CTL_CUT, m.slot, CUT_MSG_CUT, m.epoch, 0, -1);
		} else if (m.type == CTL_UNBIND) {
			say(c, CTL_UNBIND, m.slot, 0, 0, 0, -1);
		}
	}
}

static void begin(struct chan *c, bool client)
{
	struct sockaddr_in peer;
	struct sockaddr_storage l = { 0 }, p = { 0 };
	socklen_t len = sizeof l;

	*c = (struct chan){ .client = client, .name = -1, .ctl = -1 };
	tcp_pair(!client, &c->fd, &c->tcp, &peer);
	getsockname(c->tcp, (void *)&l, &len);
	len = sizeof p;
	getpeername(c->tcp, (void *)&p, &len);
	tuple_from(&c->t, (void *)&l, (void *)&p);
	if (client) {
		struct sockaddr_un un;

		len = name_of_(c, &un);
		c->name = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (bind(c->name, (void *)&un, len) || listen(c->name, 4))
			abort();
	}
	c->s = make_stream(!client, c->fd, &peer);
}

/* stage 1: met, 2: bound, 3: cut in both directions */
static void as_far_as(struct chan *c, int stage, struct input *in, bool lie)
{
	skew += 6000;		/* the name is opened a moment later when there are links */
	pump();
	c->binds = stage > 1;
	if (stage > 0 && !c->client)
		hello(c);
	for (int i = 0; i < stage * 2 + (stage > 0); i++) {
		pump();
		genuine(c, in, lie);
		if (i == 3 && stage > 2)
			say(c, CTL_CUT, c->slot, CUT_MSG_ARM, ++c->tx_epoch, 0, -1);
	}
}

static int any_fd(uint8_t k, struct chan *c)
{
	int p[2], fd;

	switch (k & 15) {
	case 0: return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	case 1: return dup(c->tcp);
	case 2: return dup(chans[c == chans].tcp > 0 ? chans[c == chans].tcp : 2);
	case 3: return dup(some_tcp);
	case 4: return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	case 5: return (int)syscall(SYS_memfd_create, "fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	case 6: return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 7: return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 8: return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 9:
		fd = pipe2(p, O_CLOEXEC) ? -1 : p[1];
		close(p[0]);
		return fd;
	default: return -1;
	}
}

static void record(struct chan *c, struct input *in)
{
	struct ctl_msg m = { .version = CTL_VERSION, .tuple = c->t };
	uint8_t what = get8(in), slot;
	int fd;

	m.type = what & 15;
	slot = get8(in);
	m.slot = slot < 128 ? c->slot : slot < 250 ? slot & 7 : (uint32_t)get(in, 4);
	m.index = get8(in);
	if (m.index > 200)
		m.index = (uint32_t)get(in, 4);
	m.epoch = get8(in);
	m.epoch = m.epoch < 128 ? c->tx_epoch : m.epoch < 240 ? m.epoch & 15 : (uint32_t)get(in, 4);
	m.off = get_offset(in, c->a.base && m.slot < 4 ? c->a.slot[m.slot].dir[0].wr : 0);
	if (what & 16)
		tuple_reverse(&m.tuple, &c->t);
	if (what & 32)
		((uint8_t *)&m.tuple)[get8(in) % sizeof m.tuple] ^= get8(in);
	if (what & 64)
		m.version = (uint16_t)get(in, 2);
	fd = any_fd(get8(in), c);
	if (c->ctl >= 0)
		ctl_send_fd(c->ctl, &m, fd);
	if (fd >= 0)
		close(fd);
}

/* Bytes that are no record, with up to six descriptors. */
static void packet(struct chan *c, struct input *in)
{
	union { char b[CMSG_SPACE(6 * sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct iovec iov = { buf, get8(in) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[6], k = get8(in) % 7;

	for (int i = 0; i < k; i++)
		fds[i] = any_fd(get8(in) % 10, c);
	for (size_t i = 0; i < iov.iov_len && in->n; i++)
		buf[i] = get8(in);
	if (k) {
		struct cmsghdr *cm;

		h.msg_control = ctl.b;
		h.msg_controllen = CMSG_SPACE((size_t)k * sizeof(int));
		cm = CMSG_FIRSTHDR(&h);
		*cm = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
					.cmsg_len = CMSG_LEN((size_t)k * sizeof(int)) };
		memcpy(CMSG_DATA(cm), fds, (size_t)k * sizeof(int));
	}
	if (c->ctl >= 0)
		sendmsg(c->ctl, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (int i = 0; i < k; i++)
		close(fds[i]);
}

static void scribble(struct chan *c, struct input *in)
{
	uint8_t k = get8(in);
	struct ring_shared *r;

	if (!c->a.base)
		return;
	r = &c->a.slot[k >> 7 ? c->slot & 3 : k & 3].dir[k >> 6 & 1];
	switch (k >> 2 & 15) {
	case 0: r->wr = get_offset(in, r->wr); break;
	case 1: r->rd = get_offset(in, r->rd); break;
	case 2: r->final = get_offset(in, r->wr); break;
	case 3: r->epoch = get_offset(in, r->epoch); break;
	case 4: r->cut = get_offset(in, r->cut); break;
	case 5: r->tx_want = (uint32_t)get(in, 4); break;
	case 6: r->offer = get8(in) % 8; break;
	case 7: r->offer_addr = k & 64 ? (uintptr_t)buf : get(in, 8); break;
	case 8: r->offer_len = get_offset(in, sizeof buf); break;
	case 9: r->offer_read_n = get_offset(in, r->offer_len); break;
	case 10: c->a.side[k & 1].armed = get(in, 8); break;
	case 11: c->a.side[k & 1].summary = get(in, 8); break;
	case 12: c->a.side[k & 1].dirty[get8(in) & 63] = get(in, 8); break;
	case 13: c->a.slot[k & 3].side[k >> 6 & 1].bells = get(in, 8); break;
	case 14: *(k & 128 ? &r->offer_read : &r->offer_dev) = get(in, 8); break;
	default: c->a.base[get(in, 2) % (uint64_t)(c->a.ring - c->a.base)] = get8(in);
	}
}

static void app(struct chan *c, uint8_t op, struct input *in)
{
	struct iovec iov = { NULL, (size_t)get8(in) << (get8(in) & 9) };
	uint32_t ev;

	if (c->fd < 0)
		return;
	iov.iov_base = malloc(iov.iov_len + 1);
	if (op == 5) {
		memset(iov.iov_base, 0x55, iov.iov_len);
		if (stream_send(c->s, c->fd, &iov, 1, MSG_DONTWAIT | MSG_NOSIGNAL) >
		    (ssize_t)iov.iov_len)
			abort();
	} else if (op == 6) {
		if (stream_recv(c->s, c->fd, &iov, 1,
				MSG_DONTWAIT | (get8(in) & 1 ? MSG_PEEK : 0)) >
		    (ssize_t)iov.iov_len)
			abort();
	} else {
		link_read_enter();
		links_drain(NULL);
		ev = stream_view(c->s).synth;
		stream_at_end(c->s);
		link_read_leave();
		stream_want_room(c->s);
		stream_ioctl_count(c->s, atomic_load(&c->s->gen), c->fd, 0x541B);
		if (!(ev & EPOLLIN) && get8(in) & 1)
			stream_ask_fallback(c->s);
	}
	free(iov.iov_base);
}

static void app_ends(struct chan *c, uint8_t how)
{
	if (c->fd < 0)
		return;
	if (how & 3) {
		stream_shutdown(c->s, atomic_load(&c->s->gen), c->fd, (how & 3) - 1);
		return;
	}
	stream_close(c->s, c->fd);
	c->fd = -1;
}

static void peer_tcp(struct chan *c, uint8_t how)
{
	if (how < 8)
		send(c->tcp, buf, 1 + how * 100, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (how < 16)
		recv(c->tcp, buf, sizeof buf, MSG_DONTWAIT);
	else if (how & 1)
		shutdown(c->tcp, SHUT_WR);
	else
		shutdown(c->tcp, SHUT_RDWR);
}

static void step(struct chan *c, struct input *in)
{
	uint8_t op = get8(in);

	if (op & 16 && chans[1].s)
		c = &chans[1];
	switch (op & 15) {
	case 0: case 1: record(c, in); break;
	case 2: genuine(c, in, false); break;
	case 3: pump(); break;
	case 4: skew += get(in, 2) * 20; break;
	case 5: case 6: case 13: app(c, op & 15, in); break;
	case 7: case 8: scribble(c, in); break;
	case 9: case 10: peer_tcp(c, get8(in)); break;
	case 11: app_ends(c, get8(in)); break;
	case 12: packet(c, in); break;
	case 14:
		if (c->ctl >= 0)
			close(c->ctl);
		c->ctl = -1;
		break;
	case 15:
		if (c->ctl < 0 && !c->a.base && !c->client)
			hello(c);
		break;
	}
}

static void end(struct chan *c)
{
	if (!c->s)
		return;
	app_ends(c, 0);
	close(c->tcp);
	if (c->ctl >= 0)
		close(c->ctl);
	if (c->name >= 0)
		close(c->name);
	segment_unmap(&c->a);
	c->s = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)
{
	static int low, high;
	struct input in = { d, n };
	uint8_t mode = get8(&in);

	if (!atomic_load(&shim_policy)) {
		struct sockaddr_in a;
		int x;

		world_make("earn_bytes 0\nearn_rounds 0\nring_size 4096\nlink_streams 4\nspin 0\n");
		tcp_pair(true, &x, &some_tcp, &a);
	}
	low = next_low();
	high = next_high();
	begin(&chans[0], false);
	as_far_as(&chans[0], mode & 3, &in, false);
	if (mode & 4) {
		begin(&chans[1], true);
		as_far_as(&chans[1], mode >> 3 & 3, &in, mode & 64);
	}
	for (int i = 0; i < 64 && in.n; i++)
		step(&chans[0], &in);
	pump();
	end(&chans[0]);
	end(&chans[1]);
	world_end(low, high);
	return 0;
}
