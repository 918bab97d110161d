/*
 * test_policy.c - the policy file's language, its errors with their places, and decisions. Run
 * from the top of the source tree (or with RDMASHIM_SRC set): the example files and the
 * documents are checked too.
 *
 * TIMEOUT: 180
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../policy/conf.h"
#include "../../policy/log.h"
#include "../../policy/stat.h"
#include "../../policy/words.h"

#define TCP (1u << PATH_TCP)
#define SHM (1u << PATH_SHM)
#define RDMA (1u << PATH_RDMA)

static struct policy *must_parse(const char *text)
{
	struct policy_error err;
	struct policy *p = NULL;
	int rc = policy_parse(text, strlen(text), "dir/test.conf", &p, &err);

	ck_assert_msg(rc == 0, "%s:%d:%d: %s in <%s>", rc ? err.file : "", rc ? err.line : 0,
		      rc ? err.col : 0, rc ? err.msg : "", text);
	return p;
}

/* "1.2.3.4:80", "[::1]:80", "-" = not known */
static const struct sockaddr *sa(const char *text, struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	char tmp[64], *colon;

	memset(ss, 0, sizeof(*ss));
	if (!strcmp(text, "-"))
		return NULL;
	strcpy(tmp, text);
	colon = strrchr(tmp, ':');
	*colon = '\0';
	if (tmp[0] == '[') {
		tmp[strlen(tmp) - 1] = '\0';
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)atoi(colon + 1));
		ck_assert_int_eq(inet_pton(AF_INET6, tmp + 1, &in6->sin6_addr), 1);
	} else {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)atoi(colon + 1));
		ck_assert_int_eq(inet_pton(AF_INET, tmp, &in->sin_addr), 1);
	}
	return (const struct sockaddr *)ss;
}

static struct policy_decision decide(const struct policy *p, const char *prog,
				     enum stream_role role, const char *local, const char *peer)
{
	struct sockaddr_storage l, r;
	struct policy_decision d;

	policy_decide(p, prog, role, sa(local, &l), sa(peer, &r), &d);
	ck_assert(d.paths & TCP);
	return d;
}

/* ---- good files ---- */

static const struct {
	const char *text;
	size_t rules;
	enum conf_key key;
	uint64_t value;
	bool on;
} good[] = {
	{ "", 0, CONF_spin, 50, true },
	{ "\n\n  \t# only a comment\n", 0, CONF_spin, 50, true },
	{ "mode on", 0, CONF_spin, 50, true },
	{ "mode off\n", 0, CONF_spin, 50, false },
	{ "\xef\xbb\xbfmode off\r\nspin 1ms\r\n", 0, CONF_spin, 1000, false },
	{ "spin 0", 0, CONF_spin, 0, true },
	{ "spin 7", 0, CONF_spin, 7, true },
	{ "spin 7us#comment", 0, CONF_spin, 7, true },
	{ "spin 1s", 0, CONF_spin, 1000000, true },
	{ "ring_size 4K", 0, CONF_ring_size, 4096, true },
	{ "ring_size 16M", 0, CONF_ring_size, 16 << 20, true },
	{ "ring_size 65536", 0, CONF_ring_size, 65536, true },
	{ "earn_bytes 1024G", 0, CONF_earn_bytes, 1ull << 40, true },
	{ "earn_bytes 0000000000000000000000000000001", 0, CONF_earn_bytes, 1, true },
	{ "link_streams 4096", 0, CONF_link_streams, 4096, true },
	{ "rdma_mtu 1K", 0, CONF_rdma_mtu, 1024, true },
	{ "rdma_mtu 0", 0, CONF_rdma_mtu, 0, true },
	{ "\tuse\tshm  client   *:*   # c\n", 1, CONF_spin, 50, true },
	{ "use any both 10.0.0.0/8:1-65535 [2001:db8::/32]:443\nuse tcp server [::1]:80\nprogram "
	  "x\nuse rdma client [fe80::]/10:*",
	  3, CONF_spin, 50, true },
	{ "program x\nuse tcp both *:*\nprogram *\nspin 2\nmode off", 1, CONF_spin, 2, false },
};

START_TEST(test_good)
{
	struct policy *p = must_parse(good[_i].text);

	ck_assert_uint_eq(policy_rules(p), good[_i].rules);
	ck_assert_uint_eq(conf_get(policy_tunables(p), good[_i].key), good[_i].value);
	ck_assert_int_eq(policy_mode_on(p), good[_i].on);
	policy_free(p);
}
END_TEST

/* ---- bad files: the place and the words that help ---- */

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
	{ "program x\ndiscovery_dir /a", 2, 1, "all programs" },
	{ "discovery_dri /a", 1, 1, "did you mean 'discovery_dir'" },
	{ "peer_users", 1, 11, "peer_users postgres" },
	{ "peer_users nobodys-name", 1, 12, "no user in /etc/passwd" },
	{ "peer_users 4294967295", 1, 12, "no user in /etc/passwd" },
	{ "peer_users root:x", 1, 12, "no user in /etc/passwd" },
	{ "program x\npeer_users any", 2, 1, "all programs" },
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

