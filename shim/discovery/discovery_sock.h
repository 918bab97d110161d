/*
 * discovery_sock.h - the name at which the two ends of a TCP connection find each other on one
 * host: in the abstract AF_UNIX space, or in the directory that the policy names (discovery_dir).
 * Background thread only.
 *
 * The directory does not widen what may meet. Both ends must be in one network namespace, because
 * the kernel's word on who holds the other end (identity.h) holds for one. It narrows that to
 * processes that may write there, and needs no abstract names.
 */
#ifndef RDMASHIM_DISCOVERY_SOCK_H
#define RDMASHIM_DISCOVERY_SOCK_H

#include <stdbool.h>
#include <sys/socket.h>

/* Binds `fd`, or connects it, to the name of the connection client -> server. 0 or -errno; of
 * the connect -ECONNREFUSED: nobody is there. */
int discovery_sock_open(int fd, const struct sockaddr *client, const struct sockaddr *server);
int discovery_sock_connect(int fd, const struct sockaddr *client, const struct sockaddr *server);
/* The same at the spare name that discovery_sock_open() takes where another user has the name; a
 * socket of `uid`. -EAGAIN: not so soon. */
int discovery_sock_connect_spare(int fd, const struct sockaddr *client,
				 const struct sockaddr *server, uid_t uid);
/* The socket of that name is closed. */
void discovery_sock_close(const struct sockaddr *client, const struct sockaddr *server);

#endif
