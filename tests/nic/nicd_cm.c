/*
 * nicd_cm.c - the connection manager: what the kernel's rdma_cm and ib_cm or iw_cm do. Its messages
 * take cm_ns and the way; they are lost where a port is down. Main thread, the world stopped.
 *
 *   active  ADDR, ROUTE, CONNECT --REQ-->  CONNECT_REQUEST on a new id of the listener's channel
 *           CONNECT_RESPONSE     <--REP--  ACCEPT: its queue pair is RTS
 *           ESTABLISH: queue pair is RTS --RTU-->  ESTABLISHED
 *   either  DISCONNECT --DREQ-->  DISCONNECTED;  DISCONNECTED <--DREP--
 */
#include "nicd.h"
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define UNREACHABLE_NS 3000000000u
#define DREQ_NS        60000000000u	/* and nobody has answered */
#define TIMEWAIT_NS      10000000u
#define ACK_TIMEOUT 17			/* exponent, where nobody said another */

enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_LISTEN,
	ID_ADDR,
	ID_ROUTE,
	ID_CONNECT,
	ID_REQUESTED,
	ID_RESPONSE,
	ID_ACCEPTED,
	ID_CONNECTED,
	ID_DISCONNECTED
};

struct cm_channel { struct obj o; struct pipe fd; };

struct id {
	struct obj o;
	struct cm_channel *ch;
	enum id_state state;
	bool bound;			/* to a device */
	uint32_t device;
	struct nic_addrs addrs;
	uint32_t peer;			/* handle; of any client */
	uint32_t qpn;
	int ack_timeout, tos;
	bool owes_drep;			/* the other end's DREQ waits for our program's word */
	struct nic_conn mine, theirs;	/* parameters as each said them */
	struct id *next;		/* of all */
};
static struct id *ids;

enum msg { M_EVENT, M_REQ, M_REP, M_RTU, M_REJ, M_DREQ, M_DREP };

struct later {
	struct later *next;
	uint64_t at;
	enum msg msg;
	uint32_t to, from;		/* handles */
	int event, status;
	struct nic_conn conn;
};
static struct later *laters;

/* ---- small things ---- */

static struct id *id_of(uint32_t handle)
{
	for (struct id *i = ids; i; i = i->next)
		if (i->o.handle == handle)
			return i;
	return NULL;
}

static uint16_t port_of(const struct sockaddr_storage *a)
{
	return ntohs(((const struct sockaddr_in *)a)->sin_port);
} /* IPv6 has it in the same place */
static void set_port(struct sockaddr_storage *a, uint16_t port)
{
	((struct sockaddr_in *)a)->sin_port = htons(port);
}

static const void *bytes_of(const struct sockaddr_storage *a, size_t *n)
{
	if (a->ss_family == AF_INET6) {
		*n = 16;
		return &((const struct sockaddr_in6 *)a)->sin6_addr;
	}
	*n = 4;
	return &((const struct sockaddr_in *)a)->sin_addr;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	size_t n, m;
	const void *x = bytes_of(a, &n), *y = bytes_of(b, &m);

	return a->ss_family == b->ss_family && !memcmp(x, y, n);
}

static bool is_any(const struct sockaddr_storage *a)
{
	static const uint8_t zeros[16];
	size_t n;
	const void *x = bytes_of(a, &n);

	return !memcmp(x, zeros, n);
}

static void bind_device(struct id *i)
{
	size_t n;
	const uint8_t *x = bytes_of(&i->addrs.src, &n);

	i->bound = true;
	i->device = K.devices > 1 ? x[n - 1] % (uint32_t)K.devices : 0;
}

static void push(struct id *i, int event, int status, const struct id *listener,
		 const struct nic_conn *conn)
{
	struct nic_cm_event e = { .id = i->o.handle,
				  .listen = listener ? listener->o.handle : 0,
				  .event = event,
				  .status = status,
				  .device = i->bound ? i->device : UINT32_MAX,
				  .device_gen = i->o.client->node->gen,
				  .addrs = i->addrs };

	if (conn)
		e.conn = *conn;
	if (i->ch && write(i->ch->fd.out, &e, sizeof e) != sizeof e)
		fprintf(stderr, "nicd: an event of the connection manager is lost\n");
}

/* ---- messages ---- */

static struct later *later(enum msg msg, uint32_t to, uint32_t from, uint64_t ns)
{
	struct later *l = calloc(1, sizeof *l), **at;

	if (!l)
		abort();
	l->msg = msg;
	l->to = to;
	l->from = from;
	l->at = now_ns() + ns;
	for (at = &laters; *at && (*at)->at <= l->at; at = &(*at)->next)
		;
	l->next = *at;
	*at = l;
	return l;
}

