/*
 * verbs.c - libibverbs.so.1 of the simulated device: devices, contexts, and the objects that
 * programs make. The calls and what they return are those of the manual pages; the names and symbol
 * versions those of rdma-core's library.
 */
#include "lib.h"
#include <endian.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;
static struct ibv_device devices[DEVICES];
static struct nic_cq *cqs;
static struct nic_srq *srqs;
static bool fork_wanted;

static const struct nic_knobs *knobs(void) { return &nic_page()->knobs; }
static struct nic_context *context_of(struct ibv_context *c)
{
	return (struct nic_context *)((char *)c - offsetof(struct nic_context, v.context));
}

static int call(uint32_t op, uint32_t h)
{
	struct nic_req req = { .op = op, .h = h };
	struct nic_rep rep;

	return nic_call(&req, &rep, NULL);
}

static void *failed(int err)
{
	errno = err;
	return NULL;
}

/* The daemon makes a queue, of rep->a bytes that both see. 0, or an error number. */
static int make_queue(struct nic_req *req, struct nic_rep *rep, void **ret)
{
	struct nic_fds fds = { 0 };
	int r = nic_call(req, rep, &fds);

	if (r)
		return r;
	*ret = nic_map(fds.out[0], rep->a);
	return *ret ? 0 : ENOMEM;
}

/* ---- devices ---- */

static void describe(unsigned i)
{
	struct ibv_device *d = &devices[i];

	d->node_type = knobs()->iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
	d->transport_type = knobs()->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	snprintf(d->name, sizeof d->name, "simnic%u", i);
	snprintf(d->dev_name, sizeof d->dev_name, "uverbs-simnic%u", i);
	snprintf(d->dev_path, sizeof d->dev_path, "/nonexistent/simulated/uverbs%u", i);
	snprintf(d->ibdev_path, sizeof d->ibdev_path, "/nonexistent/simulated/simnic%u", i);
}

static bool port_up(uint32_t *ret_node)
{
	struct nic_req req = { .op = OP_QUERY_PORT };
	struct nic_rep rep;

	if (nic_call(&req, &rep, NULL))
		return false;
	*ret_node = rep.h2;
	return rep.h;
}

NIC_EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
	int r = nic_connected(), have = r ? 0 : (int)knobs()->devices;
	struct ibv_device **list;

	have = have > DEVICES ? DEVICES : have;
	if (n)
		*n = have;
	list = calloc((size_t)have + 1, sizeof *list);
	for (int i = 0; list && i < have; i++) {
		describe((unsigned)i);
		list[i] = &devices[i];
	}
	return list;
}

NIC_EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }
NIC_EXPORT const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
NIC_EXPORT __be64 ibv_get_device_guid(struct ibv_device *d)
{
	return htobe64(0x02000000fe000000u + (uint64_t)(d - devices));
}
NIC_EXPORT int ibv_get_device_index(struct ibv_device *d) { return (int)(d - devices); }

static uint32_t node_index(void)
{
	uint32_t n = 0;

	port_up(&n);
	return n;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len)
{
	struct ibv_port_attr p = { .max_mtu = IBV_MTU_4096,
				   .active_mtu = IBV_MTU_4096,
				   .gid_tbl_len = 2,
				   .max_msg_sz = 1u << 31,
				   .pkey_tbl_len = 1,
				   .active_width = 2,
				   .active_speed = 32,
				   .phys_state = 5,
				   .max_vl_num = 1 };
	uint32_t node = 0;
	bool up;

	(void)c;
	if (port != 1)
		return EINVAL;
	up = port_up(&node);
	p.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	p.link_layer = knobs()->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	p.lid = knobs()->infiniband ? (uint16_t)(node + 1) : 0;
	memset(a, 0, len);
	memcpy(a, &p, len < sizeof p ? len : sizeof p);
	return 0;
}

