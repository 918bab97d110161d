/*
 * fake_rdmacm.h - librdmacm beside fake_verbs.h: ids that are counted, a queue of events, and
 * the table. What a call does the test says by its own functions, declared here; when an event
 * comes, by queue_event().
 */
#ifndef FAKE_RDMACM_H
#define FAKE_RDMACM_H

#include <check.h>
#include <endian.h>
#include <unistd.h>

#include "fake_verbs.h"

#define EVENTS 64
static struct rdma_event_channel fake_events = { .fd = -1 };
static struct rdma_cm_event queue[EVENTS];
static unsigned queue_head, queue_tail;
static int ids, unacked;	/* not destroyed; taken and not acknowledged */
static const struct rdma_cm_id *told;	/* whose event that is */

/* ---- the test's own */
static int destroy_id(struct rdma_cm_id *id);		/* ends in fake_free_id() */
static int listen_id(struct rdma_cm_id *id, int n);
static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms);
static int resolve_route(struct rdma_cm_id *id, int ms);
static int set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t n);
static int connect_id(struct rdma_cm_id *id, struct rdma_conn_param *p);
static int accept_id(struct rdma_cm_id *id, struct rdma_conn_param *p);
static int reject_id(struct rdma_cm_id *id, const void *d, uint8_t n);
static int disconnect_id(struct rdma_cm_id *id);

/* ---- the same for all */

static struct rdma_event_channel *create_channel(void)
{
	fake_events.fd = dup(0);
	return &fake_events;
}

static int create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *ctx,
		     enum rdma_port_space ps)
{
	(void)ps;
	*id = calloc(1, sizeof **id);
	(*id)->channel = ch;
	(*id)->context = ctx;
	ids++;
	return 0;
}

static void fake_free_id(struct rdma_cm_id *id)
{
	ck_assert_ptr_null(id->qp);
	ck_assert_ptr_ne(id, told);	/* the library would wait for the acknowledgement */
	for (unsigned i = queue_head; i != queue_tail; i++)	/* events of it come no more */
		if (queue[i % EVENTS].id == id)
			queue[i % EVENTS].id = NULL;
	free(id);
	ids--;
}

static int fake_bind_fails;			/* errno */
static int fake_bind_closed;			/* the device is not opened */
static struct ibv_context *fake_bound = &fake[1].ctx;
static struct rdma_cm_id *fake_last_id;		/* that was bound */

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *a)
{
	(void)a;
	if (!fake_bind_closed)
		id->verbs = fake_bound;
	fake_last_id = id;
	errno = fake_bind_fails;
	return fake_bind_fails ? -1 : 0;
}

static uint16_t src_port(struct rdma_cm_id *id) { (void)id; return htobe16(4711); }

static void queue_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
			const void *data, unsigned n)
{
	queue[queue_tail++ % EVENTS] = (struct rdma_cm_event){ .id = id, .event = type,
							       .status = status,
		.param.conn = { .private_data = data, .private_data_len = (uint8_t)n } };
}

static int get_event(struct rdma_event_channel *ch, struct rdma_cm_event **e)
{
	(void)ch;
	errno = EAGAIN;
	while (queue_head != queue_tail && !queue[queue_head % EVENTS].id)
		queue_head++;
	if (queue_head == queue_tail)
		return -1;
	*e = &queue[queue_head++ % EVENTS];
	told = (*e)->id;
	unacked++;
	return 0;
}

static int ack_event(struct rdma_cm_event *e) { (void)e; told = NULL; unacked--; return 0; }

/* Devices and librdmacm as new. */
static void fake_cm_init(void)
{
	fake_init();
	verbs.rdma_create_event_channel = create_channel;
	verbs.rdma_create_id = create_id;
	verbs.rdma_destroy_id = destroy_id;
	verbs.rdma_bind_addr = bind_addr;
	verbs.rdma_listen = listen_id;
	verbs.rdma_get_src_port = src_port;
	verbs.rdma_resolve_addr = resolve_addr;
	verbs.rdma_resolve_route = resolve_route;
	verbs.rdma_set_option = set_option;
	verbs.rdma_connect = connect_id;
	verbs.rdma_accept = accept_id;
	verbs.rdma_reject = reject_id;
	verbs.rdma_disconnect = disconnect_id;
	verbs.rdma_get_cm_event = get_event;
	verbs.rdma_ack_cm_event = ack_event;
}

#endif
