/*
 * rdmacm.c - librdmacm.so.1 of the simulated device: identifiers, connections and their events. The
 * kernel's half is in nicd_cm.c. Synchronous identifiers (no channel), datagrams, multicast and
 * rsockets are not there.
 */
#include "lib.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#define BUCKETS 1024
#define CONTEXTS 64

struct channel { struct rdma_event_channel c; uint32_t handle; };

struct id {
	struct rdma_cm_id id;
	uint32_t handle, events, acked;
	uint8_t responder_resources, initiator_depth;	/* that the request offered */
	struct ibv_sa_path_rec path;
	struct id *next;
};

struct event {
	struct rdma_cm_event e;
	struct id *of;			/* whose count it is in */
	uint8_t private_data[NIC_PRIVATE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;
static struct id *ids[BUCKETS];
static struct { struct ibv_context *verbs; uint32_t gen; struct ibv_pd *pd; } contexts[CONTEXTS];

static int result(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

static int call(struct nic_req *req, struct nic_rep *rep)
{
	return nic_call(req, rep, NULL);
}

static int simple(uint32_t op, struct rdma_cm_id *id, uint32_t h2, uint32_t h3)
{
	struct nic_req req = { .op = op, .h = ((struct id *)id)->handle, .h2 = h2, .h3 = h3 };
	struct nic_rep rep;

	return result(call(&req, &rep));
}

/* ---- channels ---- */

NIC_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct nic_req req = { .op = OP_CM_CHANNEL };
	struct nic_rep rep;
	struct nic_fds fds = { 0 };
	struct channel *ch = calloc(1, sizeof *ch);
	int r = ch ? nic_call(&req, &rep, &fds) : ENOMEM;

	if (r) {
		free(ch);
		errno = r;
		return NULL;
	}
	ch->c.fd = fds.out[0];
	ch->handle = rep.h;
	return &ch->c;
}

NIC_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	struct nic_req req = { .op = OP_CM_CHANNEL_DESTROY, .h = ((struct channel *)c)->handle };
	struct nic_rep rep;

	call(&req, &rep);
	raw(SYS_close, c->fd);
	free(c);
}

/* ---- identifiers ---- */

static struct id *id_of(uint32_t handle)
{
	struct id *i = ids[handle % BUCKETS];

	while (i && i->handle != handle)
		i = i->next;
	return i;
}

static struct id *id_new(uint32_t handle, struct rdma_event_channel *ch, void *context,
			 enum rdma_port_space ps)
{
	struct id *i = calloc(1, sizeof *i);

	if (!i)
		return NULL;
	i->handle = handle;
	i->id.channel = ch;
	i->id.context = context;
	i->id.ps = ps;
	i->id.qp_type = IBV_QPT_RC;
	pthread_mutex_lock(&lock);
	i->next = ids[handle % BUCKETS];
	ids[handle % BUCKETS] = i;
	pthread_mutex_unlock(&lock);
	return i;
}

NIC_EXPORT int rdma_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context,
			      enum rdma_port_space ps)
{
	struct nic_req req = { .op = OP_CM_ID };
	struct nic_rep rep;
	struct id *i;
	int r;

	if (!ch || (ps != RDMA_PS_TCP && ps != RDMA_PS_IB))
		return result(EOPNOTSUPP);
	req.h = ((struct channel *)ch)->handle;
	r = call(&req, &rep);
	if (r)
		return result(r);
	i = id_new(rep.h, ch, context, ps);
	if (!i)
		return result(ENOMEM);
	*id = &i->id;
	return 0;
}

NIC_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;
	int r = simple(OP_CM_ID_DESTROY, id, 0, 0);

	if (r && errno != EINVAL)
		return r;
	pthread_mutex_lock(&lock);
	for (struct id **at = &ids[i->handle % BUCKETS]; *at; at = &(*at)->next)
		if (*at == i) {
			*at = i->next;
			break;
		}
	while (i->events != i->acked)
		pthread_cond_wait(&acked, &lock);
	pthread_mutex_unlock(&lock);
	free(i);
	return 0;
}

/* The context of a device: one for all identifiers, another when it has been removed and has come
 * back. */