/* The symbol fills what there was when it was made. */
NIC_EXPORT int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a)
{
	return query_port(c, port, (struct ibv_port_attr *)a,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

NIC_EXPORT int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	const struct nic_knobs *k = knobs();

	*a = (struct ibv_device_attr){
		.node_guid = ibv_get_device_guid(c->device),
		.sys_image_guid = ibv_get_device_guid(c->device),
		.max_mr_size = (uint64_t)k->max_mr_size,
		.page_size_cap = 0xfffff000,
		.max_qp = (int)k->max_qp,
		.max_qp_wr = (int)k->max_wr,
		.max_sge = (int)k->max_sge,
		.max_sge_rd = k->iwarp ? 1 : (int)k->max_sge,
		.max_cq = 65536,
		.max_cqe = (int)k->max_cqe,
		.max_mr = (int)k->max_mr,
		.max_pd = 65536,
		.max_qp_rd_atom = (int)k->max_rd_atom,
		.max_res_rd_atom = (int)(k->max_rd_atom * k->max_qp),
		.max_qp_init_rd_atom = (int)k->max_rd_atom,
		.atomic_cap = k->iwarp ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
		.max_srq = 65536,
		.max_srq_wr = (int)k->max_wr,
		.max_srq_sge = (int)k->max_sge,
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
		.max_ah = 65536,
	};
	strcpy(a->fw_ver, "simulated");
	return 0;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *a, size_t n)
{
	(void)in;
	memset(a, 0, n);
	return ibv_query_device(c, &a->orig_attr);
}

/* Of a node: a link-local one, and, but for InfiniBand, one of an address. */
static int gid_of(uint32_t index, union ibv_gid *gid)
{
	uint32_t node = node_index();

	if (index > 1)
		return ENODATA;
	memset(gid, 0, sizeof *gid);
	gid->raw[15] = (uint8_t)(node + 1);
	gid->raw[14] = (uint8_t)((node + 1) >> 8);
	if (!index) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
	} else {
		gid->raw[10] = gid->raw[11] = 0xff;
		gid->raw[12] = 10;
	}
	return 0;
}

NIC_EXPORT int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	errno = port == 1 && index >= 0 ? gid_of((uint32_t)index, gid) : EINVAL;
	return errno ? -1 : 0;
}

NIC_EXPORT int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
				 struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	(void)c;
	if (port != 1 || flags || size < sizeof *e)
		return EINVAL;
	*e = (struct ibv_gid_entry){ .gid_index = index,
				     .port_num = 1,
				     .gid_type = knobs()->infiniband ? IBV_GID_TYPE_IB
								     : IBV_GID_TYPE_ROCE_V2 };
	return gid_of(index, &e->gid);
}

NIC_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max,
					uint32_t flags, size_t size)
{
	size_t n = max < 2 ? max : 2;

	for (size_t i = 0; i < n; i++)
		if (_ibv_query_gid_ex(c, 1, (uint32_t)i, &e[i], flags, size))
			return -EINVAL;
	return (ssize_t)n;
}

NIC_EXPORT int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	(void)c, (void)port;
	*pkey = 0xffff;
	return index ? -1 : 0;
}

NIC_EXPORT int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 pkey)
{
	(void)c, (void)port;
	return pkey == 0xffff ? 0 : -1;
}

/* ---- contexts ---- */

static struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);

static void fill(struct nic_context *n, struct ibv_device *d, int async)
{
	struct verbs_context *v = &n->v;

	v->sz = sizeof *v;
	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->create_qp_ex = create_qp_ex;
	v->context = (struct ibv_context){ .device = d,
					   .async_fd = async,
					   .num_comp_vectors = (int)knobs()->vectors,
					   .abi_compat = __VERBS_ABI_IS_EXTENDED };
	v->context.ops.poll_cq = nic_poll_cq;
	v->context.ops.req_notify_cq = nic_arm_cq;
	v->context.ops.post_send = nic_post_send;
	v->context.ops.post_recv = nic_post_recv;
	v->context.ops.post_srq_recv = nic_post_srq;
	v->context.cmd_fd = (int)raw(SYS_memfd_create, "simnic-cmd", 1);
	pthread_mutex_init(&v->context.mutex, NULL);
}

NIC_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct nic_req req = { .op = OP_OPEN, .a = (uint64_t)(d - devices) };
	struct nic_fds fds = { 0 };
	struct nic_rep rep;
	struct nic_context *n = calloc(1, sizeof *n);
	int r = n ? nic_call(&req, &rep, &fds) : ENOMEM;

	if (r) {
		free(n);
		return failed(r);
	}
	n->handle = rep.h;
	n->device = (uint32_t)(d - devices);
	n->gen = rep.h2;
	fill(n, d, fds.out[0]);
	return &n->v.context;
}