/* ---- decisions ---- */

static const char rules[] =
	"use tcp both *:22\n"					/* 1 */
	"program redis-*\n"					/* 2 */
	"use shm server 127.0.0.0/8:6379\n"			/* 3 */
	"use any client 10.0.0.0/8:6000-6999\n"			/* 4 */
	"use tcp both *:*\n"					/* 5 */
	"program n?inx\n"					/* 6 */
	"use rdma client [2001:db8::/32]:443\n"			/* 7 */
	"use tcp server *:80 192.168.1.0/24:*\n"		/* 8 */
	"use shm both 192.168.1.7:8080 10.1.2.3:1000-2000\n"	/* 9 */
	"program *\n"						/* 10 */
	"use tcp client [::ffff:1.2.3.4]:5\n"			/* 11 */
	"use tcp both [::/0]:7\n"				/* 12 */
	"use tcp both 0.0.0.0/0:8\n"				/* 13 */
	"use tcp both 128.0.0.0/1:9\n"				/* 14 */
	"use tcp both [2001:db8:8000::/33]:10\n"		/* 15 */
	"use rdma server *:11 *:12\n";				/* 16 */

static const struct {
	const char *prog;
	enum stream_role role;
	const char *local, *peer;
	uint32_t paths;
	int line;
} cases[] = {
	/* no rule: the same-host path, no RDMA */
	{ "foo", ROLE_CLIENT, "127.0.0.1:4000", "127.0.0.1:80", TCP | SHM, 0 },
	{ "foo", ROLE_ANY, "-", "-", TCP | SHM, 0 },
	/* the first address is the server's end */
	{ "foo", ROLE_CLIENT, "1.1.1.1:4000", "2.2.2.2:22", TCP, 1 },
	{ "foo", ROLE_SERVER, "1.1.1.1:22", "2.2.2.2:4000", TCP, 1 },
	{ "foo", ROLE_SERVER, "1.1.1.1:4000", "2.2.2.2:22", TCP | SHM, 0 },
	{ "foo", ROLE_CLIENT, "1.1.1.1:22", "2.2.2.2:4000", TCP | SHM, 0 },
	{ "foo", ROLE_ANY, "1.1.1.1:22", "2.2.2.2:4000", TCP, 1 },
	{ "foo", ROLE_ANY, "1.1.1.1:4000", "2.2.2.2:22", TCP, 1 },
	/* sections, first match */
	{ "redis-server", ROLE_SERVER, "127.0.0.1:22", "127.0.0.1:9999", TCP, 1 },
	{ "redis-server", ROLE_SERVER, "127.0.0.1:6379", "127.0.0.1:9999", TCP | SHM, 3 },
	{ "redis-server", ROLE_SERVER, "127.255.255.255:6379", "127.0.0.1:9999", TCP | SHM, 3 },
	{ "redis-server", ROLE_SERVER, "128.0.0.0:6379", "127.0.0.1:9999", TCP, 5 },
	{ "redis-server", ROLE_CLIENT, "127.0.0.1:9999", "127.0.0.1:6379", TCP, 5 },
	{ "redis-", ROLE_SERVER, "127.0.0.1:6379", "127.0.0.1:9999", TCP | SHM, 3 },
	{ "redis", ROLE_SERVER, "127.0.0.1:6379", "127.0.0.1:9999", TCP | SHM, 0 },
	{ "xredis-server", ROLE_SERVER, "128.0.0.0:6379", "127.0.0.1:9999", TCP | SHM, 0 },
	{ "redis-server", ROLE_ANY, "-", "-", TCP, 5 },
	/* port ranges, both ends */
	{ "redis-cli", ROLE_CLIENT, "10.0.0.1:1", "10.9.9.9:5999", TCP, 5 },
	{ "redis-cli", ROLE_CLIENT, "10.0.0.1:1", "10.9.9.9:6000", TCP | SHM | RDMA, 4 },
	{ "redis-cli", ROLE_CLIENT, "10.0.0.1:1", "10.9.9.9:6999", TCP | SHM | RDMA, 4 },
	{ "redis-cli", ROLE_CLIENT, "10.0.0.1:1", "10.9.9.9:7000", TCP, 5 },
	{ "nginx", ROLE_CLIENT, "[::1]:1", "[2001:db8:ffff::1]:443", TCP | RDMA, 7 },
	{ "ngginx", ROLE_CLIENT, "[::1]:1", "[2001:db8:ffff::1]:443", TCP | SHM, 0 },
	{ "nginx", ROLE_CLIENT, "[::1]:1", "[2001:db9::1]:443", TCP | SHM, 0 },
	{ "nginx", ROLE_SERVER, "9.9.9.9:80", "192.168.1.255:5", TCP, 8 },
	{ "nginx", ROLE_SERVER, "9.9.9.9:80", "192.168.2.0:5", TCP | SHM, 0 },
	{ "nginx", ROLE_CLIENT, "10.1.2.3:1500", "192.168.1.7:8080", TCP | SHM, 9 },
	{ "nginx", ROLE_SERVER, "192.168.1.7:8080", "10.1.2.3:1500", TCP | SHM, 9 },
	/* v4-mapped addresses and rules are IPv4 */
	{ "foo", ROLE_CLIENT, "[::ffff:9.9.9.9]:1", "[::ffff:1.2.3.4]:5", TCP, 11 },
	{ "foo", ROLE_CLIENT, "9.9.9.9:1", "1.2.3.4:5", TCP, 11 },
	{ "redis-server", ROLE_SERVER, "[::ffff:127.0.0.1]:6379", "[::ffff:127.0.0.1]:9999",
	  TCP | SHM, 3 },
	{ "foo", ROLE_CLIENT, "[::1]:1", "[::ffff:1.2.3.4]:7", TCP | SHM, 0 },
	{ "foo", ROLE_CLIENT, "[::1]:1", "[::1]:7", TCP, 12 },
	{ "foo", ROLE_CLIENT, "1.1.1.1:1", "1.2.3.4:8", TCP, 13 },
	{ "foo", ROLE_CLIENT, "[::1]:1", "[::1]:8", TCP | SHM, 0 },
	/* prefixes that end inside a byte */
	{ "foo", ROLE_CLIENT, "1.1.1.1:1", "200.0.0.1:9", TCP, 14 },
	{ "foo", ROLE_CLIENT, "1.1.1.1:1", "127.0.0.1:9", TCP | SHM, 0 },
	{ "foo", ROLE_CLIENT, "[::1]:1", "[2001:db8:8000::1]:10", TCP, 15 },
	{ "foo", ROLE_CLIENT, "[::1]:1", "[2001:db8:7fff::1]:10", TCP | SHM, 0 },
	/* rdma alone does not let shared memory in */
	{ "foo", ROLE_SERVER, "1.1.1.1:11", "1.1.1.1:12", TCP | RDMA, 16 },
	{ "foo", ROLE_SERVER, "1.1.1.1:11", "-", TCP | SHM, 0 },
};

