/*
 * nicd_cm_comes.h - a part of nicd_cm.c: what comes.
 */
static struct id *listener(const struct sockaddr_storage *to)
{
	struct id *any = NULL;

	for (struct id *i = ids; i; i = i->next) {
		if (i->state != ID_LISTEN || port_of(&i->addrs.src) != port_of(to) || down(i))
			continue;
		if (same_host(&i->addrs.src, to))
			return i;
		if (is_any(&i->addrs.src))
			any = i;
	}
	return any;
}

static struct id *id_make(struct client *c, struct cm_channel *ch)
{
	struct id *i = obj_new(c, K_ID, sizeof *i);

	if (!i)
		return NULL;
	i->ch = ch;
	i->ack_timeout = -1;
	i->next = ids;
	ids = i;
	ch->o.refs++;
	return i;
}

static void got_req(struct later *l)
{
	struct id *from = id_of(l->from), *on, *i;
	struct later *no;

	if (!from || from->state != ID_CONNECT)
		return;
	on = listener(&from->addrs.dst);
	i = on ? id_make(on->o.client, on->ch) : NULL;
	if (!i) {
		no = later(M_REJ, from->o.handle, 0, (uint64_t)K.delay_ns);
		no->status = K.iwarp ? -ECONNREFUSED : 8;	/* invalid service id */
		return;
	}
	i->state = ID_REQUESTED;
	i->addrs.src = from->addrs.dst;
	i->addrs.dst = from->addrs.src;
	bind_device(i);
	i->peer = from->o.handle;
	from->peer = i->o.handle;
	i->theirs = l->conn;
	/* What the one may ask for is what the other answers. */
	l->conn.responder_resources = i->theirs.initiator_depth;
	l->conn.initiator_depth = i->theirs.responder_resources;
	pad(&l->conn, 56);
	push(i, RDMA_CM_EVENT_CONNECT_REQUEST, 0, on, &l->conn);
}

static void got_rep(struct id *i, struct later *l)
{
	if (i->state != ID_CONNECT)
		return;
	i->state = ID_RESPONSE;
	i->theirs = l->conn;
	i->mine.initiator_depth = l->conn.responder_resources;
	i->mine.responder_resources = l->conn.initiator_depth;
	l->conn.initiator_depth = i->mine.initiator_depth;
	l->conn.responder_resources = i->mine.responder_resources;
	pad(&l->conn, 196);
	push(i, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, NULL, &l->conn);
}

static void disconnected(struct id *i)
{
	if (i->state == ID_DISCONNECTED)
		return;
	i->state = ID_DISCONNECTED;
	push(i, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
}

/* Both have said their word. */
static void timewait(struct id *i)
{
	if (!K.iwarp)
		event_later(i, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, TIMEWAIT_NS);
}

static void got_dreq(struct id *i)
{
	struct qp *q = qp_find(i->qpn);

	if (i->state == ID_REQUESTED) { /* he gave it up */
		i->state = ID_DISCONNECTED;
		push(i, RDMA_CM_EVENT_CONNECT_ERROR, 0, NULL, NULL);
		return;
	}
	if (i->state != ID_CONNECTED && i->state != ID_ACCEPTED && i->state != ID_RESPONSE)
		return;
	if (K.iwarp) { /* the stream is closed: there is nothing to say */
		if (q)
			qp_error(q);
		message(i, M_DREP);
	} else {
		i->owes_drep = true;
	}
	disconnected(i);
}

static void got_drep(struct id *i)
{
	if (i->state == ID_DISCONNECTED)
		return;
	disconnected(i);
	timewait(i);
}

static void deliver(struct later *l)
{
	struct id *i = id_of(l->to);

	if (l->msg == M_REQ) {
		got_req(l);
		return;
	}
	if (!i)
		return;
	switch (l->msg) {
	case M_EVENT:
		if (l->event == RDMA_CM_EVENT_UNREACHABLE && i->state != ID_CONNECT)
			break;
		if (l->event == RDMA_CM_EVENT_UNREACHABLE)
			i->state = ID_DISCONNECTED;
		push(i, l->event, l->status, NULL, NULL);
		break;
	case M_REP: got_rep(i, l); break;
	case M_RTU:
		if (i->state == ID_ACCEPTED) {
			i->state = ID_CONNECTED;
			push(i, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
		}
		break;
	case M_REJ:
		if (i->state == ID_CONNECT || i->state == ID_ACCEPTED) {
			i->state = ID_DISCONNECTED;
			push(i, RDMA_CM_EVENT_REJECTED, l->status, NULL, &l->conn);
		}
		break;
	case M_DREQ: got_dreq(i); break;
	case M_DREP: got_drep(i); break;
	default: break;
	}
}

uint64_t cm_timers(uint64_t now)
{
	while (laters && laters->at <= now) {
		struct later *l = laters;

		laters = l->next;
		deliver(l);
		free(l);
	}
	return laters ? laters->at : NEVER;
}