NIC_EXPORT struct ibv_context *nic_open(uint32_t device, uint32_t *ret_gen)
{
	struct ibv_context *c;

	if (device >= DEVICES || nic_connected())
		return failed(ENODEV);
	describe(device);
	c = ibv_open_device(&devices[device]);
	if (c)
		*ret_gen = context_of(c)->gen;
	return c;
}

NIC_EXPORT int ibv_close_device(struct ibv_context *c)
{
	struct nic_context *n = context_of(c);
	int r = call(OP_CLOSE, n->handle);

	if (r == EBUSY || r == EINVAL) {
		errno = r;
		return -1;
	}
	raw(SYS_close, c->async_fd);
	raw(SYS_close, c->cmd_fd);
	free(n);
	return 0;
}

bool nic_fork_wanted(void) { return fork_wanted; }

NIC_EXPORT int ibv_fork_init(void)
{
	if (!fork_wanted && nic_registered())
		return EINVAL;
	fork_wanted = true;
	return 0;
}

static void other_pages(void *at, size_t bytes)
{
	void *copy = malloc(bytes);

	if (!copy)
		return;
	memcpy(copy, at, bytes);
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == at)
		memcpy(at, copy, bytes);
	free(copy);
}

/* After fork() in a parent whose driver needed ibv_fork_init(): the queues' pages are copied
 * when it writes to them, and the card keeps the old ones. */
static void forked(void)
{
	if (nic_connected() || knobs()->fork_state != IBV_FORK_DISABLED || fork_wanted)
		return;
	for (unsigned i = 0; i < NIC_QPS; i++)
		if (nic_qps[i])
			other_pages(nic_qps[i]->mem, nic_qps[i]->bytes);
}

__attribute__((constructor)) static void start(void) { pthread_atfork(NULL, forked, NULL); }

NIC_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	enum ibv_fork_status s =
		nic_connected() ? IBV_FORK_DISABLED : (enum ibv_fork_status)knobs()->fork_state;

	return s == IBV_FORK_DISABLED && fork_wanted ? IBV_FORK_ENABLED : s;
}

/* ---- domains ---- */

NIC_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct nic_req req = { .op = OP_ALLOC_PD, .h = context_of(c)->handle };
	struct nic_rep rep;
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	int r = pd ? nic_call(&req, &rep, NULL) : ENOMEM;

	if (r) {
		free(pd);
		return failed(r);
	}
	*pd = (struct ibv_pd){ c, rep.h };
	return pd;
}

NIC_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int r = call(OP_DEALLOC_PD, pd->handle);

	if (!r)
		free(pd);
	return r;
}

/* ---- completion queues ---- */

struct nic_channel { struct ibv_comp_channel c; uint32_t handle; };

NIC_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct nic_req req = { .op = OP_CREATE_CHANNEL };
	struct nic_fds fds = { 0 };
	struct nic_rep rep;
	struct nic_channel *ch = calloc(1, sizeof *ch);
	int r = ch ? nic_call(&req, &rep, &fds) : ENOMEM;

	if (r) {
		free(ch);
		return failed(r);
	}
	ch->c = (struct ibv_comp_channel){ .context = c, .fd = fds.out[0] };
	ch->handle = rep.h;
	return &ch->c;
}

NIC_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	int r = call(OP_DESTROY_CHANNEL, ((struct nic_channel *)c)->handle);

	if (r)
		return r;
	raw(SYS_close, c->fd);
	free(c);
	return 0;
}

NIC_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context,
					struct ibv_comp_channel *ch, int vector)
{
	struct nic_req req = { .op = OP_CREATE_CQ,
			       .h = context_of(c)->handle,
			       .h2 = ch ? ((struct nic_channel *)ch)->handle : 0,
			       .a = cqe > 0 ? (uint64_t)cqe : 0,
			       .b = (uint64_t)(unsigned)vector };
	struct nic_rep rep;
	struct nic_cq *q = calloc(1, sizeof *q);
	void *mem;
	int r = q ? make_queue(&req, &rep, &mem) : ENOMEM;

	if (r) {
		free(q);
		return failed(r);
	}
	q->mem = mem;
	q->bytes = rep.a;
	q->cq = (struct ibv_cq){
		.context = c, .channel = ch, .cq_context = cq_context, .handle = rep.h, .cqe = cqe
	};
	pthread_mutex_init(&q->cq.mutex, NULL);
	pthread_cond_init(&q->cq.cond, NULL);
	pthread_mutex_lock(&lock);
	q->next = cqs;
	cqs = q;
	pthread_mutex_unlock(&lock);
	return &q->cq;
}

