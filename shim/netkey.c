/* netkey.c - see netkey.h. The key stays in this process's memory; the file is read again for each handshake. */
#include "netkey.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <string.h>
#include <sys/stat.h>

#include "sys.h"

#define KEY_MIN 16
#define KEY_MAX 4096

static uint8_t key[KEY_MAX];
static size_t key_len;

static __typeof__(nettle_hmac_sha256_set_key) *set_key;
static __typeof__(nettle_hmac_sha256_update) *update;
static __typeof__(nettle_hmac_sha256_digest) *digest;
static __typeof__(nettle_memeql_sec) *equal;

static bool library(void)
{
	static void *h;

	if (!h)
		h = dlopen("libnettle.so.8", RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return false;
	*(void **)&set_key = dlsym(h, "nettle_hmac_sha256_set_key");
	*(void **)&update = dlsym(h, "nettle_hmac_sha256_update");
	*(void **)&digest = dlsym(h, "nettle_hmac_sha256_digest");
	*(void **)&equal = dlsym(h, "nettle_memeql_sec");
	return set_key && update && digest && equal;
}

int netkey_load(const char *file)
{
	struct stat st;
	long fd, n;

	key_len = 0;
	if (!*file)
		return -ENOKEY;
	if (!library())
		return -ENOENT;
	fd = sys(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return -EACCES;
	n = sys(SYS_fstat, fd, &st);
	/* A key that others can read proves nothing; group is left to the administrator. */
	if (n >= 0 && (!S_ISREG(st.st_mode) || st.st_mode & (S_IWGRP | S_IRWXO)))
		n = -EACCES;
	if (n >= 0)
		n = sys(SYS_read, fd, key, sizeof key);
	sys(SYS_close, fd);
	while (n > 0 && (key[n - 1] == '\n' || key[n - 1] == '\r'))
		n--;
	if (n < KEY_MIN)
		return -EACCES;
	key_len = (size_t)n;
	return 0;
}

void netkey_mac(const void *data, size_t n, uint8_t mac[NETKEY_MAC])
{
	struct hmac_sha256_ctx c;

	set_key(&c, key_len, key);
	update(&c, n, data);
	digest(&c, NETKEY_MAC, mac);
	memset(&c, 0, sizeof c);
}

bool netkey_same(const uint8_t *a, const uint8_t *b)
{
	return equal(a, b, NETKEY_MAC);
}
