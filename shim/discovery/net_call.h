/*
 * net_call.h - a call in progress at the discovery port, for discovery_net.c, which has the table
 * of calls, and net_proof.c. Background thread only.
 */
#ifndef RDMASHIM_NET_CALL_H
#define RDMASHIM_NET_CALL_H

#include "conn/stream.h"
#include "discovery/net_msg.h"

enum call_state { C_FREE, C_CONNECT, C_ANSWER, S_CALL, S_PROOF, S_HELLO };

struct call {
	uint8_t state;			/* enum call_state */
	int fd;
	uint32_t stream, gen;		/* whose */
	uint64_t end_us;
	struct sockaddr_storage host;	/* the other host, normal, port 0 */
	struct net_msg mine, theirs;
	struct net_msg in;		/* what has come so far */
	uint32_t in_len;
};

/* ---- discovery_port.c ---- */
struct sockaddr_un;
/* The name of the accepting end of this connection. Its length. */
socklen_t net_name(const struct ctl_tuple *client_view, struct sockaddr_un *un);
/* A caller at the port, -EAGAIN: none. Where there is no descriptor for one the port is left to
 * others. */
int net_accept(void);
void net_port_after_fork(void);

/* ---- net_proof.c ---- */
/* False: nothing random is to be had, and with a nonce that is known nobody proves anything. */
bool net_fill(struct net_msg *m, enum net_type type);
void net_boot_id(uint8_t id[16]);		/* of the host */
bool net_well_formed(const struct net_msg *m);
/* Of its first NET_HEAD bytes, which are the same in all versions. */
bool net_other_version(const struct net_msg *m);
bool net_say(int fd, const void *m, size_t n);	/* all of it, at once */
void net_refuse(int fd, enum reason why);
/* The policy's way of trusting `host`. enum net_mode, or -errno with the reason in *why. */
int net_trust(const struct sockaddr_storage *host, enum reason *why);
/* False: it takes the key, and there is none any more. */
bool net_make_mac(const struct call *c, bool by_server, uint8_t mac[NET_MAC]);
bool net_mac_right(const struct call *c, bool by_server, const uint8_t mac[NET_MAC]);

#endif
