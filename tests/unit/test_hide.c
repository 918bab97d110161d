/*
 * test_hide.c - no address and no host's name is left in what a bundle shows, whatever stands
 * around it (tools/rdmastat/ground/rdmastat_hide.c).
 *
 * LINK: tools/rdmastat/ground/rdmastat_hide.c
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/rdmastat/ground/rdmastat_hide.h"
#include "suite.h"

static const char *hidden(const char *line)
{
	static char *out;
	size_t len;
	FILE *f;

	free(out);
	f = open_memstream(&out, &len);
	hide_line(f, line);
	fclose(f);
	return out;
}

static const char *const before[] = {
	"", " ", "word:", "d:", "face:", "deadbeef:", "a:b:", "peer=", "[", "(", "<", "\"",
		"http://", "tcp://u@",
	"root@", "/", ",", "-", "->", "x_", "2026-11-26 12:34:56 ", "17 ", "file.c:12:3: ",
		"\xc3\xa9", "@", "#",
};
static const char *const behind[] = {
	"", " ", ":80", "]:80", "/24", ",", ".", ".80", "->", "%eth0", "%2", ")", ": it", "/x:y",
		"_x", "-a", "\n", "@b", ";",
};
#define ALL(a) (sizeof(a) / sizeof(*(a)))

/* One address in all places, each time without it. */
static void everywhere(const char *address)
{
	char line[300];

	for (size_t i = 0; i < ALL(before); i++)
		for (size_t k = 0; k < ALL(behind); k++) {
			snprintf(line, sizeof(line), "%s%s%s", before[i], address, behind[k]);
			ck_assert_msg(!strstr(hidden(line), address), "'%s' shows: '%s'", line,
				      hidden(line));
			snprintf(line, sizeof(line), "%s%s, %s%s", before[i], address, address,
				 behind[k]);
			ck_assert_msg(!strstr(hidden(line), address), "'%s' shows: '%s'", line,
				      hidden(line));
		}
}

static unsigned random_below(unsigned n)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (unsigned)(x >> 33) % n;
}

START_TEST(ipv4)
{
	char a[32];

	for (int i = 0; i < 30; i++) {
		snprintf(a, sizeof(a), "%u.%u.%u.%u", 1 + random_below(126), random_below(256),
			 random_below(256), random_below(256));
		everywhere(a);
		for (char *s = a; (s = strchr(s, '.'));)
			*s = '-';
		everywhere(a);
	}
}
END_TEST

/* As the kernel, the library and sysfs write them: short, long, in capitals, of hardware. */
START_TEST(ipv6)
{
	char a[64];
	uint8_t b[20];

	for (int i = 0; i < 30; i++) {
		size_t at = 0;

		for (int k = 0; k < 20; k++)
			b[k] = (uint8_t)random_below(256);
		if (i % 3 == 0)
			memset(b + 2 * random_below(4), 0, 6);
		everywhere(inet_ntop(AF_INET6, b, a, sizeof(a)));
		for (int k = 0; k < 8; k++)
			at += (size_t)snprintf(a + at, sizeof(a) - at, "%s%02X%02X", k ? ":" : "",
					       b[2 * k], b[2 * k + 1]);
		everywhere(a);
		a[19] = '\0';		/* a GUID */
		if (!strstr(a, "00:00"))
			everywhere(a);
		at = 0;
		for (int k = 0; k < (i % 2 ? 6 : 20); k++)
			at += (size_t)snprintf(a + at, sizeof(a) - at, "%s%02x", k ? ":" : "",
					       b[k]);
		everywhere(a);
	}
	everywhere("::ffff:10.1.2.3");
	everywhere("64:ff9b::10.1.2.3");
}
END_TEST

START_TEST(hosts)
{
	ck_assert_str_eq(hidden("see https://db7.example.com:8080/x\n"),
			 "see https://host-1:8080/x\n");
	ck_assert_str_eq(hidden("joe@db7.example.com, amy@DB7.example.com"),
			 "joe@host-1, amy@host-1");
	ck_assert_str_eq(hidden("http://u:pw@db9/"), "http://host-2:pw@host-3/");
	ck_assert_str_eq(hidden("Myhost myhost.example.com: on myhost"),
			 "host-4 host-5: on host-4");
	ck_assert_str_eq(hidden("http://localhost/ of myhosts, @abstract"),
			 "http://localhost/ of myhosts, @abstract");
}
END_TEST

/* The same number for the same address, whatever its spelling and the word before it. */
START_TEST(same)
{
	ck_assert_str_eq(hidden("10.1.2.3:80 word:10.1.2.3 d:10.1.2.3 10.1.2.4"),
			 "address-1:80 word:address-1 d:address-1 address-2");
	ck_assert_str_eq(hidden("[fe80::1]:80 word:fe80::1 FE80:0:0::1 "
				"fe80:0000:0000:0000:0000:0000:0000:0001"),
			 "[address-3]:80 word:address-3 address-3 address-3");
}
END_TEST

/* What tells nothing, or is none. */
START_TEST(kept)
{
	static const char *const lines[] = {
		"127.0.0.1:5001 -> 127.0.0.2:80", "[::1]:80", "0.0.0.0:80", "[::]:80",
			"0::/user.slice", "1.2.3 and 300.1.2.3",
		"rdmashim.conf:12:3: error", "12:34:56", "0000:3b:00.0", "6.18.44-fc-v669",
			"MemTotal: 1024 kB", "11:cpu,cpuacct:/",
		"a.b.c.d", "::", "-",
	};

	for (size_t i = 0; i < ALL(lines); i++)
		ck_assert_str_eq(hidden(lines[i]), lines[i]);
}
END_TEST

static void begin(void) { ck_assert_int_eq(hide_start("myhost.local"), 0); }

int main(void)
{
	Suite *s = suite_create("hide");
	TCase *c = tcase_create("hide");

	tcase_add_checked_fixture(c, begin, hide_end);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, ipv4);
	tcase_add_test(c, ipv6);
	tcase_add_test(c, hosts);
	tcase_add_test(c, same);
	tcase_add_test(c, kept);
	suite_add_tcase(s, c);
	return run_suite(s);
}
