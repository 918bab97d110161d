/*
 * rights.h - descriptors that processes pass each other over AF_UNIX (SCM_RIGHTS, unix(7)).
 *
 * A process that has got a descriptor must close it. That may wait for another process: the daemon
 * of a FUSE file may never answer, and then not even SIGKILL ends the closing process. So we
 * receive a descriptor only if the kernel has named a sender that may pass us some
 * (rights_taken_from()). What comes must be of a kind whose close waits for nobody, or it is closed
 * apart (closer.h).
 *
 * Any thread. No locks but fd_number_lock().
 */
#ifndef RDMASHIM_RIGHTS_H
#define RDMASHIM_RIGHTS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Processes of that user may pass descriptors to us: root, our own user, and whom the policy names
 * (peer_users), but not if one of them has passed several at once. */
bool rights_taken_from(uid_t uid);
/* The same for a socket that is in use from then on: from root and our own user only. A process
 * that has it, too, can hold its lock in the kernel by a call that never ends, and so block our
 * thread. */
bool rights_socket_from(uid_t uid);
/* A socket of AF_UNIX: whether descriptors may be passed to it. False: this kernel cannot refuse
 * them (before Linux 6.16). A listener's setting is that of the connections that it gets. */
bool rights_allow(int sock, bool allow);
/* One whom we do not know could put something into the queue of that socket, unless the kernel
 * refused it (rights_allow()): close it so that nobody waits. */
void rights_close(int sock);
/* The same for a socket on which descriptors may be passed, and which is not watched any more. Not
 * in a forked child, since it ends for all processes that have it. */
void rights_end(int sock);

/* Who sent the next datagram (SO_PASSCRED), as the kernel says, and whether it passes something.
 * This peeks without room for a descriptor, so none is made. 65534 if the kernel does not say.
 * Negative: there is no datagram, -errno. */
long rights_sender(int sock, struct ucred *ret, bool *ret_passes);
/* Closes one that was received, apart if it lingers. Negative: nothing. False: too many such wait
 * already. */
bool rights_done(int fd);

/* Before the first rights_recv(): a number is laid by for when the program has none left. */
void rights_ready(void);
void rights_after_fork(void);
/* recvmsg() without waiting, of a record that may have one descriptor, from a sender that may pass
 * us some. *ret_fd: the descriptor, which is ours by then, even beyond our share; or -1, with
 * MSG_CTRUNC in *ret_flags if there was one for which no number is left. -EPROTO: there was more
 * than one, or one that is neither a socket nor a file in memory nor a timer; they are closed
 * apart. A record with several stays in the queue, and the caller closes the socket by
 * rights_end(). */
long rights_recv(int sock, struct iovec *iov, int *ret_flags, int *ret_fd);

#endif
