/*
 * conform_cast.c - many nodes to one, through the switch's buffer: stopped ports, lost packets,
 * marked ones. Each end is a process. All bytes must be right, and the device must say that it was
 * so.
 */
#include "conform.h"

#include <stdarg.h>
#include <sys/wait.h>

#define SENDERS 8
#define STRIPE  (BUF / SENDERS)
#define ROUNDS  12
#define MS      20000

static void tell(const char *words)
{
	char cmd[512];

	snprintf(cmd, sizeof cmd, "%s %s ctl %s", getenv("NICD"), getenv("SIMNIC_DIR"), words);
	if (system(cmd))
		FAIL("%s", cmd);
}

/* The number before that word in what is known of a node. */
static unsigned long counted_at(const char *node, const char *word)
{
	char cmd[512], line[512], *at;
	unsigned long n;
	FILE *f;

	snprintf(cmd, sizeof cmd, "%s %s ctl stat %s", getenv("NICD"), getenv("SIMNIC_DIR"), node);
	CHECK(f = popen(cmd, "r"));
	CHECK(fgets(line, sizeof line, f) && (at = strstr(line, word)));
	pclose(f);
	for (at--; at > line && at[-1] != ' '; at--)
		;
	CHECK(sscanf(at, "%lu", &n) == 1);
	return n;
}

/* Of all nodes. */
static unsigned long counted(const char *word)
{
	unsigned long sum = counted_at("a", word);
	char node[16];

	for (int k = 1; k <= SENDERS; k++) {
		snprintf(node, sizeof node, "n%d", k);
		sum += counted_at(node, word);
	}
	return sum;
}

/* A sender: its stripe again and again, and a word when it is there. */
static void sender(int k, uint16_t port)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	uint64_t to[2];
	struct rdma_cm_id *c;
	struct end a, there = { 0 };
	struct ibv_mr mr;
	char node[16];

	snprintf(node, sizeof node, "n%d", k + 1);
	setenv("SIMNIC_NODE", node, 1);
	CHECK(conform_channel = rdma_create_event_channel());
	c = resolve(conform_channel, port);
	rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &(uint8_t){ 14 }, 1);
	end_make(&a, c, &w);
	CHECK(!post_recv(&a, 1, BUF - 64, 64));
	CHECK(!rdma_connect(c, &p));
	cm_expect(conform_channel, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL, MS);
	expect(&a, 1, IBV_WC_SUCCESS);
	memcpy(to, a.buf + BUF - 64, sizeof to);
	mr = (struct ibv_mr){ .rkey = (uint32_t)to[1] };
	there = (struct end){ .buf = (uint8_t *)(uintptr_t)to[0], .mr = &mr };
	fill(&a, 0, STRIPE, 100u * (unsigned)k);
	for (uint64_t i = 0; i < ROUNDS; i++)
		CHECK(!post(&a, IBV_WR_RDMA_WRITE, i, 0, STRIPE, &there, (uint32_t)k * STRIPE,
			    IBV_SEND_SIGNALED));
	/* With iWARP that is completed when it is there, not when it was sent. */
	CHECK(!post(&a, IBV_WR_RDMA_READ, ROUNDS, BUF - 128, 1, &there, 0, IBV_SEND_SIGNALED));
	CHECK(!post(&a, IBV_WR_SEND, ROUNDS + 1, 0, 1, NULL, 0,
		    IBV_SEND_SIGNALED | IBV_SEND_FENCE));
	for (uint64_t i = 0; i <= ROUNDS + 1; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	/* Not before the other end has all its answers: who is gone gives none. */
	cm_expect(conform_channel, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL, MS);
	_exit(0);
}