START_TEST(test_decide)
{
	struct policy *p = must_parse(rules);
	struct policy_decision d =
		decide(p, cases[_i].prog, cases[_i].role, cases[_i].local, cases[_i].peer);

	ck_assert_msg(d.paths == cases[_i].paths && d.line == cases[_i].line,
		      "%s %d %s %s: paths %x line %d", cases[_i].prog, cases[_i].role,
		      cases[_i].local, cases[_i].peer, d.paths, d.line);
	ck_assert_str_eq(d.file, d.line ? "test.conf" : "");
	ck_assert_int_eq(d.reason, d.paths == TCP ? REASON_POLICY : 0);
	policy_free(p);
}
END_TEST

START_TEST(test_fixed_policies)
{
	struct policy_decision d =
		decide(policy_builtin(), "x", ROLE_CLIENT, "1.1.1.1:1", "1.1.1.1:2");
	struct policy *p;
	int r;

	ck_assert_uint_eq(d.paths, TCP | SHM);
	ck_assert_int_eq(d.line, 0);
	ck_assert(policy_mode_on(policy_builtin()));
	ck_assert_uint_eq(policy_tunables(policy_builtin())->ring_size, 262144);
	for (r = 1; r < REASON_COUNT; r++) {
		d = decide(policy_all_tcp(r), "x", ROLE_CLIENT, "1.1.1.1:1", "1.1.1.1:2");
		ck_assert_uint_eq(d.paths, TCP);
		ck_assert_int_eq(d.reason, r);
		ck_assert(!policy_mode_on(policy_all_tcp(r)));
		ck_assert_uint_eq(policy_tunables(policy_all_tcp(r))->ring_size, 262144);
		policy_free((struct policy *)policy_all_tcp(r));	/* must do nothing */
	}
	ck_assert_int_eq(decide(policy_all_tcp(-1), "x", ROLE_ANY, "-", "-").reason, REASON_POLICY);
	ck_assert_int_eq(decide(policy_all_tcp(REASON_COUNT), "x", ROLE_ANY, "-", "-").reason,
			 REASON_POLICY);
	policy_free(NULL);
	p = must_parse("use any both *:*\nmode off");
	d = decide(p, "x", ROLE_CLIENT, "1.1.1.1:1", "1.1.1.1:2");
	ck_assert_uint_eq(d.paths, TCP);
	ck_assert_int_eq(d.reason, REASON_MODE_OFF);
	ck_assert_int_eq(d.line, 2);
	policy_free(p);
}
END_TEST

/* ---- files ---- */

