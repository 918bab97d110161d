/*
 * net.c - another host: what comes to the discovery port, to the datagram name behind it, from a
 * port that we call, on the control connection of a link, as connection events and as records on
 * its queue pair. Device and librdmacm are fakes. The first byte says who calls, how far all is
 * genuine, and whether the policy has a key: nobody here knows that, so then there must never be
 * a link. After each input all is closed, and nothing may be left.
 *
 * LINK: SHIM
 * UNLINK: rdma/verbs/verbs.c
 * LIBS: -Wl,--wrap=clock_gettime
 */
#include "world.h"

#include <sys/eventfd.h>
#include <sys/un.h>

#pragma clang diagnostic ignored "-Wbitwise-instead-of-logical"
#pragma clang diagnostic ignored "-Wunused-function"
#include "../unit/fake_verbs.h"
#include "../../shim/discovery/net_msg.h"
#include "../../rdma/verbs/cm.h"
#include "fake_cm.h"

struct verbs verbs;
int verbs_load(void) { return 0; }
bool verbs_loaded(void) { return true; }
bool verbs_forks_apart(void) { return false; }

static uint16_t port;
static const struct policy *by_address, *by_key, *other;
static int port_listener = -1, call = -1, tcp = -1, fd = -1;
static struct stream *s;
static bool server, bound;
static struct ctl_tuple t;	/* as the peer sees it */
static uint32_t syn;		/* where we accept: the timestamp of the peer's SYN */
static uint8_t token[CM_TOKEN];
static uint32_t slot, life;
static struct ctl_msg got;
static size_t got_n;
static uint8_t text[4096];
static int device_fd[2];

static int fake_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)p;
	fake_id_of(id)->accepted = true;
	return 0;
}

static struct ibv_comp_channel *channel(struct ibv_context *c)
{
	struct ibv_comp_channel *ch = fake_channel(c);

	close(ch->fd);
	ch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return ch;
}

