/*
 * device.c - what an offer of device memory points to: a struct gpu_desc of which the peer has
 * written every byte. The driver is a stand-in whose device memory is the heap, so that a copy
 * beyond an allocation is seen. What is taken must be the bytes that the description names.
 *
 * LINK: SHIM
 * LIBS: -Wl,--wrap=clock_gettime
 */
#include "world.h"
#include "../../shim/gpu/gpu_desc.h"
#include "../../shim/cuda/cuda_driver.h"
#include "../../shim/gpu/hooks.h"
#include "../../shim/gpu/map.h"
#include "../../shim/link/peer_memory.h"

#define RING  (512 * 1024u)
#define WANT  (256 * 1024u)

static struct { uint8_t *p; size_t n; } allocs[16];
static uint8_t *peer_ring;
static struct gpu_desc desc;
static struct link peer;
static uint8_t *to;

static void enter(uint8_t *p, size_t n)
{
	for (int i = 0; i < 16; i++)
		if (!allocs[i].p) {
			allocs[i].p = p;
			allocs[i].n = n;
			return;
		}
}

static CUresult get_range(CUdeviceptr *start, size_t *n, CUdeviceptr p)
{
	for (int i = 0; i < 16; i++)
		if (allocs[i].p && p - (uintptr_t)allocs[i].p < allocs[i].n) {
			*start = (uintptr_t)allocs[i].p;
			*n = allocs[i].n;
			return 0;
		}
	return 1;
}

static CUresult mem_alloc(CUdeviceptr *p, size_t n)
{
	uint8_t *q = malloc(n);

	enter(q, n);
	*p = (uintptr_t)q;
	return 0;
}

/* The handle's first byte: the ring, a place within it, or nothing that can be mapped. */
static CUresult ipc_open(CUdeviceptr *p, CUipcMemHandle h, unsigned flags)
{
	(void)flags;
	if (h.reserved[0] == 'R')
		*p = (uintptr_t)peer_ring;
	else if (h.reserved[0] == 'I')
		*p = (uintptr_t)peer_ring + 4096;
	else if (h.reserved[0] == 'W')
		*p = 0x1000;
	else
		return 1;
	return 0;
}

static CUresult copy(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st)
{
	(void)st;
	memmove((void *)d, (void *)s, n);
	return 0;
}
static CUresult copy_out(void *d, CUdeviceptr s, size_t n, CUstream st)
{
	(void)st;
	memcpy(d, (void *)s, n);
	return 0;
}
static CUresult attributes(unsigned n, int *what, void **p, CUdeviceptr at)
{
	(void)n, (void)what, (void)p, (void)at;
	return 1;
}
static CUresult device(CUdevice *d) { *d = 0; return 0; }
static CUresult attribute(int *v, int what, CUdevice d) { (void)what, (void)d; *v = 0; return 0; }
static CUresult one(void *p) { (void)p; return 0; }
static CUresult stream_new_(CUstream *s, unsigned f) { (void)f; *s = (CUstream)3; return 0; }
static CUresult event_new(CUevent *e, unsigned f) { (void)f; *e = (CUevent)5; return 0; }
static CUresult handle(CUipcMemHandle *h, CUdeviceptr p)
{
	(void)p;
	memset(h, 0x33, sizeof *h);
	return 0;
}
static CUresult uuid(CUuuid *u, CUdevice d) { (void)d; memset(u, 1, sizeof *u); return 0; }
static CUresult info(size_t *left, size_t *all) { *left = *all = 1ul << 30; return 0; }
static CUresult closed(CUdeviceptr p)
{
	return p == (uintptr_t)peer_ring || p == (uintptr_t)peer_ring + 4096 || p == 0x1000 ? 0 : 1;
}

static void begin(void)
{
	world_make("device eager\ndevice_memory 16M\n");
	cu = (struct cuda_api){
		.cuCtxPushCurrent_v2 = (void *)one, .cuCtxPopCurrent_v2 = (void *)one,
			.cuThreadExchangeStreamCaptureMode = (void *)one,
		.cuCtxGetDevice = device, .cuDeviceGetUuid = uuid,
			.cuDeviceGetAttribute = attribute, .cuPointerGetAttributes = attributes,
		.cuMemAlloc_v2 = mem_alloc, .cuMemFree_v2 = closed, .cuMemGetInfo_v2 = info,
			.cuMemGetAddressRange_v2 = get_range, .cuIpcGetMemHandle = handle,
		.cuIpcOpenMemHandle_v2 = ipc_open, .cuIpcCloseMemHandle = closed,
			.cuStreamCreate = stream_new_,
		.cuStreamSynchronize = (void *)one, .cuStreamQuery = (void *)one,
			.cuEventQuery = (void *)one,
		.cuEventCreate = event_new, .cuEventRecord = (void *)one,
			.cuMemcpyDtoDAsync_v2 = copy, .cuMemcpyDtoHAsync_v2 = copy_out,
	};
	gpu = &cuda_ops;
	atomic_store(&gpu_path, GPU_PATH_ON);
	atomic_store(&gpu_context, (CUcontext)7);
	peer_ring = malloc(RING);
	enter(peer_ring, RING);
	for (unsigned i = 0; i < RING; i++)
		peer_ring[i] = (uint8_t)(i * 7 + (i >> 8));
	to = malloc(WANT);
	peer.peer_pid = getpid();
	peer.peer_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
}


