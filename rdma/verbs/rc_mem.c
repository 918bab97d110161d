/*
 * rc_mem.c - life of a queue pair and what is registered for it: memory of records, rings of
 * slots, large rings, device memory. See rc.h.
 */
#include "rdma/verbs/rc_int.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void rc_died(struct rc *rc)
{
	if (!atomic_exchange(&rc->dead, true))
		rc->conf.died(rc->conf.arg);
}

int rc_fd(const struct rc *rc) { return rc->channel ? rc->channel->fd : -1; }
uint64_t rc_registered(const struct rc *rc) { return atomic_load(&rc->registered); }
const char *rc_device(const struct rc *rc)
{
	return rc->id ? verbs.ibv_get_device_name(rc->id->verbs->device) : "";
}

uint32_t rc_mtu(const struct rc *rc)
{
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init;

	if (!rc->id || !rc->id->qp || verbs.ibv_query_qp(rc->id->qp, &attr, IBV_QP_PATH_MTU, &init))
		return 0;
	return attr.path_mtu >= IBV_MTU_256 && attr.path_mtu <= IBV_MTU_4096 ? 128u << attr.path_mtu
									     : 0;
}

void rc_counts(const struct rc *rc, struct rc_counts *ret)
{
	*ret = (struct rc_counts){ rc->posted, rc->sent, rc->polls, rc->completions,
				   atomic_load(&rc->arms), atomic_load(&rc->events) };
}

#define MEM_BYTES ((size_t)(RC_SENDS + RC_RECVS) * RC_REC_MAX)

/* MAP_SHARED for what the device reads and writes: a fork must not give us a copy of it. */
static void *pages(size_t n, int kind)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int error(void) { return errno ? -errno : -EIO; }

struct rc *rc_new(struct segment *a, const struct rc_conf *conf)
{
	struct rc *rc = pages(sizeof *rc, MAP_PRIVATE);

	if (!rc)
		return NULL;
	rc->a = a;
	rc->conf = *conf;
	rc->slot_bytes = a->slots * sizeof *rc->slot;
	rc->slot = pages(rc->slot_bytes, MAP_PRIVATE);
	rc->mem = pages(MEM_BYTES, MAP_SHARED);
	if (!rc->slot || !rc->mem) {
		rc_close(rc);
		return NULL;
	}
	return rc;
}

/* Of this host's memory, of all links; of that in large rings. */
static _Atomic uint64_t pinned, pinned_large;

uint64_t rc_pinned(void) { return atomic_load(&pinned); }

static struct ibv_mr *reg(struct rc *rc, void *p, size_t n, int access)
{
	struct ibv_mr *mr = NULL;

	if (atomic_fetch_add(&pinned, n) + n <= rc->conf.budget || !rc->conf.budget)
		mr = verbs.ibv_reg_mr(rc->pd, p, n, access);
	else
		errno = ENOMEM;
	if (mr)
		atomic_fetch_add(&rc->registered, n);
	else
		atomic_fetch_sub(&pinned, n);
	return mr;
}

static void dereg(struct ibv_mr **mr)
{
	if (*mr) {
		atomic_fetch_sub(&pinned, (*mr)->length);
		verbs.ibv_dereg_mr(*mr);
	}
	*mr = NULL;
}

/* What comes and goes has no more of the budget than a quarter. */
static _Atomic uint64_t pinned_pull;

int rc_pull_reg(struct rc *rc, uint64_t addr, uint64_t n, bool landing, struct pull_mem *ret)
{
	uint64_t all = atomic_fetch_add(&pinned_pull, n) + n;
	int e = errno, r = -ENOMEM;
	struct ibv_mr *mr = NULL;

	if (!is_dead(rc) && (!rc->conf.budget || all <= rc->conf.budget / 4)) {
		mr = reg(rc, (void *)(uintptr_t)addr, n,
			 landing ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ);
		r = mr ? 0 : error();
	}
	errno = e;
	if (!mr) {
		atomic_fetch_sub(&pinned_pull, n);
		return r;
	}
	*ret = (struct pull_mem){ mr, n, mr->lkey, mr->rkey };
	return 0;
}

