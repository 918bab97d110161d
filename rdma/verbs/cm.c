/*
 * cm.c - see cm.h. rdma_cm(7) describes the order of events.
 */
#include "rdma/verbs/cm.h"

#include <fcntl.h>
#include <infiniband/sa.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"
#include "rdma/verbs/child.h"

static struct rdma_event_channel *channel;
static _Atomic bool used;		/* the library may have files open, or be about to */
static bool forked;

/*
 * librdmacm opens the device of an id in the calls that bind it and in some events, even in
 * those that fail, and keeps it open for good; the removal of one that is open may have to wait
 * for us (that of software devices does). So each is noted here as soon as an id is seen on it,
 * and a bound id of our own stays there to hear of the removal. When all links have left a
 * removed device, its files are put on an empty one: the numbers stay librdmacm's, which closes
 * them when it sees a new device.
 */
static struct device {
	struct ibv_context *verbs;
	struct rdma_cm_id *watch;	/* NULL: none could be had, it is going already */
	bool removed;
	struct device *next;
} *devices;

static struct cm *all;			/* those that have ids */
void (*cm_watch)(int fd);

static int error(void) { return errno ? -errno : -EIO; }

int cm_start(void)
{
	int r;

	if (forked)
		return -EOWNERDEAD;
	if (channel)
		return channel->fd;
	r = verbs_load();
	if (r)
		return r;
	errno = 0;
	atomic_store(&used, true);
	channel = verbs.rdma_create_event_channel();
	atomic_store(&used, channel != NULL);
	if (!channel)
		return -ENODEV;
	syscall(SYS_fcntl, channel->fd, F_SETFL, O_NONBLOCK);
	return channel->fd;
}

static struct device *device_of(const struct ibv_context *verbs)
{
	struct device *d = devices;

	while (d && d->verbs != verbs)
		d = d->next;
	return d;
}

static bool add(struct ibv_context *verbs, struct rdma_cm_id *watch)
{
	struct device *d = malloc(sizeof *d);

	if (!d)
		return false;
	*d = (struct device){ verbs, watch, !watch, devices };
	devices = d;
	if (cm_watch)
		cm_watch(verbs->async_fd);
	return true;
}

/* By a new id, bound to the address. It is the device's watch if that had none, else it is
 * destroyed. */
int cm_probe(const struct sockaddr *addr)
{
	struct rdma_cm_id *id;
	int r;

	if (verbs.rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return error();
	errno = 0;
	r = verbs.rdma_bind_addr(id, (struct sockaddr *)addr) ? error() : 0;
	if (!r && !id->verbs)
		r = -ENODEV;
	/* On a device that is being removed it may fail with the device open: the notice of the
	 * removal is on its way to this id. */
	if (!id->verbs || device_of(id->verbs) || !add(id->verbs, id))
		verbs.rdma_destroy_id(id);
	return r;
}

/* After every call and event that may have put the id on a device. */
static void note(struct rdma_cm_id *id)
{
	struct sockaddr_storage addr;

	if (!id || !id->verbs || device_of(id->verbs))
		return;
	memcpy(&addr, &id->route.addr.src_storage, sizeof addr);
	((struct sockaddr_in *)&addr)->sin_port = 0;	/* IPv6 has it in the same place */
	cm_probe((void *)&addr);
	if (!device_of(id->verbs))
		add(id->verbs, NULL);
}

static int empty(void) { return (int)syscall(SYS_memfd_create, "closed", MFD_CLOEXEC); }
static void empty_close(int fd) { syscall(SYS_close, fd); }
int (*cm_empty)(void) = empty;
void (*cm_empty_close)(int fd) = empty_close;

/* Before librdmacm may free the device: where it has seen that it is gone, that is when the last
 * id leaves. */
static void close_files(const struct ibv_context *verbs)
{
	int fd = cm_empty();

	if (fd < 0)
		return;
	sys(SYS_dup3, fd, verbs->async_fd, O_CLOEXEC);	/* not by syscall(), which is the
							 * library's here, and refuses what is
							 * ours */
	sys(SYS_dup3, fd, verbs->cmd_fd, O_CLOEXEC);
	cm_empty_close(fd);
}

bool cm_after_fork(void)
{
	if (!atomic_load(&used))
		return false;
	forked = true;
	all = NULL;
	rdma_child_lets_go();
	return true;
}

static bool in_use(const struct device *d)
{
	for (struct cm *c = all; c; c = c->next)
		if ((c->id && c->id->verbs == d->verbs) ||
		    (c->listen && c->listen->verbs == d->verbs))
			return true;
	return false;
}

static void release_removed(void)
{
	for (struct device **at = &devices, *d; (d = *at);) {
		if (!d->removed || in_use(d)) {
			at = &d->next;
			continue;
		}
		close_files(d->verbs);
		if (d->watch)
			verbs.rdma_destroy_id(d->watch);
		*at = d->next;
		free(d);
	}
}

static void enlist(struct cm *c)
{
	for (struct cm *x = all; x; x = x->next)
		if (x == c)
			return;
	c->next = all;
	all = c;
}

static void delist(struct cm *c)
{
	for (struct cm **at = &all; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			return;
		}
}

/* A device that has not got an option goes without: none of them is needed. */
static void set_options(const struct cm *c, struct rdma_cm_id *id)
{
	struct cm_options o = c->opt;

	if (o.tos)
		verbs.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &o.tos, sizeof o.tos);
	if (o.ack_timeout)
		verbs.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				      &o.ack_timeout, sizeof o.ack_timeout);
}