/* As begin_device() of shim/conn/stream_direct.c. */
static bool finds(const struct gpu_offer *o, size_t want, struct ring_shared *sh,
		  struct gpu_found *f)
{
	struct iovec at = { &f->d, sizeof f->d };
	struct peer_read p;

	if (gpu_take_finds(peer.peer_pid, o, want, f))
		return true;
	if (!f->wanted || peer_memory_begin(&peer, sh, &at, 1, o->desc, sizeof f->d, &p))
		return false;
	peer_memory_copy(&p);
	return peer_memory_end(&peer, &p) == sizeof f->d;
}

int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)
{
	struct input in = { d, n };
	struct gpu_take t;
	struct iovec iov[2];
	static struct ring_shared sh;
	struct gpu_found found;
	struct gpu_offer o = { .desc = (uintptr_t)&desc };
	struct gpu_desc known;
	bool is_known, took;
	uint64_t addr;
	size_t got, want;
	uint8_t mode = get8(&in);

	if (!to)
		begin();
	atomic_store(&sh.offer_sh, (uintptr_t)&sh);
	atomic_store(&peer.no_read, false);
	/* another process, or our own: then the ring is where the description says */
	atomic_store(&shim_pid, mode & 1 ? getpid() : 1);
	desc = (struct gpu_desc){ .magic = GPU_DESC_MAGIC, .ring_id = mode >> 1 & 15,
				   .ring_size = RING,
				   .ring_base = (uintptr_t)peer_ring, .host = 0x10000000,
					   .off = get(&in, 2) * 4, .len = WANT, .ipc = "R" };
	addr = desc.host + get8(&in) * 16;
	want = WANT - get8(&in) * 1024;
	for (int i = 0; i < 12 && in.n; i++) {
		uint8_t k = get8(&in);

		switch (k & 15) {
		case 0: desc.magic = get(&in, 8); break;
		case 1: desc.ring_size = get_offset(&in, RING); break;
		case 2: desc.ring_base = get_offset(&in, (uintptr_t)peer_ring); break;
		case 3: desc.host = get_offset(&in, addr); break;
		case 4: desc.off = get_offset(&in, RING); break;
		case 5: desc.len = get_offset(&in, WANT); break;
		case 6: desc.ipc[0] = (uint8_t)"RIWX"[get8(&in) & 3]; break;
		case 7: desc.ring_id = get8(&in) & 63; break;
		case 8: addr = get_offset(&in, desc.host); break;
		case 9: desc.off = get_offset(&in, RING - desc.len); break;
		case 10: addr = get_offset(&in, desc.host + desc.len - WANT); break;
		default: ((uint8_t *)&desc)[get8(&in) % sizeof desc] ^= get8(&in);
		}
	}
	iov[0] = (struct iovec){ to, want / 2 };
	iov[1] = (struct iovec){ to + want / 2, want - want / 2 };
	if (mode & 64)
		iov[0].iov_len = want;
	/* the words of the offer: of a ring that was mapped before, or not, or it is another's */
	if (mode & 128)
		o.desc = get(&in, 8);
	o.ring = desc.ring_id;
	o.at = desc.off + (addr - desc.host);
	if (in.n && get8(&in) & 1) {
		o.ring = get8(&in) & 63;
		o.at = get_offset(&in, RING - want);
	}
	o.addr = addr;
	is_known = !(mode & 1) &&
		   gpu_map_known(getpid(), o.ring, atomic_load(&gpu_context), 0, &known);
	got = 0;
	if (finds(&o, want, &sh, &found))
		got = gpu_take_begin(peer.peer_pid, &o, &found, want, iov, mode & 64 ? 1 : 2,
				      mode & 32, &t);
	took = got > 0;
	if (got > want)
		abort();
	if (got && gpu_take_end(&t, iov, mode & 64 ? 1 : 2))
		abort();
	/* known, but perhaps read anew, for its age */
	if (got && is_known && o.at < RING && got <= RING - o.at &&
	    !memcmp(to, peer_ring + o.at, got))
		got = 0;
	if (got && desc.ipc[0] == 'R' && desc.ring_base == (uintptr_t)peer_ring &&
	    memcmp(to, peer_ring + desc.off + (addr - desc.host), got))
		abort();
	if (took && !gpu_read_over(&t.read, true))
		abort();
	return 0;
}