static struct ibv_context *context_of(uint32_t device, uint32_t gen)
{
	struct ibv_context *c = NULL;

	if (device >= CONTEXTS)
		return NULL;
	pthread_mutex_lock(&lock);
	if (contexts[device].verbs && contexts[device].gen == gen) {
		c = contexts[device].verbs;
	} else {
		c = nic_open(device, &contexts[device].gen);
		contexts[device].verbs = c;
		contexts[device].pd = NULL;
	}
	pthread_mutex_unlock(&lock);
	return c;
}

static void gids(struct id *i)
{
	struct rdma_ib_addr *a = &i->id.route.addr.addr.ibaddr;
	const struct sockaddr_storage *ends[2] = { &i->id.route.addr.src_storage,
						   &i->id.route.addr.dst_storage };
	union ibv_gid *to[2] = { &a->sgid, &a->dgid };

	a->pkey = 0xffff;
	for (int k = 0; k < 2; k++) {
		if (ends[k]->ss_family == AF_INET6) {
			memcpy(to[k]->raw, &((const struct sockaddr_in6 *)ends[k])->sin6_addr, 16);
			continue;
		}
		memset(to[k]->raw, 0, 10);
		memset(to[k]->raw + 10, 0xff, 2);
		memcpy(to[k]->raw + 12, &((const struct sockaddr_in *)ends[k])->sin_addr, 4);
	}
}

/* What the other side said of the identifier. */
static void learn(struct id *i, const struct nic_addrs *a, uint32_t device, uint32_t gen)
{
	memcpy(&i->id.route.addr.src_storage, &a->src, sizeof a->src);
	memcpy(&i->id.route.addr.dst_storage, &a->dst, sizeof a->dst);
	gids(i);
	if (i->id.verbs || device == UINT32_MAX)
		return;
	i->id.verbs = context_of(device, gen);
	i->id.port_num = 1;
}

static socklen_t size_of(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* Is it an address of ours? And what is ours for one of another's? *ret is to be filled. */
static int local_address(const struct sockaddr *local, const struct sockaddr *remote,
			 struct sockaddr_storage *ret)
{
	const struct sockaddr *a = local ? local : remote;
	struct sockaddr_storage any = { .ss_family = a->sa_family };
	socklen_t n = sizeof *ret;
	long s = raw(SYS_socket, a->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	if (s < 0)
		return (int)-s;
	memcpy(&any, a, size_of(a));
	if (local)
		((struct sockaddr_in *)&any)->sin_port = 0;
	r = local ? raw(SYS_bind, s, &any, size_of(a)) : raw(SYS_connect, s, &any, size_of(a));
	if (r >= 0)
		r = raw(SYS_getsockname, s, ret, &n);
	raw(SYS_close, s);
	((struct sockaddr_in *)ret)->sin_port =
		local ? ((const struct sockaddr_in *)local)->sin_port : 0;
	return r < 0 ? (int)-r : 0;
}

NIC_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct nic_req req = { .op = OP_CM_BIND, .h = ((struct id *)id)->handle };
	struct sockaddr_storage a = { 0 };
	struct nic_rep rep;
	int r = local_address(addr, NULL, &a);

	if (r)
		return result(r);
	memcpy(req.data, &a, sizeof a);
	r = call(&req, &rep);
	if (!r)
		learn((struct id *)id, (void *)rep.data, rep.h2, rep.h3);
	return result(r);
}

NIC_EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	(void)backlog;
	if (!id->route.addr.src_addr.sa_family && rdma_bind_addr(id, (struct sockaddr *)&any))
		return -1;
	return simple(OP_CM_LISTEN, id, 0, 0);
}

NIC_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
				 int ms)
{
	struct nic_req req = { .op = OP_CM_ADDR, .h = ((struct id *)id)->handle };
	struct nic_addrs a = { 0 };
	struct nic_rep rep;
	int r;

	(void)ms;
	r = local_address(src, dst, &a.src);
	if (r)
		return result(r);
	memcpy(&a.dst, dst, size_of(dst));
	memcpy(req.data, &a, sizeof a);
	r = call(&req, &rep);
	if (!r)
		learn((struct id *)id, (void *)rep.data, rep.h2, rep.h3);
	return result(r);
}