START_TEST(test_load)
{
	char dir[] = "/tmp/rdmashim-policy-XXXXXX", path[64];
	struct policy_error err;
	struct policy *p;
	char *big;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/p", dir);
	errno = 77;
	ck_assert_int_eq(policy_load(path, &p, &err), -ENOENT);
	ck_assert_int_eq(errno, 77);
	ck_assert_str_eq(err.file, path);
	ck_assert_int_eq(err.line, 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "no such file"));
	ck_assert_int_eq(policy_load(dir, &p, &err), -EISDIR);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(policy_load(path, &p, &err), -EINVAL);	/* and does not wait for a writer */
	ck_assert_ptr_nonnull(strstr(err.msg, "regular"));
	unlink(path);
	ck_assert_int_eq(policy_load("/dev/null", &p, &err), 0);
	policy_free(p);
	ck_assert_int_eq(policy_load("/dev/zero", &p, &err), -EINVAL);

	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, "mode off\nuse x\n", 15), 15);
	ck_assert_int_eq(policy_load(path, &p, &err), -EINVAL);
	ck_assert_int_eq(err.line, 2);
	ck_assert_int_eq(err.col, 5);
	ck_assert_int_eq(ftruncate(fd, 9), 0);
	ck_assert_int_eq(policy_load(path, &p, &err), 0);
	ck_assert(!policy_mode_on(p));
	ck_assert_str_eq(decide(p, "x", ROLE_ANY, "-", "-").file, "p");
	policy_free(p);
	big = malloc(1 << 20);
	memset(big, '\n', 1 << 20);
	ck_assert_int_eq(pwrite(fd, big, 1 << 20, 0), 1 << 20);
	ck_assert_int_eq(policy_load(path, &p, &err), 0);
	policy_free(p);
	ck_assert_int_eq(pwrite(fd, big, 1, 1 << 20), 1);
	ck_assert_int_eq(policy_load(path, &p, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "1 MiB"));
	free(big);
	close(fd);
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(test_path)
{
	setenv("RDMASHIM_CONF", "/x/y", 1);
	ck_assert(policy_path_given(false) && !policy_path_given(true));
	ck_assert_str_eq(policy_path(false), "/x/y");
	ck_assert_str_eq(policy_path(true), "/etc/rdmashim.conf");
	setenv("RDMASHIM_CONF", "", 1);
	ck_assert_str_eq(policy_path(false), "/etc/rdmashim.conf");
	unsetenv("RDMASHIM_CONF");
	ck_assert_str_eq(policy_path(false), "/etc/rdmashim.conf");
}
END_TEST

START_TEST(test_switched_off)
{
	static const char *const off[] = { "off", "OFF", "Off", "no", "NO", "false", "False", "0" };
	static const char *const on[] = { "", "on", "1", "offf", "of", "00", "no thanks",
					  "falsehood", "a value that is longer than any of them" };

	unsetenv("RDMASHIM");
	ck_assert(!policy_switched_off());
	for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
		setenv("RDMASHIM", off[i], 1);
		ck_assert_msg(policy_switched_off(), "%s", off[i]);
	}
	for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
		setenv("RDMASHIM", on[i], 1);
		ck_assert_msg(!policy_switched_off(), "%s", on[i]);
	}
	unsetenv("RDMASHIM");
	setenv("RDMASHIM_CONF", "", 1);
	ck_assert(!policy_path_given(false));
	unsetenv("RDMASHIM_CONF");
}
END_TEST

/* ---- random damage ---- */

static uint64_t rnd(void)
{
	static uint64_t s = 88172645463325252ull;

	s ^= s << 13;
	s ^= s >> 7;
	return s ^= s << 17;
}

/* One to four edits of buf[0..len), which has room for cap bytes. */
static size_t mutate(char *buf, size_t len, size_t cap)
{
	static const char tasty[] = "\0\n\r\t #*:/-[]=.0123456789KMGus\xff\x80";
	int edits = 1 + (int)(rnd() % 4);
	size_t at, n;

	while (edits--) {
		at = len ? rnd() % len : 0;
		switch (rnd() % 6) {
		case 0:
			if (len)
				buf[at] = tasty[rnd() % (sizeof(tasty) - 1)];
			break;
		case 1:
			if (len)
				buf[at] ^= (char)(1 << rnd() % 8);
			break;
		case 2:
			n = len ? rnd() % 8 % (len - at) : 0;
			memmove(buf + at, buf + at + n, len - at - n);
			len -= n;
			break;
		case 3:
			if (len + 1 > cap)
				break;
			memmove(buf + at + 1, buf + at, len - at);
			buf[at] = tasty[rnd() % (sizeof(tasty) - 1)];
			len++;
			break;
		case 4:
			n = len ? rnd() % 64 % (len - at) : 0;
			if (len + n > cap)
				break;
			memmove(buf + at + n, buf + at, len - at);
			len += n;
			break;
		case 5:
			if (rnd() % 8 == 0)
				len = at;
			break;
		}
	}
	return len;
}

static void check_result(int rc, const struct policy *p, const struct policy_error *err,
			 const char *text, size_t len)
{
	int lines = 1, i;
	size_t k;

	if (rc) {
		for (k = 0; k < len; k++)
			lines += text[k] == '\n';
		ck_assert_int_eq(rc, -EINVAL);
		ck_assert(err->line >= 1 && err->line <= lines && err->col >= 1 &&
			  err->col <= (int)len + 1);
		ck_assert(err->msg[0] && memchr(err->msg, 0, sizeof(err->msg)));
		return;
	}
	for (i = 0; i < CONF_KEYS; i++) {
		uint64_t v = conf_get(policy_tunables(p), (enum conf_key)i);

		ck_assert(v >= conf_rows[i].min && v <= conf_rows[i].max);
	}
	for (k = 0; k < sizeof(cases) / sizeof(cases[0]); k += 5)
		decide(p, cases[k].prog, cases[k].role, cases[k].local, cases[k].peer);
}