void rc_pull_dereg(struct rc *rc, struct pull_mem *m)
{
	struct ibv_mr *mr = m->mr;
	int e = errno;

	if (!mr)
		return;
	m->mr = NULL;
	atomic_fetch_sub(&pinned_pull, m->bytes);
	atomic_fetch_sub(&rc->registered, m->bytes);
	dereg(&mr);
	errno = e;
}

int rc_post_recvs(struct rc *rc, const uint32_t *i, unsigned n)
{
	struct ibv_recv_wr wr[RC_BATCH], *bad;
	struct ibv_sge sge[RC_BATCH];

	for (unsigned k = 0; k < n; k++) {
		sge[k] = (struct ibv_sge){ (uintptr_t)(rc->mem +
						       (size_t)(RC_SENDS + i[k]) * RC_REC_MAX),
							       RC_REC_MAX, rc->mr->lkey };
		wr[k] = (struct ibv_recv_wr){ .wr_id = RECV_ID | i[k],
					      .next = k + 1 < n ? &wr[k + 1] : NULL,
						      .sg_list = &sge[k], .num_sge = 1 };
	}
	return verbs.post_recv(rc->id->qp, wr, &bad);
}

static int post_all_recvs(struct rc *rc)
{
	uint32_t i[RC_BATCH];
	int r = 0;

	for (uint32_t from = 0; from < RC_RECVS && !r; from += RC_BATCH) {
		for (uint32_t k = 0; k < RC_BATCH; k++)
			i[k] = from + k;
		r = rc_post_recvs(rc, i, RC_BATCH) ? -EIO : 0;
	}
	return r;
}
_Static_assert(RC_RECVS % RC_BATCH == 0, "all of them are posted in whole batches");

/* Devices differ in how much they take inline: as much as a record of a small request, or less,
 * or none. */
static int make_qp(struct rc *rc)
{
	static const uint32_t sizes[] = { 128, RC_SHORT_BYTES + 64, 64, 48, RC_SHORT_BYTES, 0 };
	struct ibv_qp_init_attr qa;
	int r = -1;

	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0] && r; i++) {
		qa = (struct ibv_qp_init_attr){
			.send_cq = rc->cq, .recv_cq = rc->cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = RC_SENDS, .max_recv_wr = RC_RECVS,
				 .max_send_sge = 1, .max_recv_sge = 1,
				 .max_inline_data = sizes[i] },
		};
		r = verbs.rdma_create_qp(rc->id, rc->pd, &qa);
	}
	rc->max_inline = qa.cap.max_inline_data;
	return r ? error() : 0;
}

#define VECTORS 16		/* so many are tried */

/* The link's events come by one of the device's interrupts: those of a process's links one after
 * the other, of processes, which mostly have one, not all by the first. One that has no room, or
 * whose processor is gone, is no reason to have no link. */
static struct ibv_cq *make_cq(const struct rc *rc)
{
	static uint32_t links;		/* background thread */
	struct ibv_context *c = rc->id->verbs;
	uint32_t n = c->num_comp_vectors > 1 ? (uint32_t)c->num_comp_vectors : 1,
		 first = (uint32_t)sys(SYS_getpid) + links++;
	struct ibv_cq *cq = NULL;

	for (uint32_t i = 0; i < n && i < VECTORS && !cq; i++)
		cq = verbs.ibv_create_cq(c, RC_SENDS + RC_RECVS + 1, NULL, rc->channel,
					 (int)((first + i) % n));
	return cq;
}

int rc_open(struct rc *rc, struct rdma_cm_id *id)
{
	int r;

	rc->id = id;
	rc->iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	atomic_store(&rc->dead, false);
	rc->pd = verbs.ibv_alloc_pd(id->verbs);
	if (!rc->pd)
		return error();
	rc->mr = reg(rc, rc->mem, MEM_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!rc->mr)
		return error();
	rc->channel = verbs.ibv_create_comp_channel(id->verbs);
	if (!rc->channel || syscall(SYS_fcntl, rc->channel->fd, F_SETFL, O_NONBLOCK) < 0)
		return error();
	rc->cq = make_cq(rc);
	if (!rc->cq)
		return error();
	r = make_qp(rc);
	return r ? r : post_all_recvs(rc);
}

