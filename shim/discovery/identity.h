/*
 * identity.h - who holds the other end of a TCP connection on this host, as the kernel says.
 *
 * A process proves that it holds the other end by passing an O_PATH descriptor of that very socket
 * (SCM_RIGHTS). With it nobody can read, write, lock or change the connection, or keep it open
 * (base/proof.h). statx(2) says which socket it is of. That is compared with what sock_diag
 * (linux/inet_diag.h, man 7 sock_diag) knows about the reversed 4-tuple in our own network
 * namespace. The inode must be the same. The owner's uid must be the uid of the process at the
 * other side of the control socket. It must not be the overflow uid, behind which all unmapped
 * users of a user namespace look alike.
 *
 * sock_diag also tells whether the other end has the library at all. Sockets of ours have a mark,
 * an option that means nothing to TCP and that anybody may read there (IP_MULTICAST_LOOP off;
 * accepted sockets have their listener's). The mark is only a hint about how long to search:
 * anybody may set it, and a socket may have been made before the library was there.
 *
 * The two ends may not belong to one connection at all. A proxy may keep the addresses of both
 * sides, and then there are two connections, of which each end sees the same addresses. On one host
 * the route tells them apart, between hosts the timestamp of the SYN that the accepting end got
 * (identity_syn()).
 */
#ifndef RDMASHIM_IDENTITY_H
#define RDMASHIM_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/procs.h"
#include "base/sock.h"

struct identity {
	uint32_t uid, inode;
	uint64_t cookie;
	uint8_t state;		/* TCP_ESTABLISHED ... of netinet/tcp.h */
	bool marked, unmarked;	/* surely with, or without, the mark; a kernel before 5.14 does
				 * not say */
};

/* The next message that the kernel itself sent to that netlink socket: its size or -errno.
 * Processes with CAP_NET_ADMIN in the network namespace can send messages, too. */
long kernel_answer(int nl, void *buf, size_t size, int flags);
/* What the kernel knows about the connected socket src -> dst. 0, -ENOENT, or another -errno. */
int identity_query(const struct sockaddr *src, const struct sockaddr *dst, struct identity *ret);
/* Is our own connected socket `fd` of the network namespace in which all this is asked? A
 * program may have got it, or made it, in another one, where the same names are another
 * connection. */
bool identity_here(int fd, const struct sockaddr *local, const struct sockaddr *peer);
/* The same where the kernel has no number for that (before 5.14): is it what sock_diag finds? */
bool identity_finds(int fd, const struct sockaddr *local, const struct sockaddr *peer);
/* Has the other end of `fd`, on this host, said FIN, though it has perhaps not come: bytes lie
 * before it for which there is no room? */
bool identity_peer_closing(int fd);
/* Is `fd` (passed by a process of `uid`) of the other end of the connection local -> peer? 0 or
 * -EPERM, -errno; -EOPNOTSUPP: nobody can say, there is no /proc. */
int identity_check(int fd, const struct sockaddr *local, const struct sockaddr *peer, uid_t uid);

/* Of a client on one host with its peer: do its packets go to the other end's socket by nothing
 * but the loopback device? 0, -EXDEV, -errno. */
int identity_straight(int fd, const struct sockaddr *local, const struct sockaddr *peer);

/* ---- between network namespaces of one host (docs/namespaces.md) */
/* A sock_diag socket of this thread's network namespace, for a moment, or -errno; and is that one
 * of some namespace? */
int identity_diag(void);
bool identity_is_diag(int fd);
/* As identity_check(), of a connection whose other end has the names `its` in the namespace of the
 * sock_diag socket `nl`, and is established there. */
int identity_check_there(int nl, int fd, const struct ctl_tuple *its, uid_t uid);
/* as identity_peer_closing() */
bool identity_closing_there(int nl, const struct ctl_tuple *its);
/* As identity_syn(), and the client's ISN. */
int identity_whole_syn(int fd, uint32_t *ret, uint32_t *ret_isn);

/* ---- between hosts */
/* The kernel shall keep the SYN of each connection that the listener `fd` gets. Any thread;
 * errno is kept. */
void identity_save_syn(int fd);
/* The program asks the kernel for the same, and a SYN can be read once only: so it is the
 * program's, from now on. Any thread. */
void identity_leave_syn(void);
/* The timestamp in the SYN of the accepted socket `fd`. The kernel tells it once. 0 or -errno. */
int identity_syn(int fd, uint32_t *ret);
/* Is it of the SYN that our socket `fd` sent, between those two times by now_us()? Its clock
 * begins, for each pair of addresses, where only our own kernel knows. */
bool identity_our_syn(int fd, uint32_t stamp, uint64_t since_us, uint64_t until_us);
/* Of a client: do its packets leave this host, as far as its own namespace can tell? For all
 * namespaces of a host that clock is one. 0; -EXDEV: they go to another namespace of this host,
 * or to a process; -errno. */
int identity_leaves_host(int fd, const struct sockaddr *local, const struct sockaddr *peer);

#endif
