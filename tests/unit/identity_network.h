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
 * with another device upon it, or to a process. A bridge must know one port for the next hop; card0
 * stands for a network card. */
#define HOP "02:00:00:00:00:01"
#define MAC_OF(device) "$(ip -br link show " device " | awk '{ print $3 }')"

static int leaves(const char *device, unsigned net, const char *setup)
{
	struct sockaddr_in on = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0), r;
	char line[400];

	on.sin_addr.s_addr = htonl(0x0a000001 | net << 8);	/* 10.0.NET.1 */
	to.sin_addr.s_addr = htonl(0x0a000002 | net << 8);
	snprintf(line, sizeof(line), "ip link set dev %s up && { ip addr add 10.0.%u.1/24 dev %s "
		 "2>/dev/null || true; } && ip neigh replace 10.0.%u.2 lladdr %s dev %s && %s",
		 device, net, device, net, HOP, device, setup);
	if (!strncmp(device, "tun", 3))
		snprintf(line, sizeof(line), "ip link set dev %s up && ip addr add 10.0.%u.1/24 "
			 "dev %s", device, net, device);
	ck_assert_msg(!system(line), "%s", line);
	r = identity_leaves_host(fd, (void *)&on, (void *)&to);
	close(fd);
	return r;
}

static bool lacks(const char *make)
{
	if (!system(make))
		return false;
	fprintf(stderr, "skipped: not root, or no such devices: %s\n", make);
	return true;
}

START_TEST(leaves_host)
{
	static const struct {
		const char *device;
		unsigned net;
		int is;
		const char *setup;
	} ways[] = {
		{ "card0", 0, 0, "true" },
		{ "veth0", 1, -EXDEV, "true" },
		{ "upon1", 2, -EXDEV, "true" },
		{ "tun0", 3, -EXDEV, "true" },
		{ "out0", 4, -EXDEV, "true" },
		{ "out0", 4, 0, "bridge fdb add " HOP " dev card1 master static" },
		{ "upon0", 5, 0, "true" },
		{ "out0", 4, -EXDEV, "ip neigh replace 10.0.4.2 dev out0 lladdr " MAC_OF("out0") },
		{ "out0", 4, -EXDEV, "ip neigh replace 10.0.4.2 dev out0 lladdr " MAC_OF("card1") },
		{ "out0", 4, -EXDEV, "ip neigh del 10.0.4.2 dev out0" },
		{ "out0", 4, 0, "true" },
		{ "out0", 4, -EXDEV, "bridge fdb replace " HOP " dev veth2 master static" },
		{ "upon0", 5, -EXDEV, "true" },
	};
	struct sockaddr_in on = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, to = on;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (unshare(CLONE_NEWNET) ||
	    lacks("ip link add out0 type bridge && ip link add link out0 name upon0 type macvlan &&"
		  "ip link add veth0 type veth peer name veth1 && ip link set veth1 up && "
		  "ip link add link veth0 name upon1 type macvlan && ip link set veth0 up && "
		  "ip link add veth2 type veth peer name veth3 && ip link set veth3 up && "
		  "ip link set veth2 up master out0 && ip tuntap add tun0 mode tun && "
		  "ip link add card0 type ifb && ip link add card1 type ifb && "
		  "ip link set card1 up master out0"))
		return;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int r = leaves(ways[i].device, ways[i].net, ways[i].setup);

		ck_assert_msg(r == ways[i].is, "way %zu, %s, %s: %d", i, ways[i].device,
			      ways[i].setup, r);
	}
	inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
	/* no way at all */
	ck_assert_int_lt(identity_leaves_host(fd, (void *)&on, (void *)&to), 0);
	close(fd);
}
END_TEST

/* The proxy's port is in another VLAN than that in which the same MAC is behind the card: which of
 * the two the packets take need not be known. */
START_TEST(leaves_host_by_a_vlan)
{
	static const struct { int is; const char *setup; } ways[] = {
		{ -EXDEV, "true" },
		{ 0, "bridge fdb add " HOP " dev card1 master static vlan 10" },
		{ 0, "bridge fdb add " HOP " dev card1 master static vlan 1" },
		{ -EXDEV, "bridge fdb replace " HOP " dev veth2 master static vlan 10" },
		{ -EXDEV, "bridge fdb del " HOP " dev card1 master static vlan 1" },
	};

	if (unshare(CLONE_NEWNET) ||
	    lacks("ip link add out0 type bridge vlan_filtering 1 && "
		  "ip link add veth2 type veth peer name veth3 && ip link set veth3 up && "
		  "ip link set veth2 up master out0 && ip link add card1 type ifb && "
		  "ip link set card1 up master out0 && bridge vlan add dev veth2 vid 10 && "
		  "bridge vlan add dev card1 vid 10"))
		return;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int r = leaves("out0", 6, ways[i].setup);

		ck_assert_msg(r == ways[i].is, "way %zu, %s: %d", i, ways[i].setup, r);
	}
}
END_TEST
