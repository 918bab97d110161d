/*
 * map.c - the rings of device memory that others have: mapped by CUDA IPC once per ring and
 * context, kept until the place is needed. A ring of this process itself cannot be opened by its
 * handle, and need not be: it is where the description says.
 *
 * Whose ring it is, is part of what it is found by. A peer has the handles of the rings that it
 * was given: what it says of them must not lead to memory that only we may name.
 *
 * Lock: gpu_lock, held by the callers; the driver is called under it.
 */
#include "gpu/map.h"

#include <string.h>

#include "policy/log.h"

#define MAPS 32
#define PEERS_MAPS 16	/* of one peer's; then the next one takes the place of one of these */
static struct gpu_map maps[MAPS];
static unsigned next_map;

/* Whoever names ring after ring, of which none need be there, has none of the others' closed. */
static struct gpu_map *slot(int peer)
{
	unsigned his = 0;

	for (unsigned i = 0; i < MAPS; i++)
		his += maps[i].ctx && maps[i].peer == peer;
	for (unsigned i = 0; i < MAPS; i++) {
		struct gpu_map *m = &maps[(next_map + i) % MAPS];

		if (m->users || (his >= PEERS_MAPS && (!m->ctx || m->peer != peer)))
			continue;
		next_map = (next_map + i + 1) % MAPS;
		if (m->opened)
			gpu->unmap(m->base);
		memset(m, 0, sizeof *m);
		return m;
	}
	return NULL;
}

/* The peer's word for size and place is checked against what the driver has mapped. */
static bool map_open(struct gpu_map *m, const struct gpu_desc *d)
{
	gpu_addr start = 0;
	size_t size = 0;
	gpu_result r;

	if (!m->peer) {
		m->base = d->ring_base;
	} else {
		r = gpu->map(&m->base, d->ipc);
		if (r) {
			log_line(2, "GPU path: the peer's device memory cannot be mapped (%s "
				 "error %d)", gpu->name, r);
			m->base = 0;
			return false;
		}
		m->opened = true;
	}
	if (gpu->extent(m->base, &start, &size) || start != m->base || size < d->ring_size) {
		if (m->opened)
			gpu->unmap(m->base);
		m->opened = false;
		m->base = 0;
		return false;
	}
	return true;
}

static bool named(const struct gpu_map *m, int peer, uint64_t id, gpu_ctx ctx)
{
	return m->desc.ring_id == id && m->ctx == ctx && m->peer == peer;
}

static bool is(const struct gpu_map *m, const struct gpu_desc *d, gpu_ctx ctx, int peer)
{
	return named(m, peer, d->ring_id, ctx) && (peer || m->desc.ring_base == d->ring_base) &&
		!memcmp(m->desc.ipc, d->ipc, sizeof d->ipc);
}

bool gpu_map_known(int peer, uint64_t id, gpu_ctx ctx, uint64_t since, struct gpu_desc *ret)
{
	for (int i = 0; i < MAPS && peer; i++)
		if (named(&maps[i], peer, id, ctx) && maps[i].read_ns >= since) {
			*ret = maps[i].desc;
			return true;
		}
	return false;
}

struct gpu_map *gpu_map_get(const struct gpu_desc *d, gpu_ctx ctx, int peer)
{
	struct gpu_map *m = NULL;

	for (int i = 0; i < MAPS && !m; i++)
		if (is(&maps[i], d, ctx, peer))
			m = &maps[i];
	if (!m) {
		m = slot(peer);
		if (!m)
			return NULL;
		m->desc = *d;
		m->ctx = ctx;
		m->peer = peer;
		map_open(m, d);
	}
	if (!m->base || d->off > m->desc.ring_size || d->len > m->desc.ring_size - d->off)
		return NULL;
	m->users++;
	return m;
}
