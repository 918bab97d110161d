/*
 * mailbox.c - a path more, for tests: this file and a row (mailbox.def, tests/path/path.mk). Two
 * processes of one host have a segment each; records go from one to the other through a mailbox, a
 * second file in memory. Every fourth publication waits, and goes with a later one, or by the
 * background thread.
 *
 * No descriptor says that something has come: whoever puts a record in rings all bells of the peer.
 * What comes is believed but for its slot, life and length: both ends are the test's.
 *
 * Locks: of each link one for what it sends and one for what it takes, below a direction's.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/fdtab.h"
#include "base/loop.h"
#include "base/shim.h"
#include "base/sys.h"
#include "link/link.h"
#include "link/path.h"
#include "policy/log.h"

#define RECORDS 64
#define PAYLOAD 4000
#define DELAY_US 300

struct record {
	uint32_t slot, len;
	uint16_t life;
	uint64_t wr, rd, final;
	uint8_t bytes[PAYLOAD];		/* they end at wr */
};

struct box {
	_Alignas(64) _Atomic uint64_t put;
	_Alignas(64) _Atomic uint64_t taken;
	struct record record[RECORDS];
};

struct slot {
	uint16_t life;
	bool bound, linked, pending;
	uint64_t epoch, told_wr, told_rd, told_final;
};

static struct mailbox {
	struct lock put, take;
	struct box *box;		/* [2], of side 0 and of side 1 */
	struct slot *slot;
	uint32_t slots, npending;
	uint64_t due_us, published, records;
	_Atomic bool dead;
} mailboxes[LINK_MAX];

static _Atomic bool used;

static struct mailbox *of(const struct link *l) { return &mailboxes[l->index]; }

/* ---- bytes ---- */

/* What the peer has not been told of the slot; one record. False: there is nothing, or no room. */
static bool put_one(struct link *l, uint32_t i, bool *full)
{
	struct mailbox *m = of(l);
	struct box *box = &m->box[l->segment.me];
	struct segment_slot *as = &l->segment.slot[i];
	struct ring_shared *out = &as->dir[l->segment.me], *in = &as->dir[!l->segment.me];
	struct slot *sl = &m->slot[i];
	uint64_t epoch = atomic_load(&out->epoch), wr = atomic_load(&out->wr);
	uint64_t rd = atomic_load(&in->rd), final = atomic_load(&out->final);
	uint64_t put = atomic_load(&box->put), size = l->segment.ring_size, n;
	const uint8_t *ring = l->segment.ring + (2ull * i + l->segment.me) * size;
	struct record *r = &box->record[put % RECORDS];

	if (epoch != sl->epoch) {	/* what an earlier one left untold went by TCP */
		sl->epoch = epoch;
		sl->told_wr = atomic_load(&out->cut);
		sl->told_final = RING_NO_FINAL;
	}
	n = wr > sl->told_wr ? wr - sl->told_wr : 0;
	if (!sl->linked || (!n && rd <= sl->told_rd && final == sl->told_final))
		return false;
	*full = put - atomic_load(&box->taken) == RECORDS;
	if (*full)
		return false;
	n = n < PAYLOAD ? n : PAYLOAD;
	for (uint64_t k = 0; k < n; k++)
		r->bytes[k] = ring[(sl->told_wr + k) & (size - 1)];
	sl->told_wr += n;
	sl->told_rd = rd;
	sl->told_final = final;
	r->slot = i;
	r->len = (uint32_t)n;
	r->life = sl->life;
	r->wr = sl->told_wr;
	r->rd = rd;
	r->final = final;
	atomic_store(&box->put, put + 1);
	m->records++;
	return true;
}

/* `put` held. True: something went. */
static bool put_slot(struct link *l, uint32_t i)
{
	struct slot *sl = &of(l)->slot[i];
	bool full = false, any = false;

	while (put_one(l, i, &full))
		any = true;
	of(l)->npending += full - sl->pending;
	sl->pending = full;
	return any;
}

static void put(struct link *l, uint32_t i, bool may_wait)
{
	struct mailbox *m = of(l);
	bool any = false, later;

	lock_take(&m->put);
	later = may_wait && m->published++ % 4 == 3;
	if (!later)
		any = put_slot(l, i);
	else if (!m->slot[i].pending)
		m->npending += m->slot[i].pending = true;
	later = m->npending > 0;
	if (later)
		m->due_us = now_us() + DELAY_US;
	lock_give(&m->put);
	if (any)
		link_ring_peer(l, (1ull << BELL_MAX) - 1);
	if (later)
		loop_kick();
}