NIC_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	struct id *i = (struct id *)id;

	(void)ms;
	i->path = (struct ibv_sa_path_rec){ .sgid = id->route.addr.addr.ibaddr.sgid,
					    .dgid = id->route.addr.addr.ibaddr.dgid,
					    .pkey = 0xffff,
					    .mtu = IBV_MTU_4096,
					    .hop_limit = 64,
					    .packet_life_time = 16 };
	id->route.path_rec = &i->path;
	id->route.num_paths = 1;
	return simple(OP_CM_ROUTE, id, 0, 0);
}

NIC_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *val, size_t len)
{
	if (level == RDMA_OPTION_ID &&
	    (name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT))
		return len == 1 ? simple(OP_CM_OPTION, id, (uint32_t)name, *(uint8_t *)val)
				: result(EINVAL);
	if (level == RDMA_OPTION_ID &&
	    (name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY))
		return 0;
	return result(ENOSYS);
}

NIC_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *ch)
{
	int r = ch ? simple(OP_CM_MIGRATE, id, ((struct channel *)ch)->handle, 0)
		   : result(EOPNOTSUPP);

	if (!r)
		id->channel = ch;
	return r;
}

NIC_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}
NIC_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id->route.addr.dst_sin.sin_port;
}

/* ---- queue pairs ---- */

static struct ibv_pd *default_pd(struct rdma_cm_id *id)
{
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (contexts[i].verbs == id->verbs) {
			if (!contexts[i].pd)
				contexts[i].pd = ibv_alloc_pd(id->verbs);
			return contexts[i].pd;
		}
	return NULL;
}

static int to_init(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int r = ibv_modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (r) {
		ibv_destroy_qp(qp);
		return result(r);
	}
	id->qp = qp;
	id->pd = qp->pd;
	return 0;
}

NIC_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp *qp;

	if (id->qp || !id->verbs)
		return result(EINVAL);
	if (!pd)
		pd = default_pd(id);
	if (!pd || pd->context != id->verbs)
		return result(EINVAL);
	qp = ibv_create_qp(pd, a);
	return qp ? to_init(id, qp) : -1;
}

NIC_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp *qp;

	if (id->qp || !id->verbs)
		return result(EINVAL);
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = default_pd(id);
	}
	qp = ibv_create_qp_ex(id->verbs, a);
	return qp ? to_init(id, qp) : -1;
}

NIC_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp)
		ibv_destroy_qp(id->qp);
	id->qp = NULL;
}

NIC_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	struct nic_req req = { .op = OP_CM_ATTR,
			       .h = ((struct id *)id)->handle,
			       .h2 = a->qp_state };
	struct nic_rep rep;
	int r = call(&req, &rep);

	if (r)
		return result(r);
	memcpy(a, rep.data, sizeof *a);
	*mask = (int)rep.h;
	return 0;
}

/* ---- connecting ---- */

static struct nic_conn conn_of(const struct rdma_cm_id *id, const struct rdma_conn_param *p,
			       const struct id *offered)
{
	struct nic_conn c = { .retry_count = 7, .rnr_retry_count = 7 };

	if (offered) {
		c.responder_resources = offered->responder_resources;
		c.initiator_depth = offered->initiator_depth;
	}
	if (p) {
		c.responder_resources = p->responder_resources == RDMA_MAX_RESP_RES
						? c.responder_resources
						: p->responder_resources;
		c.initiator_depth = p->initiator_depth == RDMA_MAX_INIT_DEPTH ? c.initiator_depth
									      : p->initiator_depth;
		c.flow_control = p->flow_control;
		c.retry_count = p->retry_count & 7;
		c.rnr_retry_count = p->rnr_retry_count & 7;
		c.private_len = p->private_data_len;
		memcpy(c.private_data, p->private_data ? p->private_data : "",
		       p->private_data ? p->private_data_len : 0);
	}
	c.qpn = id->qp ? id->qp->qp_num : p ? p->qp_num : 0;
	return c;
}