static void event_later(struct id *i, int event, int status, uint64_t ns)
{
	struct later *l = later(M_EVENT, i->o.handle, 0, ns);

	l->event = event;
	l->status = status;
}

static bool down(const struct id *i)
{
	return i && (i->o.client->node->port_down || i->o.client->node->removed);
}

/* To the other end of the connection. NULL: it is lost. */
static struct later *message(struct id *from, enum msg msg)
{
	if (down(from) || down(id_of(from->peer)))
		return NULL;
	return later(msg, from->peer, from->o.handle, (uint64_t)K.cm_ns + (uint64_t)K.delay_ns);
}

/* With InfiniBand's messages there is always as much private data as fits. */
static void pad(struct nic_conn *c, unsigned most)
{
	if (!K.iwarp)
		c->private_len = (uint8_t)most;
}

/* ---- queue pairs ---- */

static struct ibv_qp_attr attr_of(const struct id *i)
{
	const struct id *peer = id_of(i->peer);

	return (struct ibv_qp_attr){
		.port_num = 1,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = i->theirs.qpn,
		.rq_psn = i->theirs.qpn & 0xffffff,
		.sq_psn = i->mine.qpn & 0xffffff,
		.max_dest_rd_atomic = i->mine.responder_resources,
		.max_rd_atomic = i->mine.initiator_depth,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   (i->mine.responder_resources
					    ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
					    : 0),
		.min_rnr_timer = 0,
		.retry_cnt = i->mine.retry_count,
		.rnr_retry = i->theirs.rnr_retry_count,
		.timeout = (uint8_t)(i->ack_timeout >= 0 ? i->ack_timeout : ACK_TIMEOUT),
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .traffic_class = (uint8_t)i->tos, .hop_limit = 64 },
			     .dlid = (uint16_t)(peer ? peer->o.client->node->index + 1 : 0) },
	};
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                        \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                               \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

/* Where librdmacm steps a queue pair of its own through its states. */
static int connect_qp(struct id *i)
{
	struct qp *q = qp_find(i->qpn);
	struct ibv_qp_attr a = attr_of(i);
	int r;

	if (!i->qpn)
		return 0;
	if (!q || q->o.client != i->o.client)
		return EINVAL;
	a.qp_state = IBV_QPS_INIT;
	r = qp_modify(q, &a, INIT_MASK);
	a.qp_state = IBV_QPS_RTR;
	if (!r)
		r = qp_modify(q, &a, RTR_MASK);
	a.qp_state = IBV_QPS_RTS;
	return r ? r : qp_modify(q, &a, RTS_MASK);
}

#include "nicd_cm_comes.h"

/* ---- calls ---- */

static int op_channel(struct call *call)
{
	struct cm_channel *ch = obj_new(call->c, K_CM_CHANNEL, sizeof *ch);
	int r = ch ? pipe_make(call, &ch->fd) : ENOMEM;

	if (r) {
		if (ch)
			obj_free(&ch->o);
		return r;
	}
	call->rep->h = ch->o.handle;
	return 0;
}

void cm_channel_gone(struct obj *o)
{
	pipe_end(&((struct cm_channel *)o)->fd);
	obj_free(o);
}

static int op_channel_destroy(struct call *call)
{
	struct cm_channel *ch = obj_get(call->c, call->req->h, K_CM_CHANNEL);

	if (!ch || ch->o.refs)
		return ch ? EBUSY : EINVAL;
	cm_channel_gone(&ch->o);
	return 0;
}

static int op_id(struct call *call, struct id *unused)
{
	struct cm_channel *ch = obj_get(call->c, call->req->h, K_CM_CHANNEL);
	struct id *i = ch ? id_make(call->c, ch) : NULL;

	(void)unused;
	if (!i)
		return ch ? ENOMEM : EINVAL;
	call->rep->h = i->o.handle;
	return 0;
}

static bool gone_from(const void *event, uint32_t handle)
{
	const struct nic_cm_event *e = event;

	return e->id == handle || e->listen == handle;
}

void cm_id_gone(struct obj *o)
{
	struct id *i = (struct id *)o;
	struct later *l;

	if (i->state == ID_REQUESTED) {
		l = message(i, M_REJ);
		if (l)
			l->status = 28;
	} else if (i->state >= ID_CONNECT && i->state != ID_DISCONNECTED) {
		message(i, M_DREQ);
	} else if (i->owes_drep) {
		message(i, M_DREP);
	}
	for (struct id **at = &ids; *at; at = &(*at)->next)
		if (*at == i) {
			*at = i->next;
			break;
		}
	pipe_purge(&i->ch->fd, sizeof(struct nic_cm_event), gone_from, o->handle);
	i->ch->o.refs--;
	obj_free(o);
}