static void publish(struct link *l, uint32_t slot) { put(l, slot, true); }
static void credit(struct link *l, uint32_t slot) { put(l, slot, false); }

/* What segment_notify() does for the other end of one segment. */
static void news(struct link *l, uint32_t slot)
{
	struct segment view = l->segment;
	uint64_t bells;

	view.me = !view.me;
	bells = segment_notify(&view, slot);
	if (bells)
		bell_ring(bells);
}

static void land(struct link *l, const struct record *r)
{
	struct mailbox *m = of(l);
	struct segment_slot *as = &l->segment.slot[r->slot % m->slots];
	struct ring_shared *in = &as->dir[!l->segment.me], *out = &as->dir[l->segment.me];
	uint64_t size = l->segment.ring_size;
	uint8_t *ring = l->segment.ring + (2ull * r->slot + !l->segment.me) * size;

	if (r->slot >= m->slots || r->len > PAYLOAD || !m->slot[r->slot].bound ||
	    m->slot[r->slot].life != r->life)
		return;
	for (uint64_t k = 0; k < r->len; k++)
		ring[(r->wr - r->len + k) & (size - 1)] = r->bytes[k];
	if (r->wr > atomic_load(&in->wr))
		atomic_store(&in->wr, r->wr);
	if (r->rd > atomic_load(&out->rd))
		atomic_store(&out->rd, r->rd);
	if (r->final != RING_NO_FINAL)
		atomic_store(&in->final, r->final);
	news(l, r->slot);
}

static bool poll_it(struct link *l)
{
	struct mailbox *m = of(l);
	struct box *box = m->box ? &m->box[!l->segment.me] : NULL;
	bool any = false;
	uint64_t at;

	if (!box || atomic_load(&box->put) == atomic_load(&box->taken))
		return false;
	lock_take(&m->take);
	while ((at = atomic_load(&box->taken)) != atomic_load(&box->put)) {
		land(l, &box->record[at % RECORDS]);
		atomic_store(&box->taken, at + 1);
		any = true;
	}
	lock_give(&m->take);
	return any;
}

/* ---- sleep: by bells alone ---- */

static void arm(struct link *l, bool own) { (void)l, (void)own; }
static int channel(const struct link *l) { (void)l; return -1; }
static void woken(struct link *l) { poll_it(l); }
static void unwatched(struct link *l) { (void)l; }

/* ---- slots ---- */

static int slot_bind(struct link *l, uint32_t i, uint16_t life, uint64_t *addr, uint32_t *key)
{
	struct mailbox *m = of(l);

	lock_take(&m->put);
	lock_take(&m->take);
	m->npending -= m->slot[i].pending;
	m->slot[i] = (struct slot){ .life = life, .bound = true, .told_final = RING_NO_FINAL };
	lock_give(&m->take);
	lock_give(&m->put);
	*addr = 0;
	*key = 0;
	return 0;
}

static void slot_peer(struct link *l, uint32_t i, uint64_t addr, uint32_t key)
{
	(void)addr, (void)key;
	lock_take(&of(l)->put);
	of(l)->slot[i].linked = true;
	lock_give(&of(l)->put);
}

static void slot_unbind(struct link *l, uint32_t i)
{
	struct mailbox *m = of(l);

	lock_take(&m->put);
	lock_take(&m->take);
	m->npending -= m->slot[i].pending;
	m->slot[i] = (struct slot){ .bound = false };
	lock_give(&m->take);
	lock_give(&m->put);
}

static void slot_left(struct link *l, uint32_t i) { (void)l, (void)i; }

/* ---- room: no larger rings ---- */

static uint64_t least(const struct link *l, uint64_t size) { (void)l, (void)size; return 0; }
static bool large_left(const struct link *l) { (void)l; return false; }

static bool enlarge(struct link *l, uint32_t i, uint64_t size)
{
	(void)l, (void)i, (void)size;
	return false;
}

static int64_t large_land(struct link *l, uint32_t i, const uint8_t **ring, uint64_t *addr,
			  uint32_t *key)
{
	(void)l, (void)i, (void)ring, (void)addr, (void)key;
	return 0;
}

static int64_t large_peer(struct link *l, uint32_t i, uint64_t size, uint64_t addr, uint32_t key,
			  uint8_t **ring)
{
	(void)l, (void)i, (void)size, (void)addr, (void)key, (void)ring;
	return 0;
}

/* ---- life ---- */

