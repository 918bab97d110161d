/*
 * fake_cm.h - librdmacm for a fuzz target: identifiers and events on the heap, freed when the
 * library gives them back, so that whoever looks at them afterwards is seen. The target makes
 * the events.
 */
#ifndef FAKE_CM_H
#define FAKE_CM_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_IDS 64
#define FAKE_EVENTS 64

static struct fake_id {
	struct rdma_cm_id *id;
	bool listens, asked_addr, asked_route, connects, accepted;
} fake_ids[FAKE_IDS];
static struct fake_event { struct rdma_cm_event *e; } fake_events[FAKE_EVENTS];
static const struct rdma_cm_event *fake_unacked;
static unsigned fake_events_n, cm_fails;	/* bits: this call fails; 6 also: for a port that
						 * is taken */
static struct rdma_event_channel fake_events_channel = { .fd = -1 };
static struct ibv_context *fake_device;

static struct fake_id *fake_id_of(const struct rdma_cm_id *id)
{
	for (int i = 0; i < FAKE_IDS; i++)
		if (fake_ids[i].id == id)
			return &fake_ids[i];
	abort();	/* not one of ours, or destroyed before */
}

static bool fake_failing(unsigned bit)
{
	errno = cm_fails >> 6 & 1 ? EADDRINUSE : EIO;
	return cm_fails >> bit & 1;
}

static struct rdma_event_channel *fake_event_channel(void)
{
	if (fake_events_channel.fd < 0)
		fake_events_channel.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return &fake_events_channel;
}

static struct rdma_cm_id *fake_new_id(void *context)
{
	for (int i = 0; i < FAKE_IDS; i++)
		if (!fake_ids[i].id) {
			fake_ids[i] = (struct fake_id){ .id = calloc(1,
				sizeof(struct rdma_cm_id)) };
			fake_ids[i].id->context = context;
			return fake_ids[i].id;
		}
	return NULL;
}

static int fake_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context,
			  enum rdma_port_space ps)
{
	(void)ch, (void)ps;
	if (fake_failing(0) || !(*id = fake_new_id(context)))
		return -1;
	return 0;
}

static void fake_drop_event(unsigned i)
{
	free((void *)fake_events[i].e->param.conn.private_data);
	free(fake_events[i].e);
	fake_events[i] = fake_events[--fake_events_n];
}

static int fake_destroy_id(struct rdma_cm_id *id)
{
	struct fake_id *f = fake_id_of(id);

	if (fake_unacked && (fake_unacked->id == id || fake_unacked->listen_id == id))
		abort();	/* the library would wait for that */
	for (unsigned i = 0; i < fake_events_n;)	/* as the library does: none comes after
							 * it */
		if (fake_events[i].e->id == id)
			fake_drop_event(i);
		else
			i++;
	free(id);
	*f = (struct fake_id){ 0 };
	return 0;
}

static int fake_bind(struct rdma_cm_id *id, struct sockaddr *a)
{
	(void)a;
	fake_id_of(id);
	if (fake_failing(1))
		return -1;
	id->verbs = fake_device;
	return 0;
}

static int fake_listen(struct rdma_cm_id *id, int n)
{
	(void)n;
	fake_id_of(id)->listens = true;
	return fake_failing(2) ? -1 : 0;
}
static uint16_t fake_port(struct rdma_cm_id *id) { fake_id_of(id); return htobe16(7777); }

static int fake_resolve_addr(struct rdma_cm_id *id, struct sockaddr *a, struct sockaddr *b, int ms)
{
	(void)a, (void)b, (void)ms;
	fake_id_of(id)->asked_addr = true;
	return fake_failing(3) ? -1 : 0;
}

static int fake_resolve_route(struct rdma_cm_id *id, int ms)
{
	(void)ms;
	fake_id_of(id)->asked_route = true;
	return fake_failing(4) ? -1 : 0;
}
static int fake_set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t n)
{
	(void)name, (void)v, (void)n;
	fake_id_of(id)->asked_route |= level == RDMA_OPTION_IB && !fake_failing(7);
	return fake_failing(7) ? -1 : 0;
}

