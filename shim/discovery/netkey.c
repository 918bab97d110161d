/*
 * netkey.c - see netkey.h. The file is read again for each proof, and the key is wiped after it, so
 * that neither a core file nor a process that may read our memory shows it.
 */
#include "discovery/netkey.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>

#include "base/fdtab.h"
#include "base/sys.h"
#include "policy/log.h"
#include "policy/trust.h"

#define KEY_MIN 16
#define KEY_MAX 4096

/* What of <nettle/hmac.h> and <nettle/memops.h> is used, in all versions of the library that are
 * looked for: so its headers are not needed to build. The state is of three SHA-256, 336 bytes;
 * where a later one is larger, there is room. */
struct hmac { _Alignas(16) uint8_t state[1024]; };
static void (*set_key)(struct hmac *c, size_t n, const uint8_t *key);
static void (*update)(struct hmac *c, size_t n, const uint8_t *data);
static void (*digest)(struct hmac *c, size_t n, uint8_t *mac);
static int (*equal)(const void *a, const void *b, size_t n);

static const char *const names[] = { "libnettle.so.8", "libnettle.so.7", "libnettle.so.6" };

static bool library(void)
{
	static void *h;

	for (size_t i = 0; i < sizeof names / sizeof *names && !h; i++)
		h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return false;
	*(void **)&set_key = dlsym(h, "nettle_hmac_sha256_set_key");
	*(void **)&update = dlsym(h, "nettle_hmac_sha256_update");
	*(void **)&digest = dlsym(h, "nettle_hmac_sha256_digest");
	*(void **)&equal = dlsym(h, "nettle_memeql_sec");
	return set_key && update && digest && equal;
}

/* The key into `key`. Its length, or -EACCES. */
static long read_key(const char *file, uint8_t key[KEY_MAX])
{
	struct trust t;
	long n = trust_walk(file, TRUST_KEY, &t);
	int fd = n ? -1 : fd_moment_sys(SYS_openat, AT_FDCWD, t.path, TRUST_READ, 0);

	if (fd >= 0) {
		n = trust_opened(fd, TRUST_KEY, &t);
		if (!n)
			n = sys(SYS_read, fd, key, KEY_MAX);
		fd_internal_close(fd);
	}
	if (n == TRUST_REFUSED)
		log_line(LOG_LEVEL_WARN, "key_file %s: %s", file, t.why);
	while (n > 0 && (key[n - 1] == '\n' || key[n - 1] == '\r'))
		n--;
	return n < KEY_MIN ? -EACCES : n;
}

int netkey_check(const char *file)
{
	uint8_t key[KEY_MAX];
	long n;

	if (!*file)
		return -ENOKEY;
	if (!library())
		return -ENOENT;
	n = read_key(file, key);
	explicit_bzero(key, sizeof key);
	return n < 0 ? (int)n : 0;
}

bool netkey_mac(const char *file, const void *data, size_t n, uint8_t mac[NETKEY_MAC])
{
	struct hmac c;
	uint8_t key[KEY_MAX];
	long len = *file && library() ? read_key(file, key) : -ENOKEY;

	if (len > 0) {
		set_key(&c, (size_t)len, key);
		update(&c, n, data);
		digest(&c, NETKEY_MAC, mac);
	}
	explicit_bzero(&c, sizeof c);
	explicit_bzero(key, sizeof key);
	return len > 0;
}

bool netkey_same(const uint8_t *a, const uint8_t *b)
{
	return equal(a, b, NETKEY_MAC);
}
