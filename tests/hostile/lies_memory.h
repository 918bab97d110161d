/*
 * lies_memory.h - a peer that has the victim read memory which is not its own: it links, forks, and becomes another
 * program, while the child goes on with the link and offers what that program has. For peer.c only.
 */
#define VAULT    ((uint8_t *)0x10000000)	/* of the other program */
#define VAULT_LEN (256 * 1024)
#define LOOKALIKE ((struct ring_shared *)0x18000000)	/* where it has something like our shared memory */

/* The other program: it has a secret, and never heard of the link. */
static int vault(void)
{
	void *p = mmap(VAULT, VAULT_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	const char *shared = getenv("VAULT_SHARED");	/* a file that the vault maps, as a program maps one of its caller's */
	int fd = shared ? open(shared, O_RDONLY) : -1;
	void *q = mmap(LOOKALIKE, 4096, fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ, (fd < 0 ? MAP_ANONYMOUS : 0) | MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);

	if (p != VAULT || q != (void *)LOOKALIKE)
		return 1;
	memset(p, 'S', VAULT_LEN);
	for (;;)
		pause();
}

/* Has the process been replaced? Its memory says so. */
static bool is_vault(pid_t pid)
{
	char c = 0;
	struct iovec to = { &c, 1 }, from = { VAULT, 1 };

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == 1 && c == 'S';
}

/* Offers n bytes at an address of its process, as shim/stream_direct.c does. What became of it. */
static uint32_t offer(struct peer *h, const void *where, const void *sh, size_t n)
{
	struct ring_shared *r = h->tx.sh;
	int64_t end = now_ms() + 300;

	ring_tx_refresh(&h->tx);
	atomic_store(&r->offer_dev, 0);
	atomic_store(&r->offer_sh, (uintptr_t)sh);
	atomic_store(&r->offer_addr, (uintptr_t)where);
	atomic_store(&r->offer_len, n);
	atomic_store(&r->offer, RING_OFFERED);
	while (now_ms() < end && (atomic_load(&r->offer) == RING_OFFERED || atomic_load(&r->offer) == RING_TAKING)) {
		ring_all(h);
		nap(1);
	}
	return atomic_load(&r->offer);
}

/* The bytes that come back by the ring: is one of them the secret's? */
static bool leaked(struct peer *h, int ms)
{
	int64_t end = now_ms() + ms;
	bool any = false;

	while (now_ms() < end && !any) {
		uint64_t n;
		uint8_t buf[4096];

		if (ring_rx_refresh(&h->rx))
			break;
		n = ring_rx_avail(&h->rx);
		if (n > sizeof buf)
			n = sizeof buf;
		ring_rx_copy(&h->rx, 0, buf, n);
		any = memchr(buf, 'S', n);
		ring_rx_consume(&h->rx, n);
		if (arena_room_wanted(&h->rx))
			ring_all(h);
		nap(1);
	}
	return any;
}

static void offers_after_exec(const void *sh)
{
	struct peer h;
	pid_t was = getpid(), pid;
	int64_t end = now_ms() + 3000;
	uint32_t st;

	get_path(&h);
	pid = fork();
	if (pid) {
		execl("/proc/self/exe", "peer", "vault", NULL);
		_exit(1);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!is_vault(was))
		if (now_ms() > end)
			broken("no other program");
	st = offer(&h, VAULT, sh ? sh : h.tx.sh, VAULT_LEN);
	if (st == RING_TAKEN || leaked(&h, 100))
		broken("the victim read another program's memory (offer %u)", st);
	if (st != RING_REFUSED)
		broken("the offer is not refused (%u)", st);
	/* Not a second one, be it as true as it may: an answer to each would tell which addresses there are. */
	st = offer(&h, VAULT, sh ? sh : h.tx.sh, VAULT_LEN);
	if (st != RING_REFUSED)
		broken("the second offer is not refused (%u)", st);
}

/* There is nothing at the address of our shared memory. */
static void becomes_another(void) { offers_after_exec(NULL); }

/* There is, but not what the victim wrote there. */
static void becomes_lookalike(void) { offers_after_exec(LOOKALIKE); }

/* What it offers is its own: that is taken, or the scenarios above say nothing. */
static void offers_own(void)
{
	static uint8_t block[VAULT_LEN];
	struct peer h;
	uint32_t st;

	memset(block, 'S', sizeof block);
	get_path(&h);
	st = offer(&h, block, h.tx.sh, sizeof block);
	if (st != RING_TAKEN)
		broken("its own memory is not taken (%u)", st);
}

/*
 * The other program maps a file of ours, as many map one of their caller's, and the child hands the victim's word on to
 * there as soon as it sees it: then the word is right in memory that is not the peer's. Only if asked for: not stopped,
 * see docs/security.md, "Between processes of one user".
 */
#define RELAY_TRIES 300
struct relay { struct ring_shared sh; _Atomic bool won; };

static void hands_on(struct relay *to, const struct ring_shared *from)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		atomic_store(&to->sh.read_word, atomic_load(&from->read_word));
}

/* The parent becomes the vault. Ends both. */
static void relay_once(struct relay *page)
{
	struct peer h;
	pid_t was = getpid(), helper;
	int64_t end = now_ms() + 3000;

	get_path(&h);
	if (fork()) {
		execl("/proc/self/exe", "peer", "vault", NULL);
		_exit(1);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!is_vault(was))
		if (now_ms() > end)
			_exit(1);
	helper = fork();
	if (!helper)
		hands_on(page, h.tx.sh);
	nap(3);
	if (offer(&h, VAULT, LOOKALIKE, VAULT_LEN) == RING_TAKEN && leaked(&h, 1000))
		atomic_store(&page->won, true);
	kill(helper, SIGKILL);
	kill(was, SIGKILL);
	_exit(0);
}

static void becomes_relay(void)
{
	char name[] = "/tmp/relayXXXXXX";
	int fd = mkstemp(name), tries;
	struct relay *page;
	pid_t p;

	if (fd < 0 || ftruncate(fd, 4096))
		broken("no file");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	setenv("VAULT_SHARED", name, 1);
	for (tries = 1; tries <= RELAY_TRIES && !atomic_load(&page->won); tries++) {
		p = fork();
		if (!p)
			relay_once(page);
		waitpid(p, NULL, 0);
	}
	unlink(name);
	if (atomic_load(&page->won))
		broken("the victim read another program's memory, try %d", tries - 1);
}
