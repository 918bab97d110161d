/*
 * peer_memory.h - the memory of the process at the other end of a link, read by
 * process_vm_readv(2).
 *
 * The kernel checks what we may read, not what the peer may read. So two questions must be
 * answered.
 *
 * Whose memory is it? A process id alone does not tell: its process may have become another program
 * (exec), or have ended and left the number to another process, while a child of it still holds the
 * link. So the process is pinned by a pidfd of the control socket's other end. After each copy, and
 * before the copy counts, the pidfd must say that the process is still there. Then the number was
 * its own all the while.
 *
 * Each read also begins with a word that nobody can know beforehand. We write it into the link's
 * shared memory, and read it back through the other process, at the address at which that process
 * says it has this memory. The kernel looks the process's memory up once for one call. So if the
 * word is right, all that the call read came out of memory that shows the word; exec() takes the
 * link's mapping away. The word comes first: if nothing is at its address, not a byte of the rest
 * is read.
 *
 * What could the peer do without us? Blocks are read, and addresses of ours told, only while the
 * peer has every right that we have (peer_rights.h). Then it could read whatever we can, and has
 * nothing to gain. Its rights are looked at again after LOOK_NS, since a program may give rights up
 * and be taken over then. So are those of each thread of ours. In between ours cannot grow beyond
 * what was compared: nothing but exec adds to the permitted capabilities, and becoming another user
 * takes one of them, which the peer has, too.
 *
 * A peer that failed once in any of these is not read from again (link.no_read), and gets no more
 * offers.
 *
 * Thread-safety: any thread. begin and end are called with the receiver's lock; a later begin for
 * the same ring ends an earlier read. Async-signal-safe.
 */
#ifndef RDMASHIM_PEER_MEMORY_H
#define RDMASHIM_PEER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct link;
struct ring_shared;

#define PEER_CHUNKS 32	/* chunks of a buffer that one read fills; of more the first ones count */

/* When the link is made: true if the peer has our user, which must be the only one that we have or
 * may become, and if it can be pinned. */
bool peer_memory_pin(struct link *l);
void peer_memory_unpin(struct link *l);

/* The peer has all our rights: 0; it has not: -EPERM, for ever; -EAGAIN: nobody can say now. */
int peer_memory_may(struct link *l);

struct peer_read {
	pid_t pid;
	int chunks;
	struct iovec to[1 + PEER_CHUNKS], from[2];
	uint64_t word, seen;
	long r;
};

/*
 * A read of len bytes at `from`, an address of the peer's, into the first PEER_CHUNKS of the n
 * chunks. `sh`: the ring by which they were offered. begin: 0, or as peer_memory_may(), and nothing
 * follows. end: bytes read, which may be fewer, or
 *   -EFAULT  the address, or a chunk, is not there: nothing against the peer
 *   -EPERM   not permitted, or not the process that has the link: never again; it is wiped
 */
int peer_memory_begin(struct link *l, struct ring_shared *sh, const struct iovec *to, int n,
		      uint64_t from, size_t len, struct peer_read *p);
/* Blocks as long as a page of the peer's memory does: docs/security.md, "What blocks". Looks at
 * nothing but `p`. */
void peer_memory_copy(struct peer_read *p);
ssize_t peer_memory_end(struct link *l, struct peer_read *p);
void peer_memory_wipe(const struct peer_read *p);	/* instead: it does not count, whatever
							 * it was */

#endif