#define EXACTLY   (2 << 6)	/* of a path record's values: what is meant is this one */
#define HOPS      64
#define LIFETIME  16		/* exponent, as the kernel takes for RoCE */

/* Fewer bytes in a packet than the interface would take: the device's word for the policy's, or
 * 0. */
static uint8_t smaller_mtu(const struct cm *c)
{
	struct ibv_port_attr port = { 0 };	/* the symbol fills what there was when it was
						 * made */
	uint8_t mtu = IBV_MTU_256;

	if (!c->opt.mtu || !c->id->verbs ||
	    c->id->verbs->device->transport_type != IBV_TRANSPORT_IB ||
	    verbs.ibv_query_port(c->id->verbs, c->id->port_num, &port) ||
	    port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	while (mtu < IBV_MTU_4096 && 128u << mtu < c->opt.mtu)
		mtu++;
	return mtu < port.active_mtu ? mtu : 0;
}

/* librdmacm has no option for the path MTU: the route is given instead of asked for.
 * InfiniBand's is the subnet manager's, iWARP has none. RoCE's service level and traffic class
 * follow from how the host is set up, and say which packets are not lost: they are taken from a
 * route that an id before this one was told of. -1: not possible, or not wanted. */
static int give_route(struct cm *c)
{
	const struct rdma_ib_addr *a = &c->id->route.addr.addr.ibaddr;
	uint8_t mtu = c->route.known ? smaller_mtu(c) : 0;
	struct ibv_path_data d = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {
			.dgid = a->dgid, .sgid = a->sgid, .flowlabel_hoplimit = htobe32(HOPS),
				.tclass = c->route.tclass, .qosclass_sl = htobe16(c->route.sl),
			.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1, .pkey = 0xffff,
				.mtu = EXACTLY | mtu, .rate = EXACTLY | IBV_RATE_MAX,
			.packetlifetime = EXACTLY | (c->opt.ack_timeout ? c->opt.ack_timeout - 1
						     : LIFETIME),
		},
	};

	return mtu ? verbs.rdma_set_option(c->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &d, sizeof d)
		   : -1;
}

static int route(struct cm *c)
{
	if (!c->id)	/* an event that comes too late, or that nobody asked for */
		return -ENOTCONN;
	if (!give_route(c))
		return 0;
	errno = 0;
	return verbs.rdma_resolve_route(c->id, CM_STEP_MS) ? error() : 0;
}

static uint16_t port_of(struct rdma_cm_id *id)
{
	return be16toh(verbs.rdma_get_src_port(id));
}

/* With iWARP a port is one of TCP's as well, which the kernel's half of librdmacm does not know
 * when it draws one: it may be in use, or in TIME_WAIT. Another id draws another. */
#define PORT_TRIES 16

static int listen_once(struct cm *c, const struct sockaddr *addr)
{
	int r;

	errno = 0;
	if (verbs.rdma_create_id(channel, &c->listen, c, RDMA_PS_TCP)) {
		c->listen = NULL;
		return error();
	}
	enlist(c);
	set_options(c, c->listen);
	r = verbs.rdma_bind_addr(c->listen, (struct sockaddr *)addr) ? error() : 0;
	note(c->listen);
	if (r)
		return r;
	if (!c->listen->verbs)
		return -ENODEV;
	return verbs.rdma_listen(c->listen, 4) ? error() : 0;
}

