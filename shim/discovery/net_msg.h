/*
 * net_msg.h - the messages of the discovery port between hosts (docs/protocol.md). discovery_net.c
 * uses them, and so does rdmastat's doctor, which only asks whether one of our processes is there.
 *
 * Wire format: fixed size, little-endian hosts only.
 */
#ifndef RDMASHIM_NET_MSG_H
#define RDMASHIM_NET_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "base/sock.h"

#define NET_MAGIC   "rdmashim"
#ifndef NET_VERSION	/* a test is another one */
#define NET_VERSION 7
#endif
#define NET_ORDER   0x01020304u
/* So many bytes are the same in all versions: magic, order, version, type; of REFUSED also the
 * reason, if that is 0: nobody here has such a connection; of CALL all to the tuple, by which it
 * finds its way to a process of its own version. */
#define NET_HEAD    16
#define NET_WHY     20
#define NET_ROUTE   80
#define NET_NONCE   32
#define NET_MAC     32

enum net_type { NET_CALL = 1, NET_ANSWER, NET_PROOF, NET_REFUSED };
enum net_mode { NET_BY_ADDRESS, NET_BY_KEY };

struct net_msg {
	char magic[8];			/* NET_MAGIC, without its zero */
	uint32_t order;			/* NET_ORDER */
	uint16_t version, type;
	uint32_t mode;			/* enum net_mode; NET_REFUSED: enum reason */
	uint32_t pid;
	uint8_t boot[16];		/* of the host */
	struct ctl_tuple tuple;		/* CALL: as the client sees it */
	uint8_t nonce[NET_NONCE];
	uint8_t mac[NET_MAC];
	uint8_t pad[16];
};
_Static_assert(sizeof(struct net_msg) == 160, "wire layout: bump NET_VERSION when it changes");
_Static_assert(offsetof(struct net_msg, mode) == NET_HEAD &&
	       offsetof(struct net_msg, pid) == NET_WHY &&
	       offsetof(struct net_msg, nonce) == NET_ROUTE, "the same in all versions");

#endif
