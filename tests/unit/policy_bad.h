/*
 * policy_bad.h - a part of test_policy.c: files with mistakes: the place, and the words that
 * help.
 */
static const struct {
	const char *text;
	int line, col;
	const char *says;
} bad[] = {
	{ "mode", 1, 5, "mode on" },
	{ "key_file", 1, 9, "key_file /etc" },
	{ "key_file key", 1, 10, "not an absolute path" },
	{ "key_file /a\nkey_file /b", 2, 1, "line 1 already" },
	{ "program x\nkey_file /a", 2, 1, "all programs" },
	{ "discovery_dir", 1, 14, "discovery_dir /run/rdmashim" },
	{ "discovery_dir tmp", 1, 15, "not an absolute path" },
	{ "discovery_dir /a\ndiscovery_dir /b", 2, 1, "discovery_dir was set in line 1 already" },
	{ "cross_ns_dir tmp", 1, 14, "not an absolute path" },
	{ "cross_ns_dir /a\ncross_ns_dir /b", 2, 1, "cross_ns_dir was set in line 1 already" },
	{ "program x\ndiscovery_dir /a", 2, 1, "all programs" },
	{ "discovery_dri /a", 1, 1, "did you mean 'discovery_dir'" },
	{ "peer_users", 1, 11, "peer_users postgres" },
	{ "peer_users nobodys-name", 1, 12, "no user in /etc/passwd" },
	{ "peer_users 4294967295", 1, 12, "no user in /etc/passwd" },
	{ "peer_users root:x", 1, 12, "no user in /etc/passwd" },
	{ "program x\npeer_users any", 2, 1, "all programs" },
	{ "go", 1, 3, "go on or go off" },
	{ "go on x", 1, 7, "go on or go off" },
	{ "program x\ngo offf", 2, 4, "did you mean 'off'" },
	{ "rdma_networks", 1, 14, "10.0.0.0/8" },
	{ "rdma_networks *", 1, 15, "not a network" },
	{ "rdma_networks 10.0.0.0/33", 1, 24, "prefix length" },
	{ "rdma_networks 10.0.0.1/8", 1, 15, "bits set beyond" },
	{ "rdma_networks 10.0.0.0/8 host", 1, 26, "not an IPv4" },
	{ "rdma_networks 1.0.0.0 2.0.0.0 3.0.0.0 4.0.0.0 5.0.0.0 6.0.0.0 7.0.0.0", 1, 63,
	  "too many" },
	{ "rdma_networks 10.0.0.1:80", 1, 15, "colon" },
	{ "rdma_via", 1, 9, "rdma_via 10.1.0.0/16" },
	{ "rdma_via mlx5_0", 1, 10, "not an IPv4" },
	{ "rdma_via 1.0.0.0 2.0.0.0 3.0.0.0 4.0.0.0 5.0.0.0 6.0.0.0 7.0.0.0", 1, 58, "too many" },
	{ "program x\nrdma_via 10.0.0.0/8", 2, 1, "applies to all programs" },
	{ "rdma_retries 8", 1, 14, "0 to 7" },
	{ "rdma_ack_timeout 32", 1, 18, "0 to 31" },
	{ "rdma_tos 256", 1, 10, "0 to 255" },
	{ "rdma_mtu 8192", 1, 10, "0 to 4K" },
	{ "rdma_mtu 1500", 1, 10, "power of two; write one such as 1K or 2K" },
	{ "rdma_mtu 3000", 1, 10, "such as 2K or 4K" },
	{ "rdma_mtu 3", 1, 10, "write 0, or 256 to 4K" },
	{ "rdma_mtu 128", 1, 10, "write 0, or 256 to 4K" },
	{ "ring_size 5000", 1, 11, "such as 4K or 8K" },
	{ "ring_size 16000000", 1, 11, "such as 8M or 16M" },
	{ "mode maybe", 1, 6, "'maybe' is not a mode" },
	{ "mode onn", 1, 6, "did you mean 'on'" },
	{ "mode on\nmode off", 2, 1, "line 1 already" },
	{ "mode on on", 1, 9, "too many" },
	{ "mod on", 1, 1, "did you mean 'mode'" },
	{ "Mode on", 1, 1, "did you mean 'mode'" },
	{ "\n# x\n  rign_size 4K", 3, 3, "did you mean 'ring_size'" },
	{ "xyzzyfoobar 4K", 1, 1, "is not a key" },
	{ "ring_size=4K", 1, 10, "'='" },
	{ "ring_size", 1, 10, "ring_size 256K" },
	{ "ring_size 4K 5K", 1, 14, "too many" },
	{ "ring_size big", 1, 11, "not a number" },
	{ "ring_size -1", 1, 11, "not a number" },
	{ "ring_size 4Q", 1, 12, "'Q' is not a unit" },
	{ "ring_size 4k", 1, 12, "'k' is not a unit" },
	{ "ring_size 4KB", 1, 12, "'KB' is not a unit" },
	{ "ring_size 4us", 1, 12, "K, M or G" },
	{ "ring_size 1K", 1, 11, "4K to 16M" },
	{ "ring_size 32M", 1, 11, "4K to 16M" },
	{ "ring_size 100000", 1, 11, "power of two" },
	{ "ring_size 99999999999999999999999999", 1, 11, "out of range" },
	{ "ring_size 18446744073709551615G", 1, 11, "out of range" },
	/* 2^54 + 1 times 1K wraps to 1K */
	{ "ring_size 18014398509481985K", 1, 11, "out of range" },
	/* wraps to 4K, which would pass */
	{ "ring_size 18014398509481988K", 1, 11, "out of range" },
	{ "spin 50 us", 1, 9, "too many" },
	{ "spin 1m", 1, 7, "us, ms or s" },
	{ "spin 2s", 1, 6, "0 to 1s" },
	{ "spin 1.5ms", 1, 7, "'.5ms' is not a unit" },
	{ "spin 1\nmode on\nspin 2", 3, 1, "line 1 already" },
	{ "link_streams 1K", 1, 15, "without a unit" },
	{ "link_streams 1", 1, 14, "2 to 4096" },
	{ "program", 1, 8, "program *" },
	{ "program a b", 1, 11, "too many" },
	{ "program /usr/bin/nc", 1, 9, "last component" },
	{ "program nc\nspin 1", 2, 1, "all programs" },
	{ "program nc\nmode off", 2, 1, "section of program 'nc'" },
	{ "use", 1, 4, "the path is missing" },
	{ "use smh client *:*", 1, 5, "did you mean 'shm'" },
	{ "use shm", 1, 8, "the role is missing" },
	{ "use shm cleint *:*", 1, 9, "did you mean 'client'" },
	{ "use shm client", 1, 15, "the address is missing" },
	{ "use shm client *", 1, 17, "no port" },
	{ "use shm client *:", 1, 18, "not a port" },
	{ "use shm client *:0", 1, 18, "not a port" },
	{ "use shm client *:65536", 1, 18, "1 to 65535" },
	{ "use shm client *:80x", 1, 18, "not a port" },
	{ "use shm client *:80-", 1, 21, "not a port" },
	{ "use shm client *:-80", 1, 18, "not a port" },
	{ "use shm client *:90-80", 1, 18, "backwards" },
	{ "use shm client *:80-90-100", 1, 21, "not a port" },
	{ "use shm client :80", 1, 16, "not an IPv4 address" },
	{ "use shm client localhost:80", 1, 16, "names are not looked up" },
	{ "use shm client 1.2.3:80", 1, 16, "not an IPv4 address" },
	{ "use shm client 1.2.3.256:80", 1, 16, "not an IPv4 address" },
	{ "use shm client 1.2.3.4/33:80", 1, 24, "0 to 32" },
	{ "use shm client 1.2.3.4/:80", 1, 24, "prefix length" },
	{ "use shm client 1.2.3.4/8:80", 1, 16, "beyond its prefix" },
	{ "use shm client ::1:80", 1, 16, "in brackets" },
	{ "use shm client [::1:80", 1, 16, "no closing ]" },
	{ "use shm client [::1]", 1, 21, "has no port" },
	{ "use shm client [::1]80", 1, 21, "has no port" },
	{ "use shm client [::1]/64", 1, 17, "beyond its prefix" },
	{ "use shm client [::]/64", 1, 23, "has no port" },
	{ "use shm client [zz]:1", 1, 17, "not an IPv6 address" },
	{ "use shm client [::/129]:1", 1, 20, "0 to 128" },
	{ "use shm client [1.2.3.4]:1", 1, 17, "not an IPv6 address" },
	{ "use shm client [fe80::1%eth0]:1", 1, 17, "not an IPv6 address" },
	{ "use shm client [::ffff:0:0/90]:1", 1, 17, "IPv4" },
	{ "use shm client *:* *", 1, 21, "no port" },
	{ "use shm client *:* *:* x", 1, 24, "too many" },
	{ "use shm client *:* # c\nuse shm both 1.1.1.1:x", 2, 22, "not a port" },
	{ "mode \x01\xff", 1, 6, "'\\x01\\xff'" },
};