int cm_listen(struct cm *c, struct rc *rc, const struct sockaddr *addr,
	      const uint8_t token[CM_TOKEN])
{
	int r;

	c->rc = rc;
	memcpy(c->token, token, CM_TOKEN);
	for (c->tries = 1; (r = listen_once(c, addr)) == -EADDRINUSE && c->tries < PORT_TRIES;
	     c->tries++) {
		verbs.rdma_destroy_id(c->listen);
		c->listen = NULL;
	}
	if (r)
		return r;
	c->state = CM_LISTEN;
	return port_of(c->listen);
}

static int connect_once(struct cm *c, const struct sockaddr *from, const struct sockaddr *to)
{
	errno = 0;
	if (verbs.rdma_create_id(channel, &c->id, c, RDMA_PS_TCP)) {
		c->id = NULL;
		return error();
	}
	enlist(c);
	set_options(c, c->id);
	if (verbs.rdma_resolve_addr(c->id, (struct sockaddr *)from, (struct sockaddr *)to,
				    CM_STEP_MS))
		return error();
	c->state = CM_ADDR;
	return 0;
}

int cm_connect(struct cm *c, struct rc *rc, const struct sockaddr *from, const struct sockaddr *to,
	       const uint8_t token[CM_TOKEN])
{
	c->rc = rc;
	memcpy(c->token, token, CM_TOKEN);
	c->tries = 1;
	return connect_once(c, from, to);
}

static void down(struct cm *c, int err)
{
	if (c->state != CM_UP)
		c->error = err ? err : -ECONNREFUSED;
	c->state = CM_DOWN;
}

#define READS 16		/* as most cards have */

static void step(struct cm *c, int r, enum cm_state next)
{
	if (r)
		down(c, r);
	else
		c->state = next;
}

static uint8_t least(int device, uint8_t peer)
{
	int n = device < 0 ? 0 : device < READS ? device : READS;

	return n < peer ? (uint8_t)n : peer;
}

/* How many READs each end may have under way: what its device does, what the other's answers, and
 * not all that a card has, which is room in it for each queue pair. */
static void reads(const struct rdma_cm_id *id, const struct rdma_conn_param *asked,
		  struct rdma_conn_param *ret)
{
	struct ibv_device_attr d = { 0 };

	if (verbs.ibv_query_device(id->verbs, &d))
		return;
	ret->responder_resources =
		least(d.max_qp_rd_atom, asked ? asked->responder_resources : READS);
	ret->initiator_depth = least(d.max_qp_init_rd_atom, asked ? asked->initiator_depth : READS);
}

/* `asked`: with what the peer connects; NULL: we do. */
static int open_and(struct cm *c, const struct rdma_conn_param *asked)
{
	struct rdma_conn_param p = {
		.private_data = c->token, .private_data_len = asked ? 0 : CM_TOKEN,
		.retry_count = c->opt.retries, .rnr_retry_count = 7,
	};
	int r = rc_open(c->rc, c->id);

	if (r)
		return r;
	reads(c->id, asked, &p);
	c->reads = p.initiator_depth;
	errno = 0;
	return (asked ? verbs.rdma_accept(c->id, &p) : verbs.rdma_connect(c->id, &p)) ? error() : 0;
}

static bool token_right(const struct cm *c, const struct rdma_cm_event *e)
{
	const uint8_t *t = e->param.conn.private_data;
	uint8_t diff = 0;

	if (!t || e->param.conn.private_data_len < CM_TOKEN)
		return false;
	for (int i = 0; i < CM_TOKEN; i++)
		diff |= t[i] ^ c->token[i];
	return !diff;
}

/* Another id begins in the place of this one, which is to be destroyed after its event is
 * acknowledged. */
static struct rdma_cm_id *begin_again(struct cm *c)
{
	struct rdma_cm_id *was = c->id;
	struct sockaddr_storage from, to;
	int r;

	memcpy(&from, &was->route.addr.src_storage, sizeof from);
	memcpy(&to, &was->route.addr.dst_storage, sizeof to);
	((struct sockaddr_in *)&from)->sin_port = 0;	/* IPv6 has it in the same place */
	r = connect_once(c, (struct sockaddr *)&from, (struct sockaddr *)&to);
	if (r)
		down(c, r);
	return was;
}

