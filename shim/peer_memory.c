/*
 * peer_memory.c - see peer_memory.h. No locks.
 */
#include "peer_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "../policy/stat.h"
#include "../rdma/ring.h"
#include "link.h"
#include "shim.h"
#include "sys.h"

#define WORDS 16	/* fetched together: a system call for each would cost as much as the check */

bool peer_memory_one_user(uid_t uid)
{
	uid_t real, effective, saved;

	return sys(SYS_getresuid, &real, &effective, &saved) >= 0 &&
	       real == uid && effective == uid && saved == uid;
}

/* A word that is not 0 and that nobody has seen; 0: the kernel gives none. */
static uint64_t fresh_word(void)
{
	static __thread struct { uint64_t word[WORDS]; unsigned left; int pid; }
		pool __attribute__((tls_model("initial-exec")));
	uint64_t w;

	/* A forked child has a copy of its parent's: they are thrown away. */
	if (!pool.left || pool.pid != atomic_load_explicit(&shim_pid, memory_order_relaxed)) {
		if (sys(SYS_getrandom, pool.word, sizeof pool.word, GRND_NONBLOCK) != sizeof pool.word)
			return 0;
		pool.left = WORDS;
		pool.pid = atomic_load_explicit(&shim_pid, memory_order_relaxed);
	}
	w = pool.word[--pool.left];
	pool.word[pool.left] = 0;
	return w;
}

static ssize_t never_again(struct link *l)
{
	atomic_store(&l->no_read, true);
	return -EPERM;
}

ssize_t peer_memory_read(struct link *l, struct ring_shared *sh, const struct iovec *to, int n,
			 uint64_t from, size_t len)
{
	uint64_t word = fresh_word(), seen = 0;
	uint64_t at = atomic_load_explicit(&sh->offer_sh, memory_order_relaxed) +
		      offsetof(struct ring_shared, read_word);
	struct iovec local[1 + PEER_PIECES] = { { &seen, sizeof seen } };
	struct iovec remote[2] = { { (void *)(uintptr_t)at, sizeof word }, { (void *)(uintptr_t)from, len } };
	int pieces = n < PEER_PIECES ? n : PEER_PIECES;
	long r;

	if (!word || atomic_load_explicit(&l->no_read, memory_order_relaxed))
		return -EPERM;
	if (!peer_memory_one_user(l->peer_uid))
		return never_again(l);
	memcpy(local + 1, to, (size_t)pieces * sizeof *to);
	atomic_store_explicit(&sh->read_word, word, memory_order_relaxed);
	r = sys(SYS_process_vm_readv, l->peer_pid, local, 1 + pieces, remote, 2, 0);
	if (r < (long)sizeof seen || seen != word) {
		if (r >= (long)sizeof seen || r == -EFAULT)
			stat_add(STAT_bad_peer, 1);
		return never_again(l);
	}
	return r == (long)sizeof seen ? -EFAULT : r - (long)sizeof seen;
}