START_TEST(test_mutations)
{
	static const char seed[] =
		"mode on # c\nspin 50us\nring_size 256K\nlink_streams 7\nearn_bytes 1M\n"
		"program redis-*\nuse shm both 127.0.0.0/8:6379 *:*\n"
		"use any client [2001:db8::/32]:80-90 [::1]:*\nprogram *\nuse tcp server *:22\n";
	enum { CAP = 1024 };
	int i, rc, good_n = 0, bad_n = 0;
	struct policy_error err;
	struct policy *p;
	char buf[CAP], *exact;
	size_t len;

	for (i = 0; i < 20000; i++) {
		memcpy(buf, seed, sizeof(seed) - 1);
		len = mutate(buf, sizeof(seed) - 1, CAP);
		exact = malloc(len ? len : 1);	/* a read beyond the end is seen by ASan */
		memcpy(exact, buf, len);
		p = NULL;
		rc = policy_parse(exact, len, "fuzz", &p, &err);
		check_result(rc, p, &err, exact, len);
		rc ? bad_n++ : good_n++;
		policy_free(p);
		free(exact);
	}
	/* else the mutations test only one side */
	ck_assert_int_gt(good_n, 1000);
	ck_assert_int_gt(bad_n, 1000);
}
END_TEST

/* ---- words ---- */

START_TEST(test_words)
{
	char b[64];
	uint64_t v;
	bool over;

	ck_assert_uint_eq(fmt_string(b, sizeof(b), "%s|%d|%u|%lu|%lx|%c|%%|%zu", "a", -5, 7u, ~0ul,
				     0xabcul, 'x', (size_t)9),
			  37);
	ck_assert_str_eq(b, "a|-5|7|18446744073709551615|abc|x|%|9");
	fmt_string(b, sizeof(b), "%ld %p", (long)INT64_MIN, (void *)0x10);
	ck_assert_str_eq(b, "-9223372036854775808 0x10");
	ck_assert_uint_eq(fmt_string(b, 4, "abcdef"), 3);
	ck_assert_str_eq(b, "abc");
	ck_assert_uint_eq(parse_digits("18446744073709551615", 20, &v, &over), 20);
	ck_assert(v == UINT64_MAX && !over);
	parse_digits("18446744073709551616", 20, &v, &over);
	ck_assert(over);
	/* the product overflows, the sum does not */
	parse_digits("30000000000000000000", 20, &v, &over);
	ck_assert(over);
	ck_assert_uint_eq(parse_digits("12x", 3, &v, &over), 2);
	ck_assert_uint_eq(v, 12);
	ck_assert(glob_match("*", 1, ""));
	ck_assert(glob_match("a*b*c", 5, "aXbYbZc"));
	ck_assert(!glob_match("a*b*c", 5, "aXbYbZ"));
	ck_assert(!glob_match("?", 1, ""));
	ck_assert(!glob_match("a", 1, "ab"));
	ck_assert(!glob_match("", 0, "a"));
	/* would take for ever with a matcher that tries every star */
	ck_assert(!glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*b", 26,
			      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
			      "aaaaaaaaaaaaaaaaaaa"));
	ck_assert_str_eq(quote_word("a\033b", 3, b, sizeof(b)), "'a\\x1bb'");
}
END_TEST

/* What becomes of s, of len bytes. */
static const char *printable(const char *s, size_t len, int keep)
{
	static char b[64];

	memset(b, 'X', sizeof(b));
	memcpy(b, s, len);
	make_printable(b, len, '?', keep);
	ck_assert_int_eq(b[len], 'X');
	b[len] = '\0';
	ck_assert_uint_eq(strlen(b), len);
	return b;
}