/* rdma_connect() failed. NULL: not for a port that is taken. */
static struct rdma_cm_id *other_port(struct cm *c, int r)
{
	if (r != -EADDRINUSE || c->tries == PORT_TRIES)
		return NULL;
	c->tries++;
	rc_release(c->rc);
	return begin_again(c);
}

/* NULL: the route may stay as it is. */
static struct rdma_cm_id *other_route(struct cm *c)
{
	const struct ibv_sa_path_rec *p = c->id->route.num_paths ? c->id->route.path_rec : NULL;

	if (!p || c->route.known || !smaller_mtu(c))
		return NULL;
	c->route.known = true;
	c->route.sl = p->sl;
	c->route.tclass = p->traffic_class;
	return begin_again(c);
}

/* Somebody connects to our listener. Returns an id to destroy after the event is acknowledged. */
static struct rdma_cm_id *request(struct cm *c, const struct rdma_cm_event *e)
{
	if (c->state != CM_LISTEN || !token_right(c, e)) {
		verbs.rdma_reject(e->id, NULL, 0);
		return e->id;
	}
	c->id = e->id;
	c->id->context = c;
	set_options(c, c->id);
	step(c, open_and(c, &e->param.conn), CM_ACCEPT);
	return NULL;
}

static struct rdma_cm_id *one(struct cm *c, const struct rdma_cm_event *e)
{
	struct rdma_cm_id *gone = NULL;
	int r;

	errno = 0;
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		step(c, route(c), CM_ROUTE);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (c->state != CM_ROUTE)
			break;
		gone = other_route(c);
		if (gone)
			break;
		r = open_and(c, NULL);
		gone = other_port(c, r);
		if (!gone)
			step(c, r, CM_CONNECT);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		gone = request(c, e);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (c->state == CM_CONNECT && e->param.conn.initiator_depth < c->reads)
			c->reads = e->param.conn.initiator_depth;
		c->state = CM_UP;
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		if (e->id == c->id || e->id == c->listen)
			down(c, e->status < 0 ? e->status : 0);
		break;
	default:	/* TIMEWAIT_EXIT and what multicast has */
		break;
	}
	return gone;
}

void cm_events(void (*changed)(struct cm *c))
{
	struct rdma_cm_event *e;

	while (channel && !verbs.rdma_get_cm_event(channel, &e)) {
		struct cm *c = e->id->context;
		struct rdma_cm_id *gone = NULL;
		enum cm_state was = c ? c->state : CM_NONE;
		struct device *d;

		note(e->id);
		d = e->event == RDMA_CM_EVENT_DEVICE_REMOVAL && e->id->verbs
			    ? device_of(e->id->verbs)
			    : NULL;
		if (d)
			d->removed = true;
		if (c)
			gone = one(c, e);
		verbs.rdma_ack_cm_event(e);
		if (gone)
			verbs.rdma_destroy_id(gone);
		if (c && c->state != was)
			changed(c);
	}
	release_removed();
}

void cm_way(const struct cm *c, struct cm_way *ret)
{
	struct ibv_port_attr port = { 0 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { 0 };
	const struct rdma_cm_id *id = c->id;

	*ret = (struct cm_way){ 0 };
	if (!id)
		return;
	memcpy(&ret->from, &id->route.addr.src_storage, sizeof ret->from);
	memcpy(&ret->to, &id->route.addr.dst_storage, sizeof ret->to);
	if (!id->verbs)
		return;
	ret->port = id->port_num;
	ret->iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	ret->ethernet = !verbs.ibv_query_port(id->verbs, id->port_num, &port) &&
			port.link_layer == IBV_LINK_LAYER_ETHERNET;
	ret->qpn = id->qp ? id->qp->qp_num : 0;
	if (ret->iwarp)
		return;
	ret->sgid = id->route.addr.addr.ibaddr.sgid;
	ret->dgid = id->route.addr.addr.ibaddr.dgid;
	if (c->state == CM_UP && id->qp &&
	    !verbs.ibv_query_qp(id->qp, &attr, IBV_QP_DEST_QPN, &init))
		ret->peer_qpn = attr.dest_qp_num;
}

void cm_hangup(struct cm *c)
{
	if (c->id && c->state == CM_UP)
		verbs.rdma_disconnect(c->id);
	c->state = CM_DOWN;
}

void cm_close(struct cm *c)
{
	delist(c);
	release_removed();
	if (c->id)
		verbs.rdma_destroy_id(c->id);
	if (c->listen)
		verbs.rdma_destroy_id(c->listen);
	*c = (struct cm){ 0 };
}