START_TEST(test_bad)
{
	struct policy_error err;
	struct policy *p = (struct policy *)&err;
	int rc = policy_parse(bad[_i].text, strlen(bad[_i].text), "t.conf", &p, &err);

	ck_assert_msg(rc == -EINVAL, "<%s> was taken", bad[_i].text);
	ck_assert_str_eq(err.file, "t.conf");
	ck_assert_msg(err.line == bad[_i].line && err.col == bad[_i].col, "<%s>: %d:%d: %s",
		      bad[_i].text, err.line, err.col, err.msg);
	ck_assert_msg(strstr(err.msg, bad[_i].says), "<%s>: %s", bad[_i].text, err.msg);
	ck_assert_msg(p == (struct policy *)&err, "*ret was touched");
	ck_assert_int_eq(policy_parse(bad[_i].text, strlen(bad[_i].text), "t.conf", &p, NULL),
			 -EINVAL);
}
END_TEST

START_TEST(test_bad_bytes)
{
	static const char nul[] = "mode on\nspin\0 1";
	struct policy_error err;
	struct policy *p;
	size_t len = (1 << 20) + 1, i;
	char *big = malloc(len);

	ck_assert_int_eq(policy_parse(nul, sizeof(nul) - 1, "n", &p, &err), -EINVAL);
	ck_assert_int_eq(err.line, 2);
	ck_assert_int_eq(err.col, 5);
	ck_assert_ptr_nonnull(strstr(err.msg, "NUL"));

	/* one line of nearly 1 MiB, in which the last word is wrong */
	memset(big, ' ', len);
	memcpy(big, "mode", 4);
	memcpy(big + len - 4, "bad", 3);
	ck_assert_int_eq(policy_parse(big, len - 1, "n", &p, &err), -EINVAL);
	ck_assert_int_eq(err.line, 1);
	ck_assert_int_eq(err.col, (int)len - 3);
	/* a word of nearly 1 MiB: the message shows its start only */
	memset(big, 'x', len);
	ck_assert_int_eq(policy_parse(big, len - 1, "n", &p, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "xxx...'"));
	/* too long */
	for (i = 0; i < len; i++)
		big[i] = '\n';
	ck_assert_int_eq(policy_parse(big, len - 1, "n", &p, &err), 0);
	policy_free(p);
	ck_assert_int_eq(policy_parse(big, len, "n", &p, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "1 MiB"));
	free(big);
}
END_TEST