/* What waits goes when its time has come, or there is room. */
static uint64_t work(struct link *l)
{
	struct mailbox *m = of(l);
	uint64_t now = now_us(), due = UINT64_MAX;
	bool any = false;

	if (atomic_load(&l->state) != LINK_UP)
		return due;
	critical_enter();
	lock_take(&m->put);
	for (uint32_t i = 0; m->npending && now >= m->due_us && i < m->slots; i++)
		if (m->slot[i].pending)
			any |= put_slot(l, i);
	if (m->npending)
		due = now < m->due_us ? m->due_us : now + DELAY_US;
	lock_give(&m->put);
	if (any)
		link_ring_peer(l, (1ull << BELL_MAX) - 1);
	critical_leave();
	return due;
}

static void dead(struct link *l) { link_kill(l, REASON_PROTOCOL); }
static void kill_it(struct link *l) { link_kill(l, REASON_PATH_DEAD); }
static void ended(struct link *l) { atomic_store(&of(l)->dead, true); }
static bool may_release(const struct link *l) { (void)l; return false; }
static void release(struct link *l) { (void)l; }

static void close_it(struct link *l)
{
	struct mailbox *m = of(l);

	munmap(m->box, 2 * sizeof *m->box);
	munmap(m->slot, m->slots * sizeof *m->slot);
	*m = (struct mailbox){ .box = NULL };
}

static void log_it(const struct link *l)
{
	log_line(2, "mailbox: %lu records", (unsigned long)of(l)->records);
}

static void event(uint32_t what) { (void)what; }
static bool ever(void) { return atomic_load(&used); }

static void forked(void)
{
	for (uint32_t i = 0; i < atomic_load(&links_top); i++)
		if (mailboxes[i].box)
			close_it(&links[i]);
}

static const struct path_wire wire = {
	.bind = slot_bind, .peer = slot_peer, .unbind = slot_unbind, .left = slot_left,
	.publish = publish, .credit = credit, .poll = poll_it,
	.arm = arm, .channel = channel, .woken = woken, .unwatched = unwatched,
	.least = least, .large_land = large_land, .large_peer = large_peer,
	.large_left = large_left, .enlarge = enlarge,
	.work = work, .peer_says_dead = dead, .kill = kill_it, .ended = ended,
	.may_release = may_release, .release = release, .close = close_it, .log = log_it,
	.event = event, .ever = ever, .forked = forked,
};

/* ---- how a link is made ---- */

static void *map(int fd, size_t n)
{
	int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, how, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A segment of our own. */
static int own_segment(struct segment *a, uint8_t me)
{
	const struct policy_tunables *t = shim_tunables();
	int fd, r;

	fd_number_lock();
	r = segment_create(a, (uint32_t)t->link_streams, t->ring_size, 0, &fd);
	if (!r)
		sys(SYS_close, fd);
	fd_number_unlock();
	a->me = me;
	return r;
}

static int own_mailbox(struct link *l, int fd)
{
	struct mailbox *m = of(l);
	void *box = map(fd, 2 * sizeof *m->box);
	void *slot = map(-1, l->segment.slots * sizeof *m->slot);

	if (!box || !slot)
		return -ENOMEM;		/* a test's memory */
	*m = (struct mailbox){ .box = box, .slot = slot, .slots = l->segment.slots };
	atomic_store(&used, true);
	l->wire = &wire;
	return 0;
}

static struct link *open_it(int ctl, uid_t uid, pid_t pid, int *ret_fd, enum reason *why)
{
	struct segment a;
	struct link *l;

	*why = REASON_NO_MEMORY;
	*ret_fd = fd_moment_sys(SYS_memfd_create, "mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*ret_fd < 0)
		return NULL;
	if (sys(SYS_ftruncate, *ret_fd, 2 * sizeof(struct box)) || own_segment(&a, 0))
		goto fail;
	l = link_new_with(&path_mailbox, ctl, &a, uid, pid);
	if (l && !own_mailbox(l, *ret_fd))
		return l;
fail:
	fd_internal_close(*ret_fd);
	return NULL;
}

static void welcomed(struct link *l, const struct ctl_msg *msg, int fd)
{
	struct segment a;

	(void)msg;
	if (fd < 0 || own_segment(&a, 1) || link_has_segment(l, &a) || own_mailbox(l, fd))
		link_kill(l, REASON_NO_MEMORY);
	else
		link_up(l);
}

const struct path path_mailbox = {
	.kind = PATH_MAILBOX, .wire = &wire, .open = open_it, .welcomed = welcomed,
};