static int op_destroy(struct call *call, struct id *i)
{
	(void)call;
	cm_id_gone(&i->o);
	return 0;
}

static bool taken(const struct id *me, const struct sockaddr_storage *a, uint16_t port)
{
	for (const struct id *i = ids; i; i = i->next)
		if (i != me && i->state >= ID_BOUND && i->state <= ID_CONNECT &&
		    port_of(&i->addrs.src) == port &&
		    (same_host(&i->addrs.src, a) ||
		     (i->state == ID_LISTEN && (is_any(&i->addrs.src) || is_any(a)))))
			return true;
	return false;
}

static int bind_to(struct id *i, const struct sockaddr_storage *a)
{
	static uint16_t next = 40000;
	uint16_t port = port_of(a);

	if (port && taken(i, a, port))
		return EADDRINUSE;
	for (int tries = 0; !port && tries < 20000; tries++) {
		next = (uint16_t)(next >= 60000 ? 40000 : next + 1);
		if (!taken(i, a, next))
			port = next;
	}
	i->addrs.src = *a;
	set_port(&i->addrs.src, port);
	i->state = ID_BOUND;
	if (!is_any(a)) {
		if (i->o.client->node->removed)
			return ENODEV;
		bind_device(i);
	}
	return 0;
}

static void tell(struct call *call, const struct id *i)
{
	memcpy(call->rep->data, &i->addrs, sizeof i->addrs);
	call->rep->h2 = i->bound ? i->device : UINT32_MAX;
	call->rep->h3 = i->o.client->node->gen;
}

static int op_bind(struct call *call, struct id *i)
{
	int r = i->state == ID_IDLE ? bind_to(i, (const void *)call->req->data) : EINVAL;

	tell(call, i);
	return r;
}

static int op_listen(struct call *call, struct id *i)
{
	if (i->state != ID_BOUND)
		return EINVAL;
	i->state = ID_LISTEN;
	tell(call, i);
	return 0;
}

static int op_addr(struct call *call, struct id *i)
{
	const struct nic_addrs *a = (const void *)call->req->data;
	int r = 0;

	if (i->state == ID_IDLE)
		r = bind_to(i, &a->src);
	if (r || i->state != ID_BOUND)
		return r ? r : EINVAL;
	if (is_any(&i->addrs.src)) {
		memcpy(&i->addrs.src, &a->src, sizeof a->src);
		bind_device(i);
	}
	i->addrs.dst = a->dst;
	if (down(i)) {
		event_later(i, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, (uint64_t)K.cm_ns);
	} else {
		i->state = ID_ADDR;
		event_later(i, RDMA_CM_EVENT_ADDR_RESOLVED, 0, (uint64_t)K.cm_ns / 8);
	}
	tell(call, i);
	return 0;
}

static int op_route(struct call *call, struct id *i)
{
	(void)call;
	if (i->state != ID_ADDR)
		return EINVAL;
	i->state = ID_ROUTE;
	event_later(i, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, (uint64_t)K.cm_ns / 8);
	return 0;
}

static bool params_right(const struct nic_conn *c)
{
	return c->responder_resources <= K.max_rd_atom && c->initiator_depth <= K.max_rd_atom &&
	       c->retry_count < 8 && c->rnr_retry_count < 8;
}

static int op_connect(struct call *call, struct id *i)
{
	struct later *l;

	i->mine = *(const struct nic_conn *)call->req->data;
	if ((i->state != ID_ROUTE && i->state != ID_ADDR) || !params_right(&i->mine) ||
	    (!K.iwarp && i->mine.private_len > 56))
		return EINVAL;
	i->qpn = call->req->h2;
	i->state = ID_CONNECT;
	if (down(i)) {
		event_later(i, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, UNREACHABLE_NS);
		return 0;
	}
	l = later(M_REQ, 0, i->o.handle, (uint64_t)K.cm_ns + (uint64_t)K.delay_ns);
	l->conn = i->mine;
	event_later(i, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, 20 * (uint64_t)UNREACHABLE_NS);
	return 0;
}

static int op_accept(struct call *call, struct id *i)
{
	struct later *l;
	int r;

	if (i->state != ID_REQUESTED)
		return EINVAL;
	i->mine = *(const struct nic_conn *)call->req->data;
	i->mine.retry_count = i->theirs.retry_count;
	if (!params_right(&i->mine))
		return EINVAL;
	i->qpn = call->req->h2;
	r = connect_qp(i);
	if (r)
		return r;
	i->state = ID_ACCEPTED;
	l = message(i, M_REP);
	if (l)
		l->conn = i->mine;
	return 0;
}

