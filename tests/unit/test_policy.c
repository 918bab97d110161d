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

#include "policy_bad.h"

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

		ck_assert(v == conf_rows[i].dflt /* a word */ ||
				  (v >= conf_rows[i].min && v <= conf_rows[i].max));
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

#include "policy_words.h"

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

START_TEST(test_go)
{
	struct policy *p = must_parse("program caddy\ngo on\nprogram etcd*\ngo off\nprogram *\n");

	ck_assert(policy_go(p, "caddy"));
	ck_assert(!policy_go(p, "caddy2"));
	ck_assert(!policy_go(p, "etcd"));
	policy_free(p);
	p = must_parse("program caddy\ngo off\nprogram *\ngo on\nprogram nats\ngo off\n");
	ck_assert(!policy_go(p, "caddy"));	/* the first that matches */
	ck_assert(policy_go(p, "nats"));
	policy_free(p);
	ck_assert(!policy_go(policy_builtin(), "caddy"));
	ck_assert(!policy_go(policy_all_tcp(REASON_BAD_POLICY), "caddy"));
}
END_TEST

START_TEST(test_other_hosts)
{
	struct policy *p = must_parse("cross_ns_dir /all\ndiscovery_dir /meet\n"
				      "key_file /etc/x.key\nrdma_networks "
				      "10.1.0.0/16 [2001:db8::/32]\nrdma_networks 192.0.2.7\n");

	ck_assert_str_eq(policy_key_file(p), "/etc/x.key");
	ck_assert_str_eq(policy_discovery_dir(p), "/meet");
	ck_assert_str_eq(policy_cross_ns_dir(p), "/all");
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
	ck_assert_str_eq(policy_cross_ns_dir(policy_builtin()), "");
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
	tcase_add_test(t, test_go);
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