static int fake_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)p;
	fake_id_of(id)->connects = true;
	return fake_failing(5) ? -1 : 0;
}
static int fake_accept(struct rdma_cm_id *id, struct rdma_conn_param *p);	/* the target's */
static int fake_reject(struct rdma_cm_id *id, const void *p, uint8_t n) { (void)p, (void)n;
	fake_id_of(id); return 0; }
static int fake_disconnect(struct rdma_cm_id *id) { fake_id_of(id); return 0; }

static int fake_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **e)
{
	(void)ch;
	if (!fake_events_n) {
		errno = EAGAIN;
		return -1;
	}
	fake_unacked = *e = fake_events[0].e;
	fake_events[0] = fake_events[--fake_events_n];
	return 0;
}

static int fake_ack_cm_event(struct rdma_cm_event *e)
{
	fake_unacked = NULL;
	free((void *)e->param.conn.private_data);
	free(e);
	return 0;
}

/* An event that the kernel could send now because of what was asked and of what comes from the
 * other host. */
static void fake_happens(struct fake_id *f, enum rdma_cm_event_type type, int status,
			 const uint8_t *data, size_t n)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id = f->id;

	if (!id || fake_events_n == FAKE_EVENTS ||
	    (type == RDMA_CM_EVENT_ADDR_RESOLVED && !f->asked_addr) ||
	    (type == RDMA_CM_EVENT_ROUTE_RESOLVED && !f->asked_route) ||
	    (type == RDMA_CM_EVENT_ESTABLISHED && !f->connects && !f->accepted) ||
	    (type == RDMA_CM_EVENT_CONNECT_REQUEST && !f->listens))
		return;
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		f->asked_addr = false;
		id->verbs = fake_device;
	}
	if (type == RDMA_CM_EVENT_ROUTE_RESOLVED)
		f->asked_route = false;
	if (type == RDMA_CM_EVENT_ESTABLISHED)
		f->connects = f->accepted = false;
	e = calloc(1, sizeof *e);
	*e = (struct rdma_cm_event){ .id = id, .event = type, .status = status };
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		e->listen_id = id;
		e->id = fake_new_id(id->context);
		if (!e->id) {
			free(e);
			return;
		}
		e->id->verbs = fake_device;
	}
	if (n) {
		void *p = malloc(n > 255 ? 255 : n);

		memcpy(p, data, n > 255 ? 255 : n);
		e->param.conn.private_data = p;
		e->param.conn.private_data_len = n > 255 ? 255 : (uint8_t)n;
	}
	fake_events[fake_events_n++].e = e;
}

static int fake_cm_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 8;
	return fake_failing(3) ? EIO : 0;
}

static void fake_cm_init(struct ibv_context *device)
{
	fake_device = device;
	verbs.rdma_create_event_channel = fake_event_channel;
	verbs.rdma_create_id = fake_create_id;
	verbs.rdma_destroy_id = fake_destroy_id;
	verbs.rdma_bind_addr = fake_bind;
	verbs.rdma_listen = fake_listen;
	verbs.rdma_get_src_port = fake_port;
	verbs.rdma_resolve_addr = fake_resolve_addr;
	verbs.rdma_resolve_route = fake_resolve_route;
	verbs.rdma_set_option = fake_set_option;
	verbs.rdma_connect = fake_connect;
	verbs.rdma_accept = fake_accept;
	verbs.rdma_reject = fake_reject;
	verbs.rdma_disconnect = fake_disconnect;
	verbs.rdma_get_cm_event = fake_get_cm_event;
	verbs.rdma_ack_cm_event = fake_ack_cm_event;
	if (!verbs.ibv_query_device)
		verbs.ibv_query_device = fake_cm_device;
}

#endif