static int with_conn(uint32_t op, struct rdma_cm_id *id, const struct nic_conn *c)
{
	struct nic_req req = { .op = op,
			       .h = ((struct id *)id)->handle,
			       .h2 = id->qp ? id->qp->qp_num : 0 };
	struct nic_rep rep;

	memcpy(req.data, c, sizeof *c);
	return result(call(&req, &rep));
}

NIC_EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id most = { .responder_resources = (uint8_t)id->verbs->num_comp_vectors };
	struct ibv_device_attr d;
	struct nic_conn c;

	ibv_query_device(id->verbs, &d);
	most.responder_resources = most.initiator_depth = (uint8_t)d.max_qp_rd_atom;
	c = conn_of(id, p, &most);
	return with_conn(OP_CM_CONNECT, id, &c);
}

NIC_EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct nic_conn c = conn_of(id, p, (struct id *)id);
	int r = with_conn(OP_CM_ACCEPT, id, &c);

	if (!r && id->qp)
		id->qp->state = IBV_QPS_RTS;
	return r;
}

NIC_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t n)
{
	struct nic_conn c = { .private_len = n };

	memcpy(c.private_data, data ? data : "", data ? n : 0);
	return with_conn(OP_CM_REJECT, id, &c);
}

NIC_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t n)
{
	return rdma_reject(id, data, n);
}

NIC_EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	return id->qp ? result(EINVAL) : simple(OP_CM_ESTABLISH, id, 0, 0);
}

NIC_EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	int r = simple(OP_CM_DISCONNECT, id, 0, 0);

	if (!r && id->qp)
		id->qp->state = IBV_QPS_ERR;
	return r;
}

NIC_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type e)
{
	(void)id, (void)e;
	return 0;
}

/* ---- events ---- */

static void request(struct event *e, struct id *listener, const struct nic_cm_event *n)
{
	struct id *i = id_new(n->id, listener->id.channel, listener->id.context, listener->id.ps);

	if (!i)
		return;
	i->responder_resources = n->conn.responder_resources;
	i->initiator_depth = n->conn.initiator_depth;
	learn(i, &n->addrs, n->device, n->device_gen);
	e->e.id = &i->id;
	e->e.listen_id = &listener->id;
}

/* The active end's queue pair is made ready when the program looks at its events. */
static void establish(struct event *e)
{
	if (simple(OP_CM_ESTABLISH, e->e.id, 0, 0)) {
		e->e.event = RDMA_CM_EVENT_CONNECT_ERROR;
		e->e.status = -errno;
		return;
	}
	e->e.event = RDMA_CM_EVENT_ESTABLISHED;
	e->e.id->qp->state = IBV_QPS_RTS;
}

/* False: nobody is there any more to hear of it. */
static bool take(struct event *e, const struct nic_cm_event *n)
{
	uint32_t whose = n->event == RDMA_CM_EVENT_CONNECT_REQUEST ? n->listen : n->id;
	struct rdma_conn_param *p = &e->e.param.conn;
	struct id *i;

	pthread_mutex_lock(&lock);
	i = id_of(whose);
	if (i)
		i->events++;
	pthread_mutex_unlock(&lock);
	if (!i)
		return false;
	e->of = i;
	e->e.id = &i->id;
	e->e.event = (enum rdma_cm_event_type)n->event;
	e->e.status = n->status;
	memcpy(e->private_data, n->conn.private_data, NIC_PRIVATE);
	*p = (struct rdma_conn_param){ .private_data = n->conn.private_len ? e->private_data : NULL,
				       .private_data_len = n->conn.private_len,
				       .responder_resources = n->conn.responder_resources,
				       .initiator_depth = n->conn.initiator_depth,
				       .flow_control = n->conn.flow_control,
				       .retry_count = n->conn.retry_count,
				       .rnr_retry_count = n->conn.rnr_retry_count,
				       .qp_num = n->conn.qpn };
	if (e->e.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		request(e, i, n);
	else if (e->e.event == RDMA_CM_EVENT_CONNECT_RESPONSE && i->id.qp)
		establish(e);
	return true;
}

NIC_EXPORT int rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ret)
{
	struct event *e = calloc(1, sizeof *e);
	struct nic_cm_event n;
	long got;

	while (e && (got = raw(SYS_read, ch->fd, &n, sizeof n)) == sizeof n)
		if (take(e, &n)) {
			*ret = &e->e;
			return 0;
		}
	free(e);
	return result(!e ? ENOMEM : got < 0 ? (int)-got : nic_ended(ch->fd));
}

