/*
 * peer_memory.c - see peer_memory.h. Lock: link.look_lock.
 */
#include "link/peer_memory.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/fdtab.h"
#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"
#include "policy/stat.h"
#include "rdma/shm/ring.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77		/* asm-generic/socket.h, since 6.5 */
#endif

/* fetched together: a system call for each would cost as much as the check */
#define WORDS 16
#define LOOK_NS 100000000

/* ---- which process ---- */

/* By SO_PEERPIDFD it is the one that the kernel noted down when the socket was connected; before
 * 6.5, the one that has the number now. */
bool peer_memory_pin(struct link *l)
{
	uid_t real, effective, saved;
	int fd = -1;
	socklen_t len = sizeof fd;
	long r;

	l->peer_fd = -1;
	if (sys(SYS_getresuid, &real, &effective, &saved) < 0 || real != l->peer_uid ||
	    effective != real || saved != real)
		return false;
	fd_number_lock();
	r = fd_may_make() ? sys(SYS_getsockopt, l->ctl, SOL_SOCKET, SO_PEERPIDFD, &fd, &len)
			  : -EMFILE;
	if (r == -ENOPROTOOPT)
		r = fd = (int)sys(SYS_pidfd_open, l->peer_pid, 0);
	l->peer_fd = fd_internal_made(r < 0 ? (int)r : fd, true);
	return l->peer_fd >= 0;
}

void peer_memory_unpin(struct link *l)
{
	if (l->peer_fd >= 0)
		fd_internal_close(l->peer_fd);
	l->peer_fd = -1;
}

/* It has not ended, so its number was nobody else's up to now. */
static bool still_there(const struct link *l)
{
	struct pollfd p = { .fd = l->peer_fd, .events = POLLIN };
	struct timespec zero = { 0, 0 };
	long r;

	do
		r = sys(SYS_ppoll, &p, 1, &zero, NULL, 8);
	while (r == -EINTR);	/* a signal comes first, even where nothing is waited for */
	return l->peer_fd >= 0 && !r;
}

/* ---- what it may do without us ---- */

static __thread struct {
	struct peer_rights rights;
	uint64_t looked_ns;
	bool well;
} own __attribute__((tls_model("initial-exec")));

static bool is_old(uint64_t looked_ns, uint64_t now)
{
	return !looked_ns || now - looked_ns > LOOK_NS;
}

static void look_at_own(uint64_t now)
{
	own.well = peer_rights_look(0, &own.rights);
	own.looked_ns = now;
}

static void look_at_peer(struct link *l, uint64_t now)
{
	l->looked_well = peer_rights_look(l->peer_pid, &l->rights);
	l->looked_ns = now;
	if (!still_there(l)) {	/* whoever's they were */
		l->looked_well = true;
		l->rights.plain = false;
	}
}

int peer_memory_may(struct link *l)
{
	uint64_t now = now_ns();
	int r = -EAGAIN;

	if (is_old(own.looked_ns, now))
		look_at_own(now);
	lock_take(&l->look_lock);
	if (is_old(l->looked_ns, now))
		look_at_peer(l, now);
	if (own.well && l->looked_well) {
		r = peer_rights_cover(&l->rights, &own.rights) ? 0 : -EPERM;
		if (r && own.looked_ns != now) {	/* we may have given up some since */
			look_at_own(now);
			r = own.well ? peer_rights_cover(&l->rights, &own.rights) ? 0 : -EPERM
				     : -EAGAIN;
		}
	}
	lock_give(&l->look_lock);
	return r;
}

/* ---- its memory ---- */

/* A word that is not 0 and that nobody has seen; 0: the kernel gives none. */
static uint64_t fresh_word(void)
{
	static __thread struct { uint64_t word[WORDS]; unsigned left; int pid; }
		pool __attribute__((tls_model("initial-exec")));
	uint64_t w;

	/* A forked child has a copy of its parent's: they are thrown away. */
	if (!pool.left || pool.pid != atomic_load_explicit(&shim_pid, memory_order_relaxed)) {
		if (sys(SYS_getrandom, pool.word, sizeof pool.word, GRND_NONBLOCK) !=
		    sizeof pool.word)
			return 0;
		pool.left = WORDS;
		pool.pid = atomic_load_explicit(&shim_pid, memory_order_relaxed);
	}
	w = pool.word[--pool.left];
	pool.word[pool.left] = 0;
	return w;
}

static int never_again(struct link *l)
{
	atomic_store(&l->no_read, true);
	return -EPERM;
}

int peer_memory_begin(struct link *l, struct ring_shared *sh, const struct iovec *to, int n,
		      uint64_t from, size_t len, struct peer_read *p)
{
	uint64_t at = atomic_load_explicit(&sh->offer_sh, memory_order_relaxed) +
		      offsetof(struct ring_shared, read_word);
	int r;

	if (atomic_load_explicit(&l->no_read, memory_order_relaxed))
		return -EPERM;
	r = peer_memory_may(l);
	if (r)
		return r == -EPERM ? never_again(l) : r;
	p->word = fresh_word();
	if (!p->word)
		return -EAGAIN;
	p->seen = 0;
	p->pid = l->peer_pid;
	p->chunks = n < PEER_CHUNKS ? n : PEER_CHUNKS;
	p->to[0] = (struct iovec){ &p->seen, sizeof p->seen };
	memcpy(p->to + 1, to, (size_t)p->chunks * sizeof *to);
	p->from[0] = (struct iovec){ (void *)(uintptr_t)at, sizeof p->word };
	p->from[1] = (struct iovec){ (void *)(uintptr_t)from, len };
	atomic_store_explicit(&sh->read_word, p->word, memory_order_relaxed);
	return 0;
}

void peer_memory_copy(struct peer_read *p)
{
	p->r = sys(SYS_process_vm_readv, p->pid, p->to, 1 + p->chunks, p->from, 2, 0);
}

void peer_memory_wipe(const struct peer_read *p)
{
	long left = p->r - (long)sizeof p->seen;

	for (int i = 1; i <= p->chunks && left > 0; i++) {
		size_t n = p->to[i].iov_len < (size_t)left ? p->to[i].iov_len : (size_t)left;

		memset(p->to[i].iov_base, 0, n);
		left -= (long)n;
	}
}

ssize_t peer_memory_end(struct link *l, struct peer_read *p)
{
	const long word = sizeof p->seen;

	if (p->r < word || p->seen != p->word || !still_there(l)) {
		if (p->r >= word || p->r == -EFAULT)
			stat_add(STAT_bad_peer, 1);
		peer_memory_wipe(p);
		return never_again(l);
	}
	return p->r == word ? -EFAULT : p->r - word;
}
