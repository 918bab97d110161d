/*
 * rdmastat_now.h - what holds of connections at this moment: how much is under way, the round trip.
 * Nothing is counted for it that a call would pay for: what is under way is what one end has sent,
 * less what the other has received, by the counters that both have anyway; on TCP, the kernel's
 * queues.
 */
#ifndef RDMASHIM_RDMASTAT_NOW_H
#define RDMASHIM_RDMASTAT_NOW_H

#include "ground/rdmastat.h"

/* rtt, unread and to_read of all connections in the list; ps: where the other ends are. */
void conns_now(struct stat_list *l, const struct pairs *ps);
/* Of the ring that it sends by; below 0: not known. */
double ring_fill(const struct stat_conn *c);
/* "-" where it is not known. */
const char *bytes_known(uint64_t v, char *buf, size_t len);
const char *time_known(uint64_t ns, char *buf, size_t len);

#endif
