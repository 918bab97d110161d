/*
 * identity_network.h - a part of test_identity.c: in networks of its own.
 */
static void set_mark(int fd)
{
	int mark = 7;

	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark), 0);
}

/* In a network of its own: without timestamps; and whether a rule of the administrator's leads a
 * connection with itself elsewhere. */
static int in_own_network(void)
{
	struct pair p;
	uint32_t stamp;

	if (unshare(CLONE_NEWNET) ||
	    system("ip link set lo up && ip addr add 10.7.1.1/32 dev lo && ip addr add fd07::1/128 "
		   "dev lo nodad 2>/dev/null") ||
	    system("ip link add x type veth peer name y 2>/dev/null && ip addr add 10.7.2.1/24 dev "
		   "x && ip link set x up && ip link set y up"))
		return 77;
	if (!make(&p, "10.7.1.1", "10.7.1.1") || identity_straight(p.client, SA(p.c), SA(p.s)) ||
	    identity_straight(p.server, SA(p.s), SA(p.c)))
		return 1;
	if (system("ip route add default via 10.7.2.2 dev x table 100 && ip rule add pref 30 "
		   "lookup local && ip rule del pref 0"))
		return 77;
	if (identity_straight(p.client, SA(p.c), SA(p.s)))
		return 2;
	{
		char rule[120];

		snprintf(rule, sizeof rule,
			 "ip rule add pref 20 iif lo ipproto tcp dport %u lookup 100",
			 ntohs(((struct sockaddr_in *)&p.s)->sin_port));
		if (system(rule))
			return 77;
	}
	if (identity_straight(p.client, SA(p.c), SA(p.s)) != -EXDEV ||
	    identity_straight(p.server, SA(p.s), SA(p.c)))
		return 3;
	drop(&p);
	if (make(&p, "fd07::1", "fd07::1")) {
		if (identity_straight(p.client, SA(p.c), SA(p.s)))
			return 4;
		drop(&p);
	}
	if (system("ip rule add pref 21 iif lo fwmark 7 lookup 100") ||
	    !make(&p, "10.7.1.1", "10.7.1.1"))
		return 77;
	if (identity_straight(p.client, SA(p.c), SA(p.s)))
		return 5;
	set_mark(p.client);
	if (identity_straight(p.client, SA(p.c), SA(p.s)) != -EXDEV)
		return 6;
	drop(&p);
	keep_syn = true;
	if (system("sysctl -q net.ipv4.tcp_timestamps=0") || !make(&p, "127.0.0.1", "127.0.0.1"))
		return 77;
	if (identity_syn(p.server, &stamp) != -ENODATA)
		return 7;
	return 0;
}

START_TEST(own_network)
{
	pid_t pid = fork();

	if (!pid)
		_exit(in_own_network());
	ended_well(pid);
}
END_TEST

START_TEST(listener_is_none)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, far = at;
	socklen_t len = sizeof at;
	struct identity id;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(l, (void *)&at, sizeof at), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	getsockname(l, (void *)&at, &len);
	far.sin_port = htons(1);
	ck_assert_int_eq(identity_query(SA(at), SA(far), &id), -ENOENT);
	close(l);
}
END_TEST

START_TEST(tuples)
{
	struct ctl_tuple a, b, c;
	struct pair p;

	make(&p, "127.0.0.1", "127.0.0.1");
	tuple_from(&a, SA(p.c), SA(p.s));
	tuple_from(&b, SA(p.s), SA(p.c));
	ck_assert(!tuple_equal(&a, &b));
	tuple_reverse(&c, &a);
	ck_assert(tuple_equal(&b, &c));
#define CHANGED(f) do { c = a; c.f ^= 1; ck_assert(!tuple_equal(&a, &c)); } while (0)
	CHANGED(family);
	CHANGED(lport);
	CHANGED(pport);
	CHANGED(laddr[0]);
	CHANGED(laddr[15]);
	CHANGED(paddr[3]);
	CHANGED(paddr[15]);
	drop(&p);
}
END_TEST

/* Where the packets of a connection go: to another namespace of this host by a veth pair, also one
 * with another device upon it, or to a process. */
START_TEST(leaves_host)
{
	static const char *const make_all =
		"ip link add out0 type bridge && ip link add link out0 name upon0 type macvlan && "
		"ip link add veth0 type veth peer name veth1 && ip link set veth1 up && "
		"ip link add link veth0 name upon1 type macvlan && ip link set veth0 up && "
		"ip tuntap add tun0 mode tun";
	static const struct { const char *device, *from, *to; int is; } ways[] = {
		{ "out0", "10.8.0.1", "10.8.0.2", 0 }, { "upon0", "10.9.0.1", "10.9.0.2", 0 },
		{ "veth0", "10.10.0.1", "10.10.0.2", -EXDEV }, { "upon1", "10.11.0.1", "10.11.0.2",
			-EXDEV },
		{ "tun0", "10.12.0.1", "10.12.0.2", -EXDEV },
	};
	struct sockaddr_in on = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
	char line[128];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (unshare(CLONE_NEWNET) || system(make_all) != 0) {
		fputs("leaves_host is skipped: not root, or no such devices\n", stderr);
		return;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		snprintf(line, sizeof(line), "ip link set dev %s up && ip addr add %s/24 dev %s",
			 ways[i].device, ways[i].from, ways[i].device);
		ck_assert_int_eq(system(line), 0);
		inet_pton(AF_INET, ways[i].from, &on.sin_addr);
		inet_pton(AF_INET, ways[i].to, &to.sin_addr);
		ck_assert_int_eq(identity_leaves_host(fd, (void *)&on, (void *)&to), ways[i].is);
	}
	inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
	/* no way at all */
	ck_assert_int_lt(identity_leaves_host(fd, (void *)&on, (void *)&to), 0);
	close(fd);
}
END_TEST