NIC_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	(void)cq, (void)cqe;
	return EOPNOTSUPP;
}

NIC_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct nic_cq *q = (struct nic_cq *)cq;
	int r = call(OP_DESTROY_CQ, cq->handle);

	if (r == EBUSY)
		return r;
	pthread_mutex_lock(&lock);
	while (cq->comp_events_completed != q->events)
		pthread_cond_wait(&acked, &lock);
	for (struct nic_cq **at = &cqs; *at; at = &(*at)->next)
		if (*at == q) {
			*at = q->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	raw(SYS_munmap, q->mem, q->bytes);
	free(q);
	return 0;
}

static struct nic_cq *cq_of(uint32_t handle)
{
	struct nic_cq *q = cqs;

	while (q && q->cq.handle != handle)
		q = q->next;
	return q;
}

NIC_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context)
{
	struct nic_cq *q;
	uint64_t cookie;
	long n;

	for (;;) {
		n = raw(SYS_read, ch->fd, &cookie, sizeof cookie);
		if (n != sizeof cookie) {
			errno = n < 0 ? (int)-n : nic_ended(ch->fd);
			return -1;
		}
		pthread_mutex_lock(&lock);
		q = cq_of((uint32_t)cookie);	/* NULL: destroyed meanwhile */
		if (q)
			q->events++;
		pthread_mutex_unlock(&lock);
		if (q)
			break;
	}
	*cq = &q->cq;
	*cq_context = q->cq.cq_context;
	return 0;
}

NIC_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	pthread_mutex_lock(&lock);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&lock);
}

/* ---- shared receive queues ---- */

NIC_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct nic_req req = { .op = OP_CREATE_SRQ,
			       .h = pd->handle,
			       .a = a->attr.max_wr,
			       .b = a->attr.max_sge,
			       .c = a->attr.srq_limit };
	struct nic_rep rep;
	struct nic_srq *s = calloc(1, sizeof *s);
	void *mem;
	int r = s ? make_queue(&req, &rep, &mem) : ENOMEM;

	if (r) {
		free(s);
		return failed(r);
	}
	s->q = mem;
	s->bytes = rep.a;
	s->max_sge = a->attr.max_sge;
	s->srq = (struct ibv_srq){
		.context = pd->context, .srq_context = a->srq_context, .pd = pd, .handle = rep.h
	};
	pthread_mutex_lock(&lock);
	s->next = srqs;
	srqs = s;
	pthread_mutex_unlock(&lock);
	return &s->srq;
}

NIC_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	struct nic_req req = { .op = OP_MODIFY_SRQ, .h = srq->handle, .a = a->srq_limit };
	struct nic_rep rep;

	return mask == IBV_SRQ_LIMIT ? nic_call(&req, &rep, NULL) : EINVAL;
}

NIC_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct nic_srq *s = (struct nic_srq *)srq;
	int r = call(OP_DESTROY_SRQ, srq->handle);

	if (r)
		return r;
	pthread_mutex_lock(&lock);
	for (struct nic_srq **at = &srqs; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	raw(SYS_munmap, s->q, s->bytes);
	free(s);
	return 0;
}

#include "verbs_qp.h"

/* ---- asynchronous events ---- */

NIC_EXPORT int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
	struct nic_async a;
	long n = raw(SYS_read, c->async_fd, &a, sizeof a);
	struct nic_srq *s = srqs;

	if (n != sizeof a) {
		errno = n < 0 ? (int)-n : nic_ended(c->async_fd);
		return -1;
	}
	e->event_type = a.type;
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		pthread_mutex_lock(&lock);
		e->element.cq = (struct ibv_cq *)cq_of(a.cq);
		pthread_mutex_unlock(&lock);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		while (s && s->srq.handle != a.cq)
			s = s->next;
		e->element.srq = (struct ibv_srq *)s;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR: e->element.port_num = (int)a.port; break;
	case IBV_EVENT_DEVICE_FATAL: break;
	default: e->element.qp = (struct ibv_qp *)nic_qps[a.qp_index % NIC_QPS];
	}
	return 0;
}

NIC_EXPORT void ibv_ack_async_event(struct ibv_async_event *e) { (void)e; }