/* The one that all send to: all their ends in one process. */
static void receiver(void)
{
	struct want w = PLAIN;
	struct rdma_conn_param p = params_of(&w);
	struct end b[SENDERS];
	struct rdma_cm_id *l;
	uint16_t port;
	int status, fd[2];

	rdma_destroy_event_channel(conform_channel);
	CHECK(!pipe(fd));
	for (int k = 0; k < SENDERS; k++)
		if (!fork()) {
			CHECK(read(fd[0], &port, sizeof port) == sizeof port);
			sender(k, port);
		}
	CHECK(conform_channel = rdma_create_event_channel());
	l = listen_at(conform_channel, &port);
	for (int k = 0; k < SENDERS; k++)
		CHECK(write(fd[1], &port, sizeof port) == sizeof port);
	for (int k = 0, requests = 0, up = 0; up < SENDERS; k++) {
		struct rdma_cm_event *e = cm_event(conform_channel, MS);
		struct rdma_cm_id *id;

		CHECK(e);
		id = e->id;
		status = (int)e->event;
		rdma_ack_cm_event(e);
		if (status == RDMA_CM_EVENT_CONNECT_REQUEST) {
			end_make(&b[requests], id, &w);
			CHECK(!post_recv(&b[requests], 1, BUF - 64, 64));
			id->context = &b[requests++];
			CHECK(!rdma_accept(id, &p));
		} else {
			struct end *e = id->context;
			uint64_t to[2] = { (uintptr_t)e->buf, e->mr->rkey };

			CHECK(status == RDMA_CM_EVENT_ESTABLISHED);
			memcpy(e->buf + BUF - 64, to, sizeof to);
			CHECK(!post(e, IBV_WR_SEND, 2, BUF - 64, 64, NULL, 0, IBV_SEND_SIGNALED));
			up++;
		}
	}
	for (int k = 0; k < SENDERS; k++) {
		struct ibv_wc wc = wait_wc(&b[k]);
		uint64_t first = wc.wr_id;

		CHECK(!wc.status);
		wc = wait_wc(&b[k]);
		CHECK(!wc.status && first + wc.wr_id == 3);
		CHECK(!rdma_disconnect(b[k].id));
	}
	for (int k = 0; k < SENDERS; k++)
		CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
	for (int k = 0, found = 0; k < SENDERS; k++, found = 0) {
		for (int i = 0; i < SENDERS; i++)
			found |= filled(&b[k], i * STRIPE, STRIPE - (i == SENDERS - 1 ? 64 : 0),
					100u * (unsigned)i);
		CHECK(found);
	}
	(void)l;
}

static void cast(void)
{
	int status;

	if (!fork()) {
		receiver();
		_exit(0);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
}

static void clear(void)
{
	char words[32];

	for (int k = 0; k <= SENDERS; k++) {
		snprintf(words, sizeof words, k ? "stat n%d >/dev/null" : "clear a", k);
		if (k)
			snprintf(words, sizeof words, "clear n%d 2>/dev/null || :", k);
		tell(words);
	}
}

static void cast_pause(void)
{
	clear();
	tell("set mbps=500 buffer=65536 pause=1");
	cast();
	tell("set mbps=12500 buffer=0");
	if (!counted("pauses") || counted("lost"))
		FAIL("%lu pauses, %lu lost", counted("pauses"), counted("lost"));
}

static void cast_loss(void)
{
	if (conform_iwarp)
		conform_skip("its TCP sends it again");
	clear();
	tell("set mbps=500 buffer=262144 pause=0");
	cast();
	tell("set mbps=12500 buffer=0 pause=1");
	if (!counted("lost"))
		FAIL("%lu pauses, none lost", counted("pauses"));
}

/* Whose packets are marked hears of it, and sends them further apart; nobody does without. */
static void cast_marks(void)
{
	unsigned long marked, slowed, spaced;

	for (int on = 0; on < 2; on++) {
		clear();
		tell(on ? "set mbps=500 buffer=262144 pause=1 ecn=65536"
			: "set mbps=500 buffer=262144 pause=1");
		cast();
		tell("set mbps=12500 buffer=0 ecn=0");
		marked = counted_at("a", "marked");
		slowed = counted("slowed");
		spaced = counted("spaced");
		if (on ? !marked || !slowed || slowed > marked || !spaced
		       : marked || slowed || spaced)
			FAIL("marks %s: %lu marked, %lu slowed, %lu spaced", on ? "on" : "off",
			     marked, slowed, spaced);
	}
}

const struct test cast_tests[] = { { "cast_pause", cast_pause },
				   { "cast_loss", cast_loss },
				   { "cast_marks", cast_marks },
				   { NULL, NULL } };