static int op_establish(struct call *call, struct id *i)
{
	int r = i->state == ID_RESPONSE ? connect_qp(i) : EINVAL;

	(void)call;
	if (r)
		return r;
	i->state = ID_CONNECTED;
	message(i, M_RTU);
	return 0;
}

static int op_reject(struct call *call, struct id *i)
{
	struct later *l;

	if (i->state != ID_REQUESTED && i->state != ID_RESPONSE)
		return EINVAL;
	l = message(i, M_REJ);
	if (l) {
		l->status = K.iwarp ? -ECONNREFUSED : 28;	/* consumer defined */
		l->conn = *(const struct nic_conn *)call->req->data;
		pad(&l->conn, 148);
	}
	i->state = ID_DISCONNECTED;
	return 0;
}

static int op_disconnect(struct call *call, struct id *i)
{
	struct qp *q = qp_find(i->qpn);

	(void)call;
	if (i->state != ID_CONNECTED && i->state != ID_ACCEPTED && i->state != ID_DISCONNECTED)
		return EINVAL;
	if (q && q->o.client == i->o.client)
		qp_error(q);
	if (i->owes_drep) {
		i->owes_drep = false;
		message(i, M_DREP);
		timewait(i);
	} else if (i->state != ID_DISCONNECTED) {
		message(i, M_DREQ);
		later(M_DREP, i->o.handle, 0, DREQ_NS);
	}
	return 0;
}

static int op_option(struct call *call, struct id *i)
{
	if (call->req->h2 == RDMA_OPTION_ID_ACK_TIMEOUT)
		i->ack_timeout = (int)call->req->h3;
	else if (call->req->h2 == RDMA_OPTION_ID_TOS)
		i->tos = (int)call->req->h3;
	return 0;
}

static int op_migrate(struct call *call, struct id *i)
{
	struct cm_channel *ch = obj_get(call->c, call->req->h2, K_CM_CHANNEL);

	if (!ch)
		return EINVAL;
	i->ch->o.refs--;
	i->ch = ch;
	ch->o.refs++;
	return 0;
}

/* rdma_init_qp_attr() */
static int op_attr(struct call *call, struct id *i)
{
	static const int masks[] = {
		[IBV_QPS_INIT] = INIT_MASK, [IBV_QPS_RTR] = RTR_MASK, [IBV_QPS_RTS] = RTS_MASK
	};
	uint32_t to = call->req->h2;
	struct ibv_qp_attr a = attr_of(i);

	if (to < IBV_QPS_INIT || to > IBV_QPS_RTS)
		return EINVAL;
	a.qp_state = to;
	call->rep->h = (uint32_t)masks[to];
	memcpy(call->rep->data, &a, sizeof a);
	return 0;
}

static const struct { int (*call)(struct call *, struct id *); bool makes;
} ops[OPS] = {
	[OP_CM_ID] = { op_id, true },
	[OP_CM_ID_DESTROY] = { op_destroy, false },
	[OP_CM_BIND] = { op_bind, false },
	[OP_CM_LISTEN] = { op_listen, false },
	[OP_CM_ADDR] = { op_addr, false },
	[OP_CM_ROUTE] = { op_route, false },
	[OP_CM_CONNECT] = { op_connect, false },
	[OP_CM_ACCEPT] = { op_accept, false },
	[OP_CM_REJECT] = { op_reject, false },
	[OP_CM_DISCONNECT] = { op_disconnect, false },
	[OP_CM_ESTABLISH] = { op_establish, false },
	[OP_CM_OPTION] = { op_option, false },
	[OP_CM_MIGRATE] = { op_migrate, false },
	[OP_CM_ATTR] = { op_attr, false },
};

int cm_call(struct call *call)
{
	uint32_t op = call->req->op;
	struct id *i = NULL;

	if (op == OP_CM_CHANNEL)
		return op_channel(call);
	if (op == OP_CM_CHANNEL_DESTROY)
		return op_channel_destroy(call);
	if (op >= OPS || !ops[op].call)
		return EOPNOTSUPP;
	if (!ops[op].makes && !(i = obj_get(call->c, call->req->h, K_ID)))
		return EINVAL;
	return ops[op].call(call, i);
}

bool cm_listens(uint16_t port)
{
	for (struct id *i = ids; i; i = i->next)
		if (i->state == ID_LISTEN && port_of(&i->addrs.src) == port)
			return true;
	return false;
}

void cm_removed(struct node *n)
{
	for (struct id *i = ids; i; i = i->next)
		if (i->o.client->node == n && i->bound) {
			push(i, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, NULL);
			if (i->state != ID_LISTEN)
				i->state = ID_DISCONNECTED;
		}
}