void rc_release(struct rc *rc)
{
	atomic_store(&rc->dead, true);
	if (rc->id && rc->id->qp)
		verbs.rdma_destroy_qp(rc->id);
	if (rc->cq)
		verbs.ibv_destroy_cq(rc->cq);
	if (rc->channel)
		verbs.ibv_destroy_comp_channel(rc->channel);
	for (uint32_t i = 0; rc->slot && i < rc->a->slots; i++) {
		dereg(&rc->slot[i].small_tx);
		dereg(&rc->slot[i].small_rx);
	}
	for (uint32_t i = 0; i < RC_LARGE_MOST; i++) {
		dereg(&rc->large[0][i].mr);
		dereg(&rc->large[1][i].mr);
	}
	atomic_fetch_sub(&pinned_large, rc->large_bytes);
	rc->large_bytes = 0;
	for (uint32_t i = 0; i < DEVICE_MOST; i++) {
		struct ibv_mr *mr = atomic_exchange(&rc->device[i].mr, NULL);

		if (mr)
			verbs.ibv_dereg_mr(mr);
	}
	dereg(&rc->mr);
	if (rc->pd)
		verbs.ibv_dealloc_pd(rc->pd);
	rc->id = NULL;
	rc->cq = NULL;
	rc->channel = NULL;
	rc->pd = NULL;
	atomic_store(&rc->registered, 0);
}

void rc_close(struct rc *rc)
{
	rc_release(rc);
	for (uint32_t i = 0; i < 2 * RC_LARGE_MOST; i++) {
		struct large *l = &rc->large[i / RC_LARGE_MOST][i % RC_LARGE_MOST];

		if (l->mem)
			munmap(l->mem, rc->conf.large_size);
	}
	if (rc->mem)
		munmap(rc->mem, MEM_BYTES);
	if (rc->slot)
		munmap(rc->slot, rc->slot_bytes);
	munmap(rc, sizeof *rc);
}

void rc_kill(struct rc *rc)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int e = errno;		/* as in post() */

	if (rc->id && rc->id->qp)
		verbs.ibv_modify_qp(rc->id->qp, &attr, IBV_QP_STATE);
	errno = e;
	rc_died(rc);
}

/* ---- slots ---- */

static uint8_t *ring_of(struct rc *rc, uint32_t slot, unsigned side)
{
	return rc->a->ring + (2ull * slot + side) * rc->a->ring_size;
}

/* Half of the budget is for what a connection cannot be without, and of the other one a link takes
 * no more than it leaves: so whoever comes later finds something. */
static bool may_grow(const struct rc *rc)
{
	uint64_t n = rc->conf.large_size, all = atomic_load(&pinned_large) + n;

	return !rc->conf.budget ||
	       (all <= rc->conf.budget / 2 && rc->large_bytes + n <= rc->conf.budget / 2 - all);
}

/* In use, with memory and registered; NULL: with *err 0 none is left, with -ENOMEM it cannot be
 * had. */
static struct large *large_take(struct rc *rc, bool landing, int *err)
{
	struct large *l = rc->large[landing], *end = l + rc->conf.large_most;

	*err = 0;
	while (l < end && l->used)
		l++;
	if (l == end || is_dead(rc))
		return NULL;
	*err = -ENOMEM;
	if (!l->mr && !may_grow(rc))
		return NULL;
	if (!l->mem) {
		l->mem = pages(rc->conf.large_size, MAP_SHARED);
		if (l->mem)	/* no business of a child's, which would keep it */
			madvise(l->mem, rc->conf.large_size, MADV_DONTFORK);
	}
	if (l->mem && !l->mr) {
		l->mr = reg(rc, l->mem, rc->conf.large_size,
			    landing ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0);
		if (l->mr) {
			rc->large_bytes += rc->conf.large_size;
			atomic_fetch_add(&pinned_large, rc->conf.large_size);
		}
	}
	l->used = l->mr != NULL;
	return l->used ? l : NULL;
}

static void large_give(struct large *of, struct rc_ring *r)
{
	for (uint32_t i = 0; r->size && i < RC_LARGE_MOST; i++)
		if (of[i].mem == r->buf)
			of[i].used = false;
	r->size = 0;
}

