/* conform_cm.c - connections: made, refused, ended, and the other end's death. */
#include "conform.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define MS 15000

static void private_data(void)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	uint8_t said[256] = { 0 };
	struct rdma_cm_id *l, *c, *s;
	struct end a, b;
	uint16_t port;

	l = listen_at(conform_channel, &port);
	c = resolve(conform_channel, port);
	end_make(&a, c, &w);
	p.private_data = "question";
	p.private_data_len = 8;
	CHECK(!rdma_connect(c, &p));
	cm_expect(conform_channel, RDMA_CM_EVENT_CONNECT_REQUEST, &s, said, MS);
	CHECK(!memcmp(said, "question", 8) && s->verbs && s != l);
	CHECK(ntohs(rdma_get_src_port(s)) == port);
	end_make(&b, s, &w);
	p.private_data = "answer";
	p.private_data_len = 6;
	CHECK(!rdma_accept(s, &p));
	memset(said, 0, sizeof said);
	for (int left = 2; left; left--) {
		struct rdma_cm_id *id;

		cm_expect(conform_channel, RDMA_CM_EVENT_ESTABLISHED, &id, said, MS);
	}
	CHECK(!memcmp(said, "answer", 6));
	CHECK(!rdma_destroy_id(l));
	close_pair(&a, &b);
}

static void reject(void)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	uint8_t said[256] = { 0 };
	struct rdma_cm_id *l, *c, *s;
	struct end a;
	uint16_t port;

	l = listen_at(conform_channel, &port);
	c = resolve(conform_channel, port);
	end_make(&a, c, &w);
	CHECK(!rdma_connect(c, &p));
	cm_expect(conform_channel, RDMA_CM_EVENT_CONNECT_REQUEST, &s, NULL, MS);
	CHECK(!rdma_reject(s, "no", 2));
	CHECK(!rdma_destroy_id(s));
	CHECK(cm_expect(conform_channel, RDMA_CM_EVENT_REJECTED, NULL, said, MS));
	CHECK(!memcmp(said, "no", 2));
	CHECK(!rdma_destroy_id(l));
	end_free(&a);
}

static void nobody_listens(void)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	struct rdma_cm_id *l, *c;
	struct end a;
	uint16_t port;

	l = listen_at(conform_channel, &port);
	CHECK(!rdma_destroy_id(l));
	c = resolve(conform_channel, port);
	end_make(&a, c, &w);
	/* With iWARP the call itself may wait for the answer. */
	if (rdma_connect(c, &p))
		CHECK(conform_iwarp && errno == ECONNREFUSED);
	else
		CHECK(cm_expect(conform_channel, RDMA_CM_EVENT_REJECTED, NULL, NULL, MS));
	end_free(&a);
}