START_TEST(test_printable)
{
#define KEPT(s, is) ck_assert_str_eq(printable(s, sizeof(s) - 1, KEEP_UTF8), is)
	KEPT("", "");
	KEPT("plain ~ text", "plain ~ text");
	KEPT("a\0b", "a?b");
	KEPT("\033[31m\n\r\t\x7f", "?[31m????");
	KEPT("J\xc3\xbcrgen \xe6\x97\xa5", "J\xc3\xbcrgen \xe6\x97\xa5");
	KEPT("\xf0\x9f\x90\x87", "\xf0\x9f\x90\x87");
	KEPT("\x9b" "1m", "?1m");			/* C1 as a byte */
	KEPT("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "??????\xc2\xa0");	/* and in UTF-8 */
	KEPT("\xc0\x9b\xe0\x82\x9b\xc1\xbf", "???????");	/* too long for what they are */
	/* a surrogate, beyond Unicode, no UTF-8 */
	KEPT("\xed\xa0\x80\xf4\x90\x80\x80\xff\xfe\xf8\x88\x80\x80\x80", "??????????????");
	KEPT("\xc3", "?");				/* cut off, at the end and by another */
	KEPT("\xe6\x97", "??");
	KEPT("\xe6\x97z", "??z");
	KEPT("\xc3\033", "??");
	KEPT("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf", "????????????");
	ck_assert_str_eq(printable("a\xc3\xbc\033", 4, ASCII_ONLY), "a???");
}
END_TEST

/* ---- the logger ---- */

/* What a child says to fd 2 when `run` is called there. */
static size_t child_stderr(void (*run)(void), char *buf, size_t len)
{
	size_t used = 0;
	ssize_t n;
	int fd[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		dup2(fd[1], 2);
		close(fd[0]);
		close(fd[1]);
		run();
		_exit(0);
	}
	close(fd[1]);
	while ((n = read(fd[0], buf + used, len - 1 - used)) > 0)
		used += (size_t)n;
	buf[used] = '\0';
	close(fd[0]);
	waitpid(pid, NULL, 0);
	return used;
}

static void log_levels(void)
{
	log_init(LOG_LEVEL_WARN);
	errno = 5;
	log_line(LOG_LEVEL_ERROR, "one %d", 1);
	log_line(LOG_LEVEL_WARN, "errno %d", errno);
	log_line(LOG_LEVEL_PATH, "hidden");
}

static void log_flood(void)
{
	int i;

	log_init(LOG_LEVEL_WARN);
	for (i = 0; i < 5000; i++)
		log_line(LOG_LEVEL_WARN, "x");
}

static void log_replaced(void)
{
	int fd;

	log_init(LOG_LEVEL_WARN);
	fd = open("/dev/null", O_WRONLY);
	ck_assert(fd >= 0);
	/* fd 2 is now another pipe's end: as if the program had put its own file there */
	int p[2];
	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], 2);
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	log_line(LOG_LEVEL_WARN, "leaked");
	char c;
	_exit(read(p[0], &c, 1) > 0 ? 1 : 0);
}

START_TEST(test_log)
{
	static char buf[1 << 16];
	char pid_prefix[] = "rdmashim[";
	size_t lines = 0, i;
	int st;
	pid_t pid;

	child_stderr(log_levels, buf, sizeof(buf));
	ck_assert_int_eq(strncmp(buf, pid_prefix, strlen(pid_prefix)), 0);
	ck_assert_ptr_nonnull(strstr(buf, "]: one 1\n"));
	ck_assert_ptr_nonnull(strstr(buf, "]: errno 5\n"));
	ck_assert_ptr_null(strstr(buf, "hidden"));

	child_stderr(log_flood, buf, sizeof(buf));
	for (i = 0; buf[i]; i++)
		lines += buf[i] == '\n';
	ck_assert_uint_ge(lines, LOG_PER_SECOND);
	ck_assert_uint_le(lines, 3 * LOG_PER_SECOND);

	pid = fork();
	if (!pid)
		log_replaced();
	waitpid(pid, &st, 0);
	ck_assert_msg(WIFEXITED(st) && WEXITSTATUS(st) == 0,
		      "a log line went to a descriptor that is not the old stderr");
}
END_TEST

static char log_file[64];

static void log_to_file(void)
{
	log_init(LOG_LEVEL_SILENT);
	log_set_level(LOG_LEVEL_ERROR);		/* as the policy would: the environment's counts */
	log_line(LOG_LEVEL_PATH, "seen %d", 7);
	log_line(LOG_LEVEL_DEBUG, "hidden");
}

static void all_levels(void)
{
	log_init(LOG_LEVEL_DEBUG);
	for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++)
		log_line(i, "level %d", i);
}

/* The log file's text behind what stood there; an empty file is left. */
static const char *logged(void (*run)(void), const char *env, char *errors, size_t len)
{
	static char buf[4096];
	FILE *f;
	size_t n;

	ck_assert_int_eq(truncate(log_file, 0), 0);
	setenv("RDMASHIM_LOG", env, 1);
	child_stderr(run, errors, len);
	unsetenv("RDMASHIM_LOG");
	f = fopen(log_file, "r");
	ck_assert_ptr_nonnull(f);
	n = fread(buf, 1, sizeof(buf) - 1, f);
	buf[n] = '\0';
	fclose(f);
	return buf;
}

