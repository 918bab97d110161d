/*
 * sock.h - addresses, the four names of a connection, and what is asked of a socket.
 * Any thread; errno is kept.
 */
#ifndef RDMASHIM_SOCK_H
#define RDMASHIM_SOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Also a part of messages: they have versions of their own. */
struct ctl_tuple {			/* as the sender of the message sees it */
	uint16_t family, lport, pport;	/* ports in host order */
	uint16_t pad;
	uint8_t laddr[16], paddr[16];	/* IPv4 and v4-mapped: first 4 bytes, family AF_INET */
};

/* v4-mapped IPv6 addresses become IPv4. */
void sockaddr_normal(struct sockaddr_storage *sa);
bool sockaddr_same(const struct sockaddr *a, const struct sockaddr *b);	/* both normal */
bool sockaddr_loopback(const struct sockaddr *a);
void sockaddr_no_port(struct sockaddr_storage *sa);
uint16_t sockaddr_port(const struct sockaddr *a);	/* in host order */
void sockaddr_addr(const struct sockaddr *a, uint8_t out[16]);	/* as in struct ctl_tuple */
void tuple_from(struct ctl_tuple *t, const struct sockaddr *local, const struct sockaddr *peer);
/* Its two ends, normal. */
void tuple_ends(const struct ctl_tuple *t, struct sockaddr_storage *local,
		struct sockaddr_storage *peer);
bool tuple_equal(const struct ctl_tuple *a, const struct ctl_tuple *b);
void tuple_reverse(struct ctl_tuple *to, const struct ctl_tuple *from);

struct tcp_info;	/* that of linux/tcp.h; glibc's stops earlier */
/* As far as tcpi_bytes_retrans. False: not known, as before Linux 4.19. */
bool socket_tcp_info(int fd, struct tcp_info *ret);
bool socket_is_plain_tcp(int fd);	/* SOCK_STREAM, IPPROTO_TCP, no ULP */
void socket_mark(int fd);		/* says that the library is here: discovery/identity.h */

#endif