static void put(const void *p, size_t n)
{
	if (call >= 0)
		send(call, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void net_say(unsigned type, struct input *in)
{
	struct net_msg m = { .magic = "rdmashim", .order = 0x01020304, .version = NET_VERSION,
			     .type = (uint16_t)type, .pid = 42, .tuple = t };

	memcpy(m.magic, "rdmashim", 8);
	for (int i = in ? get8(in) & 3 : 0; i > 0; i--)
		((uint8_t *)&m)[get8(in) % sizeof m] ^= get8(in);
	put(&m, sizeof m);
}

static void with_syn(struct ctl_msg *m)
{
	m->tuple = (struct ctl_tuple){ .pport = 1 };
	memcpy(m->tuple.paddr, &syn, sizeof syn);
}

static void say(unsigned type, uint32_t index, uint32_t epoch, uint64_t off)
{
	struct ctl_msg m = { .type = (uint16_t)type, .version = CTL_VERSION, .slot = slot,
			     .index = index, .epoch = epoch, .off = off, .tuple = t };

	if (type == CTL_BOUND)
		with_syn(&m);
	put(&m, sizeof m);
}

static socklen_t name_(struct sockaddr_un *un)
{
	int n = 10;

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, "rdmashimN.", 10);
	for (unsigned i = 0; i < sizeof t; i++)
		n += snprintf(un->sun_path + 1 + n, 3, "%02x", ((uint8_t *)&t)[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Calls the port. `pass`: by a datagram to the name, as who holds the port would. */
static void ring_up(bool pass, struct input *in)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger reset = { 1, 0 };
	struct timeval patience = { 0, 50000 };	/* where nobody accepts the queue is full after a
						 * few */

	if (call >= 0)
		return;
	if (pass) {
		union { char b[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } c = { 0 };
		struct net_msg m = { .order = 0x01020304, .version = NET_VERSION, .type = 1,
				     .tuple = t };
		struct iovec iov = { &m, sizeof m };
		struct sockaddr_un un;
		struct msghdr h = { .msg_name = &un, .msg_iov = &iov, .msg_iovlen = 1,
				    .msg_control = c.b, .msg_controllen = sizeof c.b };
		struct sockaddr_in peer;
		struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
		int theirs, d = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		memcpy(m.magic, "rdmashim", 8);
		for (int i = in ? get8(in) & 3 : 0; i > 0; i--)
			((uint8_t *)&m)[get8(in) % sizeof m] ^= get8(in);
		/* whole, or its beginning only, as of a holder of another version, or too little */
		iov.iov_len -= in ? (uint8_t[]){ 0, 0, 0, 0, 0, 1, 80, 81, 1 }[get8(in) % 9] : 0;
		h.msg_namelen = name_(&un);
		tcp_pair(true, &theirs, &call, &peer);
		*cm = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
					.cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(cm), in && get8(in) & 1 ? &d : &theirs, sizeof(int));
		sendmsg(d, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
		close(d);
		close(theirs);
		return;
	}
	call = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(call, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	if (connect(call, (void *)&a, sizeof a)) {
		close(call);
		call = -1;
		return;
	}
	setsockopt(call, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	fcntl(call, F_SETFL, O_NONBLOCK);
}

static struct fake_id *id_that(bool listens)
{
	for (int i = 0; i < FAKE_IDS; i++)
		if (fake_ids[i].id && fake_ids[i].id->context && fake_ids[i].listens == listens)
			return &fake_ids[i];
	return NULL;
}

static void happens(enum rdma_cm_event_type e, const uint8_t *data, size_t n)
{
	struct fake_id *f = id_that(e == RDMA_CM_EVENT_CONNECT_REQUEST);
	uint64_t one = 1;

	if (!f)
		return;
	fake_happens(f, e, 0, data, n);
	if (write(fake_events_channel.fd, &one, sizeof one) < 0)
		abort();
	link_net_events(0);
}

/* Everything that came is answered as a genuine peer would. */
static void genuine(void)
{
	struct net_msg m;
	ssize_t n;

	if (!server && call < 0) {
		struct linger reset = { 1, 0 };

		call = accept4(port_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (call >= 0)
			setsockopt(call, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
		got_n = 0;
	}
	while (call >= 0 && recv(call, &m, sizeof m, MSG_DONTWAIT | MSG_PEEK) == sizeof m &&
	       !memcmp(m.magic, "rdmashim", 8)) {
		if (recv(call, &m, sizeof m, MSG_DONTWAIT) < 0)
			return;
		if (m.type == 1)
			net_say(2, NULL);
		if (m.type == 2) {
			net_say(3, NULL);
			say(CTL_HELLO, 2, 0, 4096);
		}
	}
	while (call >= 0 &&
	       (n = recv(call, (char *)&got + got_n, sizeof got - got_n, MSG_DONTWAIT)) > 0) {
		got_n += (size_t)n;
		if (got_n < sizeof got)
			continue;
		got_n = 0;
		switch (got.type) {
		case CTL_HELLO:
			say(CTL_WELCOME, 0, 0, 0);
			pump();
			happens(RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
			happens(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0);
			happens(RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
			break;
		case CTL_WELCOME:
			memcpy(token, got.tuple.paddr, sizeof token);
			happens(RDMA_CM_EVENT_CONNECT_REQUEST, token, sizeof token);
			happens(RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
			say(CTL_BIND, 77, life, 0x7000000);
			break;
		case CTL_BIND:
			slot = got.slot;
			life = got.epoch;
			bound = true;
			say(CTL_BOUND, 78, life, 0x7000000);
			break;
		case CTL_BOUND:
			bound = true;
			break;
		case CTL_CUT:
			if (got.index == CUT_MSG_ARM)
				say(CTL_CUT, CUT_MSG_ARMED, got.epoch, 0);
			else if (got.index == CUT_MSG_CUT)
				say(CTL_CUT, CUT_MSG_CUT_OK, got.epoch, got.off);
			else if (got.index == CUT_MSG_ARMED)
				say(CTL_CUT, CUT_MSG_CUT, got.epoch, 0);
			else if (got.index == CUT_MSG_REWIND)
				say(CTL_CUT, CUT_MSG_FROZEN, got.epoch, 0);
			break;
		case CTL_UNBIND:
			say(CTL_UNBIND, 0, 0, 0);
			break;
		}
	}
}

/* A record lands in a receive buffer, or a completion that failed. */
static void record(struct input *in)
{
	struct fake_end *e = &fake[0];
	struct ibv_recv_wr *w = &e->rq[e->rq_head % FAKE_WR];
	uint8_t k = get8(in), raw[RC_REC_MAX] = { 0 };
	struct rc_rec *r = (void *)raw;
	uint32_t n;

	if (e->rq_head == e->rq_tail)
		return;
	*r = (struct rc_rec){ .slot = (uint16_t)(k & 1 ? slot : k & 2 ? RC_NO_SLOT : get(in, 2)),
			      .life = (uint16_t)(k & 4 ? get(in, 2) : life),
			      .len = get8(in), .acked = (uint32_t)(k & 8 ? get(in, 4) : get8(in)),
				      .final = RING_NO_FINAL };
	r->wr = get_offset(in, r->len);
	r->rd = get_offset(in, 0);
	if (k & 16)
		r->final = get_offset(in, r->wr);
	n = (uint32_t)sizeof *r + r->len + (k & 32 ? get8(in) : 0);
	if (n > RC_REC_MAX)
		n = RC_REC_MAX;
	memcpy((void *)(uintptr_t)w->sg_list->addr, raw, n);
	e->rq_head++;
	fake_wc(e, w->wr_id, (k & 192) == 192 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS,
		k & 64 && k & 32 ? (uint32_t)get(in, 3) : n);
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		wire_ready(i);
}

/* The device carries out what was posted. */
static void device(void)
{
	struct fake_end *e = &fake[0];

	for (; e->sq_head != e->sq_tail && !e->broken; e->sq_head++)
		if (e->sq[e->sq_head % FAKE_WR].signalled)
			fake_wc(e, e->sq[e->sq_head % FAKE_WR].id, IBV_WC_SUCCESS, 0);
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		wire_ready(i);
}

static void app(uint8_t op, struct input *in)
{
	struct iovec iov = { text, (size_t)get8(in) * 16 };

	if (fd < 0)
		return;
	if (op == 7)
		stream_send(s, fd, &iov, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (op == 8)
		stream_recv(s, fd, &iov, 1, MSG_DONTWAIT);
	else if (op == 9 && get8(in) & 1)
		stream_shutdown(s, atomic_load(&s->gen), fd, SHUT_WR);
	else if (op == 9)
		stream_ask_fallback(s);
}

static void step(struct input *in)
{
	struct ctl_msg m;
	uint8_t op = get8(in), data[64];
	size_t n;

	switch (op & 15) {
	case 0: net_say(get8(in) % 6, in); break;
	case 1:
		m = (struct ctl_msg){ .type = get8(in) & 15, .version = CTL_VERSION, .slot = slot,
				      .epoch = life, .tuple = t };
		m.index = get8(in);
		m.off = get_offset(in, 4096);
		if (m.type == CTL_BOUND)
			with_syn(&m);
		for (int i = get8(in) & 3; i > 0; i--)
			((uint8_t *)&m)[get8(in) % sizeof m] ^= get8(in);
		put(&m, sizeof m);
		break;
	case 2: genuine(); break;
	case 3: pump(); break;
	case 4: skew += get(in, 2) * 50; break;
	case 5: record(in); break;
	case 6: device(); break;
	case 7: case 8: case 9: app(op & 15, in); break;
	case 10:
		n = get8(in) & 63;
		for (size_t i = 0; i < n; i++)
			data[i] = get8(in);
		happens(get8(in) & 15, data, n);
		break;
	case 11:
		n = get8(in);
		for (size_t i = 0; i < n && i < sizeof data; i++)
			data[i] = get8(in);
		put(data, n < sizeof data ? n : sizeof data);
		break;
	case 12: ring_up(op & 16, in); break;
	case 13:
		if (call >= 0)
			close(call);
		call = -1;
		break;
	case 14: cm_fails = get8(in); break;
	case 15: send(tcp, text, get8(in), MSG_DONTWAIT | MSG_NOSIGNAL); break;
	}
}

static void listen_at_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1;

	port_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(port_listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(port_listener, (void *)&a, sizeof a) || listen(port_listener, 8))
		abort();
}

static void begin(uint8_t mode)
{
	struct sockaddr_storage l = { 0 }, p = { 0 };
	struct sockaddr_in peer;
	socklen_t len = sizeof l;

	fake_init();
	fake[0].ctx.async_fd = device_fd[0];
	fake[0].ctx.cmd_fd = device_fd[1];
	verbs.ibv_create_comp_channel = channel;
	fake_cm_init(&fake[0].ctx);
	cm_fails = 0;
	bound = false;
	slot = 0;
	life = 1;
	got_n = 0;
	server = mode & 1;
	world_policy(mode & 2 ? by_key : by_address);
	if (!server)
		listen_at_port();
	tcp_pair(server, &fd, &tcp, &peer);
	getsockname(tcp, (void *)&l, &len);
	len = sizeof p;
	getpeername(tcp, (void *)&p, &len);
	tuple_from(&t, (void *)&l, (void *)&p);
	if (!server && identity_syn(tcp, &syn))
		abort();
	s = make_stream(server, fd, &peer);
	pump();
	if (server && mode & 4) {
		ring_up(mode & 8, NULL);
		if (!(mode & 8))
			net_say(1, NULL);
	}
	for (int i = 0; i < (mode >> 4 & 7); i++) {
		pump();
		genuine();
		device();
	}
}

static void end(void)
{
	stream_close(s, fd);
	close(tcp);
	if (call >= 0)
		close(call);
	if (port_listener >= 0)
		close(port_listener);
	call = port_listener = fd = -1;
	cm_fails = 0;
}

static bool all_links_free(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (atomic_load(&links[i].state) != LINK_FREE)
			return false;
	return true;
}

static const struct policy *parse(const char *file)
{
	char conf[400];
	struct policy *p;
	struct policy_error err;

	snprintf(conf, sizeof conf,
		 "earn_bytes 0\nearn_rounds 0\nspin 0\ndiscovery_port %u\nrdma_ring "
		 "4096\nrdma_streams 2\nrdma_retry 10ms\n%s\nuse rdma both *:*\n",
		 port, file);
	if (policy_parse(conf, strlen(conf), "fuzz", &p, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	return p;
}

static char file[200];

static void gone(void) { unlink(file); }

static void first(void)
{
	static char line[220];
	int f;

	port = (uint16_t)(20000 + getpid() % 10000);
	snprintf(file, sizeof file, "%s/fuzz-net-key.%d",
		 getenv("FUZZ_TMP") ? getenv("FUZZ_TMP") : "/tmp", getpid());
	f = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (f < 0 || write(f, "sixteen bytes or more of a secret", 33) != 33)
		abort();
	close(f);
	device_fd[0] = dup(2);
	device_fd[1] = dup(2);
	snprintf(line, sizeof line, "key_file %s", file);
	world_make("spin 0\n");
	other = atomic_load(&shim_policy);
	by_address = parse("rdma_networks 127.0.0.0/8");
	by_key = parse(line);
	atexit(gone);
}

int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)
{
	static bool warm;
	struct input in = { d, n };
	uint8_t mode = get8(&in);
	int low, high;

	if (!by_key)
		first();
	if (!warm) {	/* event channel, watches */
		warm = true;
		begin(0);
		end();
		world_end(-1, -1);
		net_after_fork();
	}
	low = next_low();
	high = next_high();
	begin(mode);
	for (int i = 0; i < 64 && in.n; i++) {
		step(&in);
		if (mode & 2 && !all_links_free())
			abort();
	}
	pump();
	if (mode & 2 && !all_links_free())
		abort();
	end();
	skew += 10000000;	/* who refused is asked again */
	net_after_fork();
	world_end(low, high);
	return 0;
}