START_TEST(test_log_environment)
{
	char env[96], err[1024], again[128], level[16];
	struct tm tm = { 0 };
	const char *text;
	unsigned us;
	int pid, n, fd;
	time_t t;

	strcpy(log_file, "/tmp/rdmashim-log-XXXXXX");
	fd = mkstemp(log_file);
	ck_assert_int_ge(fd, 0);
	snprintf(env, sizeof(env), "path:%s", log_file);
	text = logged(log_to_file, env, err, sizeof(err));
	ck_assert_str_eq(err, "");
	ck_assert_int_eq(sscanf(text, "%d-%d-%dT%d:%d:%d.%6uZ %15s rdmashim[%d]: seen 7%n",
				&tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
				&tm.tm_sec, &us, level, &pid, &n),
			 9);
	ck_assert_str_eq(text + n, "\n");
	ck_assert_str_eq(level, "path");
	tm.tm_year -= 1900;
	tm.tm_mon--;
	t = timegm(&tm);
	ck_assert_msg(t > time(NULL) - 60 && t <= time(NULL), "logged at %ld, now is %ld", (long)t,
		      (long)time(NULL));
	snprintf(env, sizeof(env), "4:%s", log_file);
	text = logged(all_levels, env, err, sizeof(err));
	for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++) {
		static const char *const names[] = { "", "error", "warn", "path", "debug" };

		snprintf(again, sizeof(again), " %s rdmashim[", names[i]);
		ck_assert_msg(strstr(text, again), "no line with%s in %s", again, text);
	}
	/* to stderr; the policy's level counts for nothing */
	ck_assert_str_eq(logged(log_to_file, "3", err, sizeof(err)), "");
	ck_assert_ptr_nonnull(strstr(err, "]: seen 7\n"));
	ck_assert_str_eq(logged(all_levels, "silent", err, sizeof(err)), "");
	ck_assert_str_eq(err, "");
	/* what makes no sense is told, and the level stays the policy's */
	logged(all_levels, "verbose:/x", err, sizeof(err));
	ck_assert_ptr_nonnull(strstr(err, "RDMASHIM_LOG is not LEVEL"));
	ck_assert_ptr_nonnull(strstr(err, "]: level 4\n"));
	/* errors that the file cannot take, and nothing else */
	logged(all_levels, "debug:/nowhere/at/all", err, sizeof(err));
	ck_assert_ptr_nonnull(strstr(err, "]: level 1\n"));
	ck_assert_ptr_null(strstr(err, "level 2"));
	/* a full file gets no more */
	snprintf(env, sizeof(env), "4:%s", log_file);
	setenv("RDMASHIM_LOG", env, 1);
	ck_assert_int_eq(ftruncate(fd, LOG_FILE_MAX), 0);
	child_stderr(all_levels, err, sizeof(err));
	ck_assert_int_eq(lseek(fd, 0, SEEK_END), LOG_FILE_MAX);
	unsetenv("RDMASHIM_LOG");
	close(fd);
	unlink(log_file);
}
END_TEST

/* ---- examples and documents follow the tables ---- */

static char *slurp(const char *rel)
{
	const char *root = getenv("RDMASHIM_SRC");
	char path[4096], *buf = calloc(1, 1 << 20);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root ? root : ".", rel);
	f = fopen(path, "r");
	ck_assert_msg(f, "%s: %s (run this from the top of the source tree)", path,
		      strerror(errno));
	ck_assert(fread(buf, 1, (1 << 20) - 1, f) > 0);
	fclose(f);
	return buf;
}

START_TEST(test_examples)
{
	static const char *const files[] = { "conf/rdmashim.conf", "conf/examples/redis.conf",
					     "conf/examples/nginx.conf" };
	size_t i;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char *text = slurp(files[i]);

		policy_free(must_parse(text));
		free(text);
	}
}
END_TEST

/* The example names every tunable in a comment line of its own, with the default as value. */
START_TEST(test_example_has_every_key)
{
	char *text = slurp("conf/rdmashim.conf"), want[128], value[32];
	int i;

	for (i = 0; i < CONF_KEYS; i++) {
		snprintf(want, sizeof(want), "\n#%s %s\n", conf_rows[i].name,
			 conf_value_text(conf_rows[i].type, conf_rows[i].dflt, value,
					 sizeof(value)));
		ck_assert_msg(strstr(text, want), "conf/rdmashim.conf lacks the line%s", want);
	}
	free(text);
}
END_TEST

START_TEST(test_documents_have_every_row)
{
	char *md = slurp("docs/policy.md"), *conf5 = slurp("docs/rdmashim.conf.5"),
	     *man1 = slurp("docs/rdmastat.1");
	char row[512], lo[32], hi[32], dflt[32];
	int i;

	for (i = 0; i < CONF_KEYS; i++) {
		const struct conf_row *r = &conf_rows[i];

		conf_value_text(r->type, r->dflt, dflt, sizeof(dflt));
		conf_value_text(r->type, r->min, lo, sizeof(lo));
		conf_value_text(r->type, r->max, hi, sizeof(hi));
		snprintf(row, sizeof(row), "| `%s` | %s | %s | %s |", r->name, dflt, lo, hi);
		ck_assert_msg(strstr(md, row), "docs/policy.md lacks: %s", row);
		snprintf(row, sizeof(row), ".BR %s \" (%s; %s to %s)\"", r->name, dflt, lo, hi);
		ck_assert_msg(strstr(conf5, row), "docs/rdmashim.conf.5 lacks: %s", row);
	}
	for (i = REASON_NONE + 1; i < REASON_COUNT; i++) {
		snprintf(row, sizeof(row), "\n.B %s\n", reason_name((unsigned)i));
		ck_assert_msg(strstr(man1, row), "docs/rdmastat.1 lacks reason %s",
			      reason_name((unsigned)i));
	}
	free(md);
	free(conf5);
	free(man1);
}
END_TEST