static void port_in_use(void)
{
	struct sockaddr_storage at = conform_addr;
	struct rdma_cm_id *l, *other;
	uint16_t port;

	l = listen_at(conform_channel, &port);
	((struct sockaddr_in *)&at)->sin_port = htons(port);
	CHECK(!rdma_create_id(conform_channel, &other, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(other, (struct sockaddr *)&at) && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(other));
	CHECK(!rdma_destroy_id(l));
}

static void disconnect(void)
{
	struct want w = PLAIN;
	struct rdma_cm_id *id, *other;
	struct end a, b;

	connect_pair(&a, &b, &w);
	CHECK(!post_recv(&a, 1, 0, 64) && !post_recv(&b, 2, 0, 64));
	CHECK(!rdma_disconnect(a.id));
	expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
	cm_expect(conform_channel, RDMA_CM_EVENT_DISCONNECTED, &id, NULL, MS);
	CHECK(conform_iwarp || id == b.id);
	/* With InfiniBand he who began hears of the end when the other one has said his word. */
	CHECK(conform_iwarp || !cm_event(conform_channel, 50));
	rdma_disconnect(b.id);
	cm_expect(conform_channel, RDMA_CM_EVENT_DISCONNECTED, &other, NULL, MS);
	CHECK(other != id);
	expect(&b, 2, IBV_WC_WR_FLUSH_ERR);
	close_pair(&a, &b);
}

/* An identifier is destroyed without a word: the other end hears of it. */
static void destroyed(void)
{
	struct want w = PLAIN;
	struct rdma_cm_id *id;
	struct end a, b;

	connect_pair(&a, &b, &w);
	end_free(&a);
	cm_expect(conform_channel, RDMA_CM_EVENT_DISCONNECTED, &id, NULL, MS);
	CHECK(id == b.id);
	end_free(&b);
}

static void nonblocking(void)
{
	struct rdma_cm_event *e;
	int flags = fcntl(conform_channel->fd, F_GETFL);

	CHECK(!fcntl(conform_channel->fd, F_SETFL, flags | O_NONBLOCK));
	CHECK(rdma_get_cm_event(conform_channel, &e) && errno == EAGAIN);
	CHECK(!fcntl(conform_channel->fd, F_SETFL, flags));
}

/* ---- two processes: nothing was opened before the fork ---- */

/* The child: accepts, echoes until it is killed. */
static void echo(int say)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	struct rdma_cm_id *l, *s;
	struct ibv_wc wc;
	struct end b;
	uint16_t port;

	CHECK(conform_channel = rdma_create_event_channel());
	l = listen_at(conform_channel, &port);
	CHECK(write(say, &port, sizeof port) == sizeof port);
	cm_expect(conform_channel, RDMA_CM_EVENT_CONNECT_REQUEST, &s, NULL, MS);
	end_make(&b, s, &w);
	for (unsigned i = 0; i < 8; i++)
		CHECK(!post_recv(&b, i, i * 4096, 4096));
	CHECK(!rdma_accept(s, &p));
	cm_expect(conform_channel, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL, MS);
	for (;;) {
		wc = wait_wc(&b);
		CHECK(!wc.status);
		CHECK(wc.opcode == IBV_WC_RECV);
		CHECK(!post(&b, IBV_WR_SEND, 100, (uint32_t)wc.wr_id * 4096, wc.byte_len, NULL, 0,
			    IBV_SEND_SIGNALED));
		while (!wc.status && wc.opcode != IBV_WC_SEND)
			wc = wait_wc(&b);
		CHECK(!wc.status && !post_recv(&b, 0, 0, 4096));
	}
	(void)l;
}

static void two_processes(void)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	struct rdma_cm_id *c;
	struct end a;
	uint16_t port;
	int fd[2];
	pid_t child;

	rdma_destroy_event_channel(conform_channel);
	w.ack_timeout = 14;
	CHECK(!pipe(fd));
	child = fork();
	if (!child) {
		setenv("SIMNIC_NODE", "other", 1);
		echo(fd[1]);
	}
	CHECK(read(fd[0], &port, sizeof port) == sizeof port);
	CHECK(conform_channel = rdma_create_event_channel());
	c = resolve(conform_channel, port);
	rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			&(uint8_t){ (uint8_t)w.ack_timeout }, 1);
	end_make(&a, c, &w);
	CHECK(!rdma_connect(c, &p));
	cm_expect(conform_channel, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL, MS);
	for (unsigned i = 0; i < 100; i++) {
		CHECK(!post_recv(&a, i, 100000, 4096));
		fill(&a, 0, 1 + i * 40, i);
		CHECK(!post(&a, IBV_WR_SEND, 1000, 0, 1 + i * 40, NULL, 0, 0));
		for (int left = 2; left; left--)
			CHECK(!wait_wc(&a).status);
		CHECK(filled(&a, 100000, 1 + i * 40, i));
	}
	CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	cm_expect(conform_channel, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL, MS);
	if (!post(&a, IBV_WR_SEND, 1, 0, 8, NULL, 0, IBV_SEND_SIGNALED) && !conform_software)
		CHECK(wait_wc(&a).status != IBV_WC_SUCCESS);
	end_free(&a);
	close(fd[0]);
	close(fd[1]);
}

const struct test cm_tests[] = {
	{ "two_processes", two_processes },
	{ "private_data", private_data },
	{ "reject", reject },
	{ "nobody_listens", nobody_listens },
	{ "port_in_use", port_in_use },
	{ "disconnect", disconnect },
	{ "destroyed", destroyed },
	{ "nonblocking", nonblocking },
	{ NULL, NULL },
};