NIC_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *e)
{
	pthread_mutex_lock(&lock);
	((struct event *)e)->of->acked++;
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&lock);
	free(e);
	return 0;
}

NIC_EXPORT const char *rdma_event_str(enum rdma_cm_event_type e)
{
	static const char *const words[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED",	 "RDMA_CM_EVENT_ADDR_ERROR",
		"RDMA_CM_EVENT_ROUTE_RESOLVED",	 "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR",	 "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED",	 "RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED",	 "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN",	 "RDMA_CM_EVENT_MULTICAST_ERROR",
		"RDMA_CM_EVENT_ADDR_CHANGE",	 "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	return (unsigned)e < sizeof words / sizeof *words ? words[e] : "UNKNOWN EVENT";
}

/* ---- devices, addresses ---- */

NIC_EXPORT struct ibv_context **rdma_get_devices(int *n)
{
	struct ibv_context **list = calloc(2, sizeof *list);

	if (list)
		list[0] = context_of(0, contexts[0].gen);
	if (n)
		*n = list && list[0];
	return list;
}

NIC_EXPORT void rdma_free_devices(struct ibv_context **list) { free(list); }

static struct sockaddr *copy(const struct sockaddr *a, socklen_t n)
{
	struct sockaddr *p = calloc(1, sizeof(struct sockaddr_storage));

	if (p)
		memcpy(p, a, n);
	return p;
}

NIC_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
				const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct addrinfo want = { .ai_family = hints ? hints->ai_family : 0,
				 .ai_socktype = SOCK_STREAM },
			*got;
	bool passive = hints && (hints->ai_flags & RAI_PASSIVE);
	struct rdma_addrinfo *a;
	int r;

	want.ai_flags = (passive ? AI_PASSIVE : 0) |
			(hints && (hints->ai_flags & RAI_NUMERICHOST) ? AI_NUMERICHOST : 0);
	r = getaddrinfo(node, service, &want, &got);
	if (r)
		return r;
	a = calloc(1, sizeof *a);
	if (a) {
		a->ai_family = got->ai_family;
		a->ai_port_space =
			hints && hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
		a->ai_qp_type = IBV_QPT_RC;
		a->ai_flags = hints ? hints->ai_flags : 0;
		*(passive ? &a->ai_src_addr : &a->ai_dst_addr) =
			copy(got->ai_addr, got->ai_addrlen);
		*(passive ? &a->ai_src_len : &a->ai_dst_len) = got->ai_addrlen;
		if (!passive && hints && hints->ai_src_addr) {
			a->ai_src_addr = copy(hints->ai_src_addr, hints->ai_src_len);
			a->ai_src_len = hints->ai_src_len;
		}
	}
	freeaddrinfo(got);
	*res = a;
	return a ? 0 : EAI_MEMORY;
}

NIC_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *a)
{
	free(a->ai_src_addr);
	free(a->ai_dst_addr);
	free(a);
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NO(ret, name, params) NIC_EXPORT ret name params { errno = EOPNOTSUPP; return -1; }
NO(int, rdma_create_ep,
   (struct rdma_cm_id * *id, struct rdma_addrinfo *a, struct ibv_pd *pd,
    struct ibv_qp_init_attr *q))
NO(int, rdma_get_request, (struct rdma_cm_id *l, struct rdma_cm_id **id))
NO(int, rdma_join_multicast, (struct rdma_cm_id *id, struct sockaddr *a, void *c))
NO(int, rdma_leave_multicast, (struct rdma_cm_id *id, struct sockaddr *a))
NO(int, rdma_set_local_ece, (struct rdma_cm_id *id, struct ibv_ece *e))
NO(int, rdma_get_remote_ece, (struct rdma_cm_id *id, struct ibv_ece *e))
struct pollfd;
NO(int, rpoll, (struct pollfd *p, unsigned long n, int ms))
NIC_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id) { }
