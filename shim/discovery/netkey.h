/*
 * netkey.h - what proves a library of ours on another host: an HMAC-SHA256 over the handshake with
 * the key of the policy's key_file. libnettle computes it, which has no state of its own and is
 * loaded at first need.
 *
 * Background thread only.
 */
#ifndef RDMASHIM_NETKEY_H
#define RDMASHIM_NETKEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETKEY_MAC 32

/* Is there a key? 0, -ENOKEY: the policy names none, -ENOENT: no library, -EACCES: the file is
 * missing or too short, or may not be believed (TRUST_KEY, policy/trust.h). */
int netkey_check(const char *file);
/* False: there is no key (any more), and `mac` is as it was. */
bool netkey_mac(const char *file, const void *data, size_t n, uint8_t mac[NETKEY_MAC]);
bool netkey_same(const uint8_t *a, const uint8_t *b);	/* in constant time */

#endif
