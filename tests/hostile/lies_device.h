/*
 * lies_device.h - a peer that lies on the device lane: what it says of its device memory is not
 * there, larger than it is, somebody else's, or not for him to say. The victim is tests/gpu/echo.c
 * on the stand-in driver, whose device memory is a file in memory, and a handle of it names the
 * process and the descriptor (tests/gpu/standin.c). For peer.c only.
 *
 * Each block is 'H' at its address in our memory, and 'D' in the snapshot: what comes back says by
 * which way the victim took it. Nothing may come back that is neither.
 */
#include "../../shim/gpu/gpu_desc.h"

#define RING_BYTES (1 << 20)
struct standin_handle { uint64_t magic; int pid, fd; uint64_t size; char rest[40]; };

static uint8_t host_block[VAULT_LEN];
static struct gpu_desc desc;

/* Device memory of ours, as the stand-in has it: a ring, and what describes it. */
static void device_ring(size_t size)
{
	static uint64_t rings = 0x1000;
	int fd = memfd_create("liar", MFD_CLOEXEC);
	char *p;
	struct standin_handle h = { .magic = 0x5354414e44494e, .pid = getpid(), .fd = fd,
				    .size = size };

	if (fd < 0 || ftruncate(fd, (off_t)size))
		broken("no ring");
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		broken("no ring");
	memset(p, 'D', size);
	memset(host_block, 'H', sizeof host_block);
	desc = (struct gpu_desc){ .magic = GPU_DESC_MAGIC, .ring_id = ++rings, .ring_size = size,
				   .ring_base = (uintptr_t)p, .host = (uintptr_t)host_block,
				   .len = VAULT_LEN };
	memcpy(desc.ipc, &h, sizeof desc.ipc);
}

static struct standin_handle *handle(void) { return (struct standin_handle *)desc.ipc; }

/* How an offer ends for who makes it. */
static uint32_t offer_device(struct peer *h, uint64_t at)
{
	struct ctl_msg m;
	uint32_t st;

	while (hear(h, &m, 0) == 1)	/* bells of threads that wait since a moment ago */
		;
	offers_desc = (uintptr_t)&desc;
	offers_ring = desc.ring_id;
	offers_at = at;
	st = offer(h, host_block, h->tx.sh, VAULT_LEN);
	if (st == RING_TAKEN || st == RING_READING) {
		h->tx.wr += atomic_load(&h->tx.sh->offer_read_n);
		h->tx.rd = h->tx.wr;
		atomic_store(&h->tx.sh->wr, h->tx.wr);
	}
	atomic_store(&h->tx.sh->offer, RING_OFFER_NONE);
	return st;
}

/* What comes back of one block: its letter; 0: nothing, or not all of it. */
static int echoed(struct peer *h)
{
	int64_t end = now_ms() + 3000;
	size_t got = 0;
	int letter = 0;

	while (got < VAULT_LEN && now_ms() < end) {
		uint32_t st = RING_OFFERED;
		uint8_t buf[4096];
		uint64_t n;

		/* its own blocks by the ring, please */
		if (atomic_compare_exchange_strong(&h->rx.sh->offer, &st, RING_DECLINED))
			ring_all(h);
		if (ring_rx_refresh(&h->rx))
			return 0;
		n = ring_rx_avail(&h->rx);
		if (n > sizeof buf)
			n = sizeof buf;
		ring_rx_copy(&h->rx, 0, buf, n);
		for (uint64_t i = 0; i < n; i++) {
			if (got + i && buf[i] != letter)
				broken("two kinds of bytes came back: %c and %c", letter, buf[i]);
			letter = buf[i];
		}
		got += n;
		ring_rx_consume(&h->rx, n);
		if (segment_room_wanted(&h->rx))
			ring_all(h);
		if (!n)
			nap(1);
	}
	return got == VAULT_LEN ? letter : 0;
}

static void must_echo(struct peer *h, const char *what, int letter)
{
	int is = echoed(h);

	if (is != letter)
		broken("%s: '%c' came back, not '%c'", what, is ? is : '-', letter);
}

/* The victim's thread waits in the kernel since before there was a link: another byte wakes it. */
static void get_awake(struct peer *h)
{
	get_bound(h);
	if (send(h->tcp, "x", 1, 0) != 1 || !readable(h->tcp, 3000))
		broken("no echo");
	h->sent++;
	tcp_drain(h, UINT64_MAX);
	peer_path(h);
}

/* A genuine block by the device: or nothing of what follows says anything. The first ones may come
 * before the victim's path is at work, or its thread has told us of its bell. */
static void get_lane(struct peer *h)
{
	uint32_t st = 0;

	get_awake(h);
	device_ring(RING_BYTES);
	for (int tries = 0; tries < 20; tries++) {
		st = offer_device(h, 0);
		if (st == RING_OFFERED)
			continue;
		if (st != RING_TAKEN && st != RING_READING)
			broken("its own block is not taken (%u)", st);
		if (echoed(h) == 'D')
			return;
	}
	broken("no block is taken from the device (%u)", st);
}

static void device_own(void)
{
	struct peer h;

	get_lane(&h);
}

/* The block comes from the host's memory then. */
static void not_from_there(struct peer *h, const char *what, uint64_t at)
{
	uint32_t st = offer_device(h, at);

	if (st != RING_TAKEN)
		broken("%s: the block itself is not taken (%u)", what, st);
	must_echo(h, what, 'H');
}

