/*
 * test_netkey.c - the key between hosts: the code is HMAC-SHA256, a file that others may read or
 * write is refused, and after a proof nothing of the key is left in the process's memory, plain
 * or as nettle's pads.
 *
 * LINK: shim/discovery/netkey.c shim/base/fdtab.c shim/base/event.c shim/base/lock.c
 * LIBS: -ldl
 */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../shim/discovery/netkey.h"

/* The only name of the library that a machine of the test has. */
static const char *only;

void *dlopen(const char *name, int mode)
{
	void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

	if (only && strcmp(name, only))
		return NULL;
	return real(only ? "libnettle.so.8" : name, mode);
}

static char file[] = "/tmp/test-netkey.XXXXXX";

static void with_file(void)
{
	int fd;

	strcpy(file, "/tmp/test-netkey.XXXXXX");
	fd = mkstemp(file);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void without_file(void) { unlink(file); }

/* Byte k of the key; it is nowhere in memory as a whole but where the library reads it. */
static uint8_t byte_of(unsigned k) { return (uint8_t)(0x91 + 37 * k + (k * k >> 2)); }

static void write_key(unsigned n)
{
	int fd = open(file, O_WRONLY | O_TRUNC);

	for (unsigned k = 0; k < n; k++) {
		uint8_t b = byte_of(k);

		ck_assert_int_eq(write(fd, &b, 1), 1);
	}
	close(fd);
}

#define SHADOW (1ul << 26)	/* a sanitizer's, of terabytes that are never touched */
/* Places in this process's memory with 16 bytes of the key, each changed by `pad`. */
static int places(uint8_t pad)
{
	static uint8_t chunk[1 << 16];
	FILE *maps = fopen("/proc/self/maps", "r");
	int mem = open("/proc/self/mem", O_RDONLY), found = 0;
	unsigned long lo, hi;
	char line[512], mode[8];

	while (fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %7s", &lo, &hi, mode) != 3 || mode[1] != 'w' ||
		    hi - lo > SHADOW)
			continue;
		for (; lo < hi; lo += sizeof chunk - 16) {
			ssize_t n = pread(mem, chunk,
					  hi - lo < sizeof chunk ? hi - lo : sizeof chunk,
					  (off_t)lo);

			for (ssize_t i = 0; i + 16 <= n; i++) {
				unsigned k = 0;

				while (k < 16 && chunk[i + k] == (byte_of(k) ^ pad))
					k++;
				if (k == 16 && !(lo + (size_t)i >= (uintptr_t)chunk &&
						 lo + (size_t)i < (uintptr_t)chunk + sizeof chunk))
					found++;
			}
		}
	}
	close(mem);
	fclose(maps);
	return found;
}

START_TEST(is_hmac)
{
	/* RFC 4231, case 1 */
	static const uint8_t want[NETKEY_MAC] = { 0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53,
						  0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b,
						  0x88, 0x1d, 0xc2, 0x00, 0xc9, 0x83, 0x3d, 0xa7,
							  0x26, 0xe9, 0x37, 0x6c, 0x2e, 0x32, 0xcf,
								  0xf7 };
	uint8_t key[20], mac[NETKEY_MAC];
	int fd = open(file, O_WRONLY);

	memset(key, 0x0b, sizeof key);
	ck_assert_int_eq(write(fd, key, sizeof key), sizeof key);
	close(fd);
	ck_assert(netkey_mac(file, "Hi There", 8, mac));
	ck_assert_mem_eq(mac, want, NETKEY_MAC);
	ck_assert(netkey_same(mac, want));
	mac[31] ^= 1;
	ck_assert(!netkey_same(mac, want));
}
END_TEST

/* Debian 10 and RHEL 8 have .6. */
START_TEST(of_any_version)
{
	static const char *const names[] = { "libnettle.so.6", "libnettle.so.7", "libnettle.so.8" };

	only = names[_i];
	write_key(40);
	ck_assert_int_eq(netkey_check(file), 0);
}
END_TEST

START_TEST(of_no_version)
{
	only = "libnettle.so.5";
	write_key(40);
	ck_assert_int_eq(netkey_check(file), -ENOENT);
}
END_TEST

START_TEST(refused)
{
	static const int open_to_others[] = { 0604, 0602, 0620, 0644, 0666 };
	uint8_t mac[NETKEY_MAC] = { 7 };

	write_key(40);
	ck_assert_int_eq(netkey_check(file), 0);
	for (size_t i = 0; i < sizeof open_to_others / sizeof *open_to_others; i++) {
		ck_assert_int_eq(chmod(file, (mode_t)open_to_others[i]), 0);
		ck_assert_int_eq(netkey_check(file), -EACCES);
		ck_assert(!netkey_mac(file, "x", 1, mac));
	}
	ck_assert_int_eq(mac[0], 7);
	ck_assert_int_eq(chmod(file, 0640), 0);	/* for daemons, and volumes of Kubernetes: if
						 * root made it */
	ck_assert_int_eq(netkey_check(file), geteuid() ? -EACCES : 0);
	ck_assert_int_eq(chmod(file, 0600), 0);
	write_key(15);
	ck_assert_int_eq(netkey_check(file), -EACCES);
	ck_assert_int_eq(netkey_check(""), -ENOKEY);
	ck_assert_int_eq(netkey_check("/nonexistent"), -EACCES);
	ck_assert(!netkey_mac("", "x", 1, mac));
}
END_TEST

/* A stranger's, and one that he could replace. */
START_TEST(strangers)
{
	char dir[] = "/tmp/test-netkey-dir.XXXXXX", path[64];

	if (geteuid()) {
		puts("only root can make files of two users");
		return;
	}
	write_key(40);
	ck_assert_int_eq(chown(file, 1001, 1001), 0);
	ck_assert_int_eq(netkey_check(file), -EACCES);
	ck_assert_int_eq(chown(file, 0, 0), 0);
	ck_assert_int_eq(netkey_check(file), 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/key", dir);
	ck_assert_int_eq(rename(file, path), 0);
	ck_assert_int_eq(netkey_check(path), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	ck_assert_int_eq(netkey_check(path), -EACCES);
	ck_assert_int_eq(rename(path, file), 0);
	rmdir(dir);
}
END_TEST

START_TEST(wiped)
{
	uint8_t mac[NETKEY_MAC];

	write_key(48);
	ck_assert_int_eq(netkey_check(file), 0);
	ck_assert_int_eq(places(0), 0);
	ck_assert(netkey_mac(file, "x", 1, mac));
	ck_assert_int_eq(places(0), 0);
	ck_assert_int_eq(places(0x36), 0);
	ck_assert_int_eq(places(0x5c), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("netkey");
	TCase *t = tcase_create("netkey");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);	/* all memory is searched */
	tcase_add_checked_fixture(t, with_file, without_file);
	tcase_add_test(t, is_hmac);
	tcase_add_loop_test(t, of_any_version, 0, 3);
	tcase_add_test(t, of_no_version);
	tcase_add_test(t, refused);
	tcase_add_test(t, strangers);
	tcase_add_test(t, wiped);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
