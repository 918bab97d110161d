/*
 * cm_devices.h - a part of test_cm.c: devices that go, READs, and many devices.
 */
static void device_opened(void)
{
	fake[1].ctx.async_fd = open("/", O_RDONLY);
	fake[1].ctx.cmd_fd = open("/", O_RDONLY);
}

static void device_release(void)
{
	const int fds[] = { fake[1].ctx.async_fd, fake[1].ctx.cmd_fd };
	struct stat st;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fstat(fds[i], &st), 0);	/* the number stays */
		ck_assert(S_ISREG(st.st_mode));
		close(fds[i]);
	}
}

/* When a device goes, its files are released, or its removal would wait for this process; not
 * before the link has left it. */
START_TEST(device_goes)
{
	struct rdma_cm_id *id;

	device_opened();
	ck_assert_int_eq(cm_probe((struct sockaddr *)&here), 0);
	ck_assert_int_eq(ids, 1);		/* it watches the device */
	listening();
	id = caller(TOKEN, CM_TOKEN);
	happens(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	happens(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	ck_assert_int_eq(cm.state, CM_DOWN);
	ck_assert_int_eq(ids, 3);
	cm_hangup(&cm);
	rc_close(rc);
	cm_close(&cm);
	ck_assert_int_eq(ids, 0);
	device_release();
	rc = rc_new(&segment, &(struct rc_conf){ .ring = ring, .died = nothing, .busy = nothing,
						 .watch = nothing });
}
END_TEST

/* A device that is going when it is looked at: librdmacm has opened it, then could not ask for
 * its address. */
START_TEST(device_goes_while_probed)
{
	struct rdma_cm_id *id;

	device_opened();
	fake_bind_fails = ENXIO;
	ck_assert_int_eq(cm_probe((struct sockaddr *)&here), -ENXIO);
	fake_bind_fails = 0;
	ck_assert_int_eq(ids, 1);
	id = fake_last_id;
	happens(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	ck_assert_int_eq(ids, 0);
	device_release();
}
END_TEST

/* A device that was first seen when an address had been found, so that no probe of ours watches
 * it. The link ends for another reason, then the device goes; or it is going already. */
START_TEST(device_of_an_event)
{
	struct rdma_cm_id *id, *watch;

	device_opened();
	id = connecting();
	fake_bound = id->verbs = &fake[1].ctx;
	fake_bind_fails = _i ? ENODEV : 0;
	fake_bind_closed = _i;
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	fake_bind_fails = fake_bind_closed = 0;
	ck_assert_int_eq(ids, 2 - _i);
	watch = fake_last_id;
	cm_hangup(&cm);
	rc_close(rc);
	cm_close(&cm);
	ck_assert_int_eq(ids, 1 - _i);
	if (!_i)
		happens(watch, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	ck_assert_int_eq(ids, 0);
	device_release();
	rc = rc_new(&segment, &(struct rc_conf){ .ring = ring, .died = nothing, .busy = nothing,
						 .watch = nothing });
}
END_TEST

/* READs: what the device does, what the peer's does, and no more than 16; none where the device
 * says nothing. */
static const struct {
	int answers, has, peer_answers, peer_has, want_answers, want_has;
} depths[] = {
	{ 4, 126, 255, 255, 4, 16 }, { 16, 16, 8, 2, 2, 8 },	  { 0, 0, 255, 255, 0, 0 },
	{ -1, 1, 0, 255, 0, 0 },     { 255, 1, 255, 255, 16, 1 },
};

START_TEST(reads)
{
	struct rdma_cm_id *id;

	fake_rd_atom = depths[_i].answers;
	fake_init_rd_atom = depths[_i].has;
	listening();
	create_id(&fake_events, &id, cm.listen->context, RDMA_PS_TCP);
	id->verbs = &fake[1].ctx;
	queue_event(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, TOKEN, CM_TOKEN);
	queue[(queue_tail - 1) % EVENTS].param.conn.responder_resources =
		(uint8_t)depths[_i].peer_has;
	queue[(queue_tail - 1) % EVENTS].param.conn.initiator_depth =
		(uint8_t)depths[_i].peer_answers;
	cm_events(changed);
	ck_assert_int_eq(accepts, 1);
	ck_assert_int_eq(conn.responder_resources, depths[_i].want_answers);
	ck_assert_int_eq(conn.initiator_depth, depths[_i].want_has);
	happens(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	ck_assert_int_eq(cm.reads, depths[_i].want_has);
}
END_TEST

START_TEST(reads_asked_for)
{
	struct rdma_cm_id *id;

	fake_rd_atom = depths[_i].answers;
	fake_init_rd_atom = depths[_i].has;
	id = connecting();
	happens(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	happens(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	ck_assert_int_eq(connects, 1);
	ck_assert_int_eq(conn.responder_resources, depths[_i].answers < 0    ? 0
						   : depths[_i].answers < 16 ? depths[_i].answers
									     : 16);
	ck_assert_int_eq(conn.initiator_depth, depths[_i].has < 16 ? depths[_i].has : 16);
	queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	queue[(queue_tail - 1) % EVENTS].param.conn.initiator_depth =
		(uint8_t)depths[_i].peer_answers;
	cm_events(changed);
	ck_assert_int_eq(cm.reads, depths[_i].want_has);
}
END_TEST

/* As many as there are: virtual functions of a card. Each is watched, and let go of when it
 * goes. */
START_TEST(many_devices)
{
	static struct ibv_context many[100];
	struct rdma_cm_id *watch[100];
	struct stat st;

	for (int i = 0; i < 100; i++) {
		many[i].device = &fake[1].dev;
		many[i].async_fd = open("/", O_RDONLY);
		many[i].cmd_fd = open("/", O_RDONLY);
		fake_bound = &many[i];
		ck_assert_int_eq(cm_probe((struct sockaddr *)&here), 0);
		ck_assert_int_eq(ids, i + 1);
		watch[i] = fake_last_id;
		ck_assert_int_eq(cm_probe((struct sockaddr *)&here), 0);
		ck_assert_int_eq(ids, i + 1);
	}
	for (int k = 0; k < 100; k++) {
		int i = k * 37 % 100;

		happens(watch[i], RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
		ck_assert_int_eq(ids, 99 - k);
		ck_assert_int_eq(fstat(many[i].async_fd, &st), 0);
		ck_assert(S_ISREG(st.st_mode));
		close(many[i].async_fd);
		close(many[i].cmd_fd);
	}
	fake_bound = &fake[1].ctx;
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))
