/*
 * discovery_net.h - finding the other end of a connection on another host, for search.c.
 * Background thread only.
 */
#ifndef RDMASHIM_DISCOVERY_NET_H
#define RDMASHIM_DISCOVERY_NET_H

#include "conn/stream.h"

/* Could the stream go by RDMA, as far as this host can tell? 0, or the reason why not. */
int net_possible(struct stream *s);
/* Accepting end: the port is open, or another process has it, and the name of the stream is. 0
 * or -errno. */
int net_listen(struct stream *s);
/* Connecting end: calls the other host's port. 1: under way (SEARCH_CALL), or the reason why it
 * makes no sense. */
int net_call(struct stream *s);
/* a call, or a link that comes up */
bool net_under_way(const struct sockaddr_storage *host);
void net_name_ready(struct stream *s);		/* a call for the stream was handed over */
void net_port_ready(void);
void net_leave_port(void);			/* the thread leaves: nobody would hear who calls */
void net_call_ready(uint32_t i);
uint64_t net_expire(uint64_t now);		/* silent ones; when to come again */
void net_after_fork(void);
/* The decision about what to do next of a stream whose call or link ended: search.c. */
void search_call_ended(struct stream *s, enum reason why);

/* ---- net_refused.c ---- */
/* whatever the ports */
bool net_host_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
void net_refused(const struct sockaddr_storage *host, enum reason why);
/* REASON_NONE: it may be called */
enum reason net_refused_why(const struct sockaddr_storage *host);

#endif
