/*
 * rdmastat_ends.h - the library looks the ends of a connection up only when it earns its
 * upgrade. For the others the kernel knows them: /proc/PID/fd names the socket,
 * /proc/PID/net/tcp its ends.
 */
#ifndef RDMASHIM_RDMASTAT_ENDS_H
#define RDMASHIM_RDMASTAT_ENDS_H

#include "ground/rdmastat.h"

/* Fills in the ends of connections that have none, where the kernel lets us look. */
void ends_fill(struct stat_list *l);

/* A line of /proc/PID/net/tcp or tcp6. */
struct socket {
	struct stat_conn ends;		/* family, addresses and ports alone */
	unsigned long inode;
	unsigned uid, state, unread;	/* of one that listens: connections that nobody has
					 * accepted yet */
};
typedef void (*socket_found)(void *arg, const struct socket *s);
/* Those of a process's network namespace. False: they may not be seen. */
bool socket_table(uint32_t pid, const char *name, int family, socket_found each, void *arg);
unsigned long socket_inode(uint32_t pid, uint32_t fd);	/* 0: it is no socket, or may not be seen */

/* For live connections that stay on TCP for good: the bytes that the kernel counted, where those
 * are more (rdmastat_kernel.c). */
void kernel_bytes(struct stat_list *l);
/* For all live ones: the round trip, and of a direction on TCP what waits in the kernel's
 * queues. */
void kernel_now(struct stat_list *l);

#endif