/* Sizes and places beyond what there is. */
static void device_beyond(void)
{
	struct peer h;

	get_lane(&h);
	not_from_there(&h, "a place beyond, of a ring that is known", RING_BYTES - VAULT_LEN + 1);
	not_from_there(&h, "a place that goes around", UINT64_MAX - 4096);
	for (int i = 0; i < 5; i++) {
		static const char *const what[] = { "a larger ring", "beyond its end",
						    "around its end", "a huge ring",
						    "another size of the handle" };

		device_ring(RING_BYTES);
		switch (i) {
		case 0: desc.ring_size = RING_BYTES + 4096; break;
		case 1: desc.off = RING_BYTES - VAULT_LEN + 1; break;
		case 2: desc.off = UINT64_MAX - VAULT_LEN + 1; break;
		case 3: desc.ring_size = UINT64_MAX; desc.off = 1ull << 40; break;
		default: handle()->size = 4096; break;
		}
		not_from_there(&h, what[i], desc.off);
	}
	device_ring(RING_BYTES);
	desc.len = UINT64_MAX;
	not_from_there(&h, "more than there is", 0);
}

/* Handles that name nothing, or what is not his; a description that is none. */
static void device_handles(void)
{
	static const char *const what[] = { "nothing", "nobody's", "no descriptor", "a socket",
					    "the victim's own", "a place of the victim's",
					    "no description", "of another block" };
	struct peer h;

	get_lane(&h);
	for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
		device_ring(RING_BYTES);
		switch (i) {
		case 0: memset(desc.ipc, 0xff, sizeof desc.ipc); break;
		case 1: handle()->pid = 0x7fffffff; break;
		case 2: handle()->fd = -1; break;
		case 3: handle()->fd = h.tcp; break;
		case 4: handle()->pid = victim; break;
		case 5: handle()->pid = victim; desc.ring_base = 4096; break;
		case 6: desc.magic++; break;
		default: desc.host += VAULT_LEN; break;
		}
		not_from_there(&h, what[i], 0);
	}
}

static int victims_maps(void)
{
	char path[64], line[300];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/maps", victim);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		n += strstr(line, "memfd:liar") != NULL;
	if (f)
		fclose(f);
	return n;
}

/* Ring after ring: of one peer's no more than half of the places are mapped. And one that is gone,
 * whose descriptor is another file by now. */
static void device_rings(void)
{
	int n = victims_maps();
	struct peer h;

	get_lane(&h);
	for (int i = 0; i < 40; i++) {
		device_ring(RING_BYTES);
		offer_device(&h, 0);
		must_echo(&h, "another ring", 'D');
	}
	n = victims_maps() - n;
	if (n > 16)
		broken("%d rings of one peer are mapped", n);
	device_ring(RING_BYTES);
	if (dup2(h.tcp, handle()->fd) < 0)
		broken("dup2");
	not_from_there(&h, "a ring that is gone", 0);
}

/* The words of an offer change while it is being taken, and it is taken twice. */
static void device_twice(void)
{
	struct peer h;
	struct ring_shared *r;

	get_lane(&h);
	r = h.tx.sh;
	offer_device(&h, 0);
	for (int64_t end = now_ms() + 500; now_ms() < end;) {
		atomic_store(&r->offer_dev, (uintptr_t)&desc);
		atomic_store(&r->offer_len, rnd() % 3 ? VAULT_LEN : rnd());
		atomic_store(&r->offer_at, rnd() % 3 ? 0 : rnd());
		atomic_store(&r->offer_ring, rnd() % 3 ? desc.ring_id : rnd());
		atomic_store(&r->offer, rnd() % 4 ? RING_OFFERED : (uint32_t)(rnd() % 8));
		desc.off = rnd() % 3 ? 0 : rnd();
		desc.len = rnd() % 3 ? VAULT_LEN : rnd();
		if (rnd() % 16 == 0)
			ring_all(&h);
	}
}

/* By one of another user who is let in: no device memory of his, and no address of ours. */
static void device_other(void)
{
	struct peer h;
	uint32_t st;

	if (setregid(OTHER_UID, OTHER_UID) || setreuid(OTHER_UID, OTHER_UID))
		broken("another user: %s", strerror(errno));
	prctl(PR_SET_DUMPABLE, 1);
	get_awake(&h);
	device_ring(RING_BYTES);
	st = offer_device(&h, 0);
	if (st != RING_REFUSED)
		broken("device memory of another user's is not refused (%u)", st);
	if (victims_maps())
		broken("device memory of another user's is mapped");
}

/* The description and the block are another program's by now. */
static void device_becomes(void)
{
	pid_t was = getpid();
	struct peer h;
	uint32_t st;

	get_lane(&h);
	if (fork())
		become_vault();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int64_t end = now_ms() + 3000; !is_vault(was);)
		if (now_ms() > end)
			broken("no other program");
	offers_desc = (uintptr_t)VAULT;
	offers_ring = desc.ring_id + 1;
	st = offer(&h, VAULT, LOOKALIKE, VAULT_LEN);
	if (st != RING_REFUSED || leaked(&h, 100))
		broken("another program's description is not refused (%u)", st);
}