static bool trusts(const struct policy *p, const char *host)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct sockaddr_in6 b = { .sin6_family = AF_INET6 };

	if (inet_pton(AF_INET, host, &a.sin_addr) == 1)
		return policy_trusts(p, (void *)&a);
	ck_assert_int_eq(inet_pton(AF_INET6, host, &b.sin6_addr), 1);
	return policy_trusts(p, (void *)&b);
}

START_TEST(test_users)
{
	struct policy *p = must_parse("peer_users 33 daemon\npeer_users 4294967294\n");

	ck_assert(policy_takes_from(p, 33));
	ck_assert(policy_takes_from(p, 1));	/* daemon, everywhere */
	ck_assert(policy_takes_from(p, 4294967294));
	ck_assert(!policy_takes_from(p, 0));
	ck_assert(!policy_takes_from(p, 34));
	policy_free(p);
	p = must_parse("peer_users any\n");
	ck_assert(policy_takes_from(p, 34));
	policy_free(p);
	ck_assert(!policy_takes_from(policy_builtin(), 0));
}
END_TEST

START_TEST(test_other_hosts)
{
	struct policy *p = must_parse("discovery_dir /meet\nkey_file /etc/x.key\nrdma_networks "
				      "10.1.0.0/16 [2001:db8::/32]\nrdma_networks 192.0.2.7\n");

	ck_assert_str_eq(policy_key_file(p), "/etc/x.key");
	ck_assert_str_eq(policy_discovery_dir(p), "/meet");
	ck_assert(trusts(p, "10.1.255.3"));
	ck_assert(trusts(p, "192.0.2.7"));
	ck_assert(trusts(p, "::ffff:10.1.0.1"));
	ck_assert(trusts(p, "2001:db8:1::1"));
	ck_assert(!trusts(p, "10.2.0.1"));
	ck_assert(!trusts(p, "192.0.2.8"));
	ck_assert(!trusts(p, "2001:db9::1"));
	policy_free(p);
	ck_assert_str_eq(policy_key_file(policy_builtin()), "");
	ck_assert_str_eq(policy_discovery_dir(policy_builtin()), "");
	ck_assert(!trusts(policy_builtin(), "127.0.0.1"));
	ck_assert(!trusts(policy_all_tcp(REASON_MODE_OFF), "10.0.0.1"));
}
END_TEST

static int via(const struct policy *p, const char *own)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct sockaddr_in6 b = { .sin6_family = AF_INET6 };

	if (inet_pton(AF_INET, own, &a.sin_addr) == 1)
		return policy_via(p, (void *)&a);
	ck_assert_int_eq(inet_pton(AF_INET6, own, &b.sin6_addr), 1);
	return policy_via(p, (void *)&b);
}

START_TEST(test_via)
{
	struct policy *p = must_parse("rdma_via 10.2.0.0/16 [2001:db8::/32]\nrdma_networks "
				      "10.0.0.0/8\nrdma_via 10.1.0.0/16\n");

	ck_assert(policy_has_via(p));
	ck_assert_int_eq(via(p, "10.2.3.4"), 0);
	ck_assert_int_eq(via(p, "2001:db8::7"), 1);
	ck_assert_int_eq(via(p, "::ffff:10.1.0.1"), 2);
	ck_assert_int_eq(via(p, "10.3.0.1"), -1);	/* trusted, which is another thing */
	ck_assert(trusts(p, "10.3.0.1"));
	policy_free(p);
	p = must_parse("rdma_networks 10.0.0.0/8\n");
	ck_assert(!policy_has_via(p));
	ck_assert_int_eq(via(p, "10.3.0.1"), -1);
	policy_free(p);
	ck_assert(!policy_has_via(policy_builtin()));
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
	Suite *s = suite_create("policy");
	TCase *t = tcase_create("policy");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120);	/* the mutations, under a sanitizer */
	tcase_add_loop_test(t, test_good, 0, COUNT(good));
	tcase_add_loop_test(t, test_bad, 0, COUNT(bad));
	tcase_add_test(t, test_bad_bytes);
	tcase_add_test(t, test_printable);
	tcase_add_loop_test(t, test_decide, 0, COUNT(cases));
	tcase_add_test(t, test_fixed_policies);
	tcase_add_test(t, test_users);
	tcase_add_test(t, test_other_hosts);
	tcase_add_test(t, test_via);
	tcase_add_test(t, test_load);
	tcase_add_test(t, test_path);
	tcase_add_test(t, test_mutations);
	tcase_add_test(t, test_words);
	tcase_add_test(t, test_switched_off);
	tcase_add_test(t, test_log);
	tcase_add_test(t, test_log_environment);
	tcase_add_test(t, test_examples);
	tcase_add_test(t, test_example_has_every_key);
	tcase_add_test(t, test_documents_have_every_row);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed;
}