bool rc_large_left(const struct rc *rc)
{
	for (uint32_t i = 0; i < rc->conf.large_most; i++)
		if (!atomic_load_explicit(&rc->large[0][i].used, memory_order_relaxed))
			return true;
	return false;
}

int64_t rc_large_land(struct rc *rc, uint32_t slot, const uint8_t **ret_ring, uint64_t *ret_addr,
		      uint32_t *ret_rkey)
{
	struct rc_slot *sl = &rc->slot[slot];
	int err = 0;
	struct large *l = sl->bound && !sl->large_rx.size ? large_take(rc, true, &err) : NULL;

	if (!l)
		return err;
	take(&rc->poll);
	sl->large_rx = (struct rc_ring){ l->mem, rc->conf.large_size, l->mr };
	give(&rc->poll);
	*ret_ring = l->mem;
	*ret_addr = (uintptr_t)l->mem;
	*ret_rkey = l->mr->rkey;
	return (int64_t)rc->conf.large_size;
}

int64_t rc_large_peer(struct rc *rc, uint32_t slot, uint64_t size, uint64_t addr, uint32_t rkey,
		      uint8_t **ret_ring)
{
	struct rc_slot *sl = &rc->slot[slot];
	struct large *l;
	int err = 0;

	if (size <= rc->a->ring_size || size & (size - 1) || size > 1u << 30 || sl->large_tx.size)
		return -EPROTO;
	l = sl->bound ? large_take(rc, false, &err) : NULL;
	if (!l)
		return err;
	if (size > rc->conf.large_size)
		size = rc->conf.large_size;
	take(&rc->post);
	sl->large_tx = (struct rc_ring){ l->mem, size, l->mr };
	sl->large_raddr = addr;
	sl->large_rkey = rkey;
	give(&rc->post);
	*ret_ring = l->mem;
	return (int64_t)size;
}

bool rc_enlarge(struct rc *rc, uint32_t slot, uint64_t size)
{
	struct ring_shared *sh = &rc->a->slot[slot].dir[rc->a->me];
	struct rc_slot *sl = &rc->slot[slot];
	uint64_t wr = atomic_load_explicit(&sh->wr, memory_order_relaxed);
	bool ok;

	take(&rc->post);
	/* In another epoch than the last that was told of nothing has been published yet; what
	 * is left of that one went by TCP. */
	ok = sl->linked && sl->large_tx.size && !sl->large &&
	     (sl->epoch != atomic_load_explicit(&sh->epoch, memory_order_relaxed) ||
	      sl->told_wr == wr);
	if (ok) {
		sl->told_wr = sl->want_wr;
		sl->tx = sl->large_tx;
		sl->tx.size = size;
		sl->raddr = sl->large_raddr;
		sl->rkey = sl->large_rkey;
		sl->large = (uint32_t)size;
	}
	give(&rc->post);
	return ok;
}

/* ---- device memory, see rc.h ---- */

static struct ibv_mr *reg_device(struct rc *rc, uint64_t addr, uint64_t size, int dmabuf,
				 int access)
{
	struct ibv_mr *mr = NULL;

	if (dmabuf >= 0 && verbs.ibv_reg_dmabuf_mr)
		mr = verbs.ibv_reg_dmabuf_mr(rc->pd, 0, size, addr, dmabuf, access);
	if (!mr)
		mr = verbs.ibv_reg_mr(rc->pd, (void *)(uintptr_t)addr, size, access);
	if (mr)
		atomic_fetch_add(&rc->registered, size);
	return mr;
}

int rc_device_reg(struct rc *rc, uint64_t addr, uint64_t size, int dmabuf, bool landing,
		  uint32_t *ret_key)
{
	struct device_mem *d, *free = NULL;
	struct ibv_mr *mr = NULL;

	take(&rc->post);
	for (d = rc->device; d < rc->device + DEVICE_MOST && !mr; d++) {
		mr = d->addr == addr && d->size == size && d->landing == landing
			     ? atomic_load(&d->mr)
			     : NULL;
		if (!atomic_load(&d->mr) && !free)
			free = d;
	}
	if (!mr && free && !is_dead(rc)) {
		mr = reg_device(rc, addr, size, dmabuf,
				landing ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0);
		if (mr) {
			free->addr = addr;
			free->size = size;
			free->landing = landing;
			atomic_store(&free->mr, mr);
		}
	}
	give(&rc->post);
	if (!mr)
		return is_dead(rc) ? -ENETDOWN : error();
	*ret_key = landing ? mr->rkey : mr->lkey;
	return 0;
}

