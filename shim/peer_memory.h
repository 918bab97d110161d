/*
 * peer_memory.h - the memory of the process at the other end of a link, read by process_vm_readv(2).
 *
 * A process id says nothing by itself: its process may have become another program (exec), or have
 * ended and left the number to somebody else, while a child of it still holds the link. And the
 * kernel permits what our user may read, which is everything for root. So each read begins with a
 * word that nobody can know beforehand: we write it into the link's shared memory, and read it back
 * through the other process, at the address at which that process says it has this memory. The
 * kernel looks the process's memory up once for one call: if the word is right, all that the call
 * read came out of the memory in which the link's arena is mapped. exec() takes that mapping away,
 * and no other program has it.
 *
 * The word comes first: where there is nothing at its address, not a byte of the rest is read. A
 * peer whose word was wrong once is not read from again (link.no_read).
 *
 * Only between processes of one user, which is asked each time: a program may take back, after
 * the link was made, rights that it had put aside (seteuid(2)). Thread-safety: any thread; one at a time for
 * each ring (the receiver's lock). Async-signal-safe. Blocks as long as a page of the peer's memory
 * does: see docs/security.md, "What blocks".
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

#define PEER_PIECES 32	/* pieces of a buffer that one read fills; of more the first ones count */

/* We are that user in all that counts: nothing put aside that the kernel would give back. */
bool peer_memory_one_user(uid_t uid);

/*
 * Reads len bytes at `from`, an address of the peer's, into the first PEER_PIECES of the n pieces.
 * `sh`: the ring by which they were offered. Bytes read, which may be fewer, or
 *   -EFAULT  the address, or a piece, is not there: nothing against the peer
 *   -EPERM   not permitted, or not the process that has the link: never again
 */
ssize_t peer_memory_read(struct link *l, struct ring_shared *sh, const struct iovec *to, int n,
			 uint64_t from, size_t len);

#endif
