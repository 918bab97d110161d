/*
 * cm.h - makes the queue pair of a link, by librdmacm. Nothing waits: calls start a step,
 * cm_events() hears how it went.
 *
 * The end that accepted the control connection listens on an RDMA address of its host, for this
 * link only, and tells address, port and a token there; the other end connects and shows the
 * token. One event channel per process.
 *
 * Thread-safety: background thread only. No locks.
 */
#ifndef RDMASHIM_CM_H
#define RDMASHIM_CM_H

#include "rdma/verbs/rc.h"

#define CM_TOKEN 16
#define CM_STEP_MS 2000		/* for each of: resolving an address, a route */

enum cm_state { CM_NONE, CM_LISTEN, CM_ADDR, CM_ROUTE, CM_CONNECT, CM_ACCEPT, CM_UP, CM_DOWN };

/* What the policy says of a link, see policy/conf.def. */
struct cm_options { uint8_t retries, ack_timeout, tos; uint16_t mtu; };

struct cm {
	enum cm_state state;
	struct cm_options opt;		/* before cm_listen() or cm_connect() */
	int error;			/* -errno, when CM_DOWN came before CM_UP */
	unsigned tries;			/* ports */
	/* what the host gives to such traffic */
	struct { bool known; uint8_t sl, tclass; } route;
	uint8_t reads;			/* RDMA READs that we may have under way, once it is up */
	struct rdma_cm_id *id, *listen;
	struct rc *rc;
	uint8_t token[CM_TOKEN];
	struct cm *next;
};

/* What joins the two ends. Before CM_UP, and of a device that does not tell, 0. */
struct cm_way {
	bool iwarp, ethernet;		/* neither: InfiniBand */
	uint8_t port;			/* of the device */
	uint32_t qpn, peer_qpn;		/* the peer's only once it is connected, and not with
					 * iWARP */
	union ibv_gid sgid, dgid;	/* not with iWARP */
	struct sockaddr_storage from, to;	/* librdmacm's */
};

/* A descriptor of an empty file for a moment, where nobody else takes its number, and the end of
 * it. Plain calls unless set. */
extern int (*cm_empty)(void);
extern void (*cm_empty_close)(int fd);
/* A device is used from now on, and this descriptor of its asynchronous events may be watched
 * until it is closed. NULL: it is not. */
extern void (*cm_watch)(int fd);

/* Loads the libraries and opens the event channel, once. Its descriptor, or -ENOENT: no library,
 * -ENODEV: no RDMA in this kernel, -errno. */
int cm_start(void);
/* Is there a device for this address of the host? 0 or -errno, mostly -ENODEV. */
int cm_probe(const struct sockaddr *addr);
/* Port in host order, or -errno. */
int cm_listen(struct cm *c, struct rc *rc, const struct sockaddr *addr,
	      const uint8_t token[CM_TOKEN]);
int cm_connect(struct cm *c, struct rc *rc, const struct sockaddr *from, const struct sockaddr *to,
	       const uint8_t token[CM_TOKEN]);
/* The event channel was readable. `changed` is called for every cm whose state changed. */
void cm_events(void (*changed)(struct cm *c));
void cm_way(const struct cm *c, struct cm_way *ret);
/* Ends all; the queue pair goes with it, so rc_close() must come between: cm_hangup(),
 * rc_close(), cm_close(). */
void cm_hangup(struct cm *c);
void cm_close(struct cm *c);
bool cm_after_fork(void);	/* the parent's: this process will have none. False: there was
				 * none */

#endif