bool rc_device_known(struct rc *rc, uint64_t addr, uint64_t size, uint32_t *ret_key)
{
	struct ibv_mr *mr = NULL;

	take(&rc->post);
	for (struct device_mem *d = rc->device; d < rc->device + DEVICE_MOST && !mr; d++)
		mr = d->addr == addr && d->size == size && !d->landing ? atomic_load(&d->mr) : NULL;
	if (mr)
		*ret_key = mr->lkey;
	give(&rc->post);
	return mr;
}

void rc_device_land(struct rc *rc, uint32_t slot, uint64_t size)
{
	take(&rc->poll);
	rc->slot[slot].dev_rx = size;
	give(&rc->poll);
}

int rc_device_peer(struct rc *rc, uint32_t slot, uint64_t size, uint64_t addr, uint32_t rkey)
{
	struct rc_slot *sl = &rc->slot[slot];

	if (size & (size - 1) || size > 1u << 30 || !size == !sl->dev_tx)
		return -EPROTO;
	take(&rc->post);
	sl->dev_raddr = addr;
	sl->dev_rkey = rkey;
	sl->dev_tx = size;
	give(&rc->post);
	return 0;
}

bool rc_device_done(struct rc *rc, uint64_t seq)
{
	return __atomic_load_n(&rc->done, __ATOMIC_ACQUIRE) >= seq || is_dead(rc);
}

uint64_t rc_device_size(const struct rc *rc, uint32_t slot)
{
	return __atomic_load_n(&rc->slot[slot].dev_tx, __ATOMIC_RELAXED);
}

int rc_slot_bind(struct rc *rc, uint32_t slot, uint16_t life, uint64_t *ret_addr,
		 uint32_t *ret_rkey)
{
	struct rc_slot *sl = &rc->slot[slot];
	struct ibv_mr *tx = sl->small_tx, *rx = sl->small_rx;
	uint64_t size = rc->a->ring_size;

	if (is_dead(rc))
		return -ENETDOWN;
	/* The peer can reach what lands here and nothing else of ours. */
	if (!tx)
		tx = sl->small_tx = reg(rc, ring_of(rc, slot, rc->a->me), size, 0);
	if (!rx)
		rx = sl->small_rx = reg(rc, ring_of(rc, slot, !rc->a->me), size,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!tx || !rx)
		return error();
	take(&rc->poll);
	take(&rc->post);
	if (sl->pending)
		rc->npending--;
	*sl = (struct rc_slot){ .life = life, .bound = true, .small_tx = tx, .small_rx = rx,
				.tx = { ring_of(rc, slot, rc->a->me), size, tx },
					.rx = { ring_of(rc, slot, !rc->a->me), size, rx },
				.small = rc->peer_acked, .fence = rc->peer_acked,
					.final = RING_NO_FINAL, .final_told = RING_NO_FINAL };
	give(&rc->post);
	give(&rc->poll);
	*ret_addr = (uintptr_t)ring_of(rc, slot, !rc->a->me);
	*ret_rkey = rx->rkey;
	return 0;
}

void rc_slot_peer(struct rc *rc, uint32_t slot, uint64_t addr, uint32_t rkey)
{
	take(&rc->post);
	rc->slot[slot].raddr = addr;
	rc->slot[slot].rkey = rkey;
	rc->slot[slot].linked = true;
	give(&rc->post);
}

void rc_slot_unbind(struct rc *rc, uint32_t slot)
{
	struct rc_slot *sl = &rc->slot[slot];

	take(&rc->poll);
	take(&rc->post);
	if (sl->pending)
		rc->npending--;
	sl->bound = sl->linked = sl->pending = false;
	give(&rc->post);
	give(&rc->poll);
}

void rc_slot_left(struct rc *rc, uint32_t slot)
{
	large_give(rc->large[0], &rc->slot[slot].large_tx);
	large_give(rc->large[1], &rc->slot[slot].large_rx);
}
