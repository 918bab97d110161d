/*
 * lies_memory.h - a peer that has the victim read memory which is not its own: it links, forks,
 * and becomes another program, while the child goes on with the link and offers what that
 * program has. For peer.c only.
 */
#define VAULT    ((uint8_t *)0x10000000)	/* of the other program */
#define VAULT_LEN (256 * 1024)
/* where it has something like our shared memory */
#define LOOKALIKE ((struct ring_shared *)0x18000000)

/* The other program: it has a secret, and never heard of the link. */
static int vault(void)
{
	void *p = mmap(VAULT, VAULT_LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	const char *shared = getenv("VAULT_SHARED");	/* a file that the vault maps, as a
							 * program maps one of its caller's */
	int fd = shared ? open(shared, O_RDONLY) : -1;
	void *q = mmap(LOOKALIKE, 4096, fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ,
		       (fd < 0 ? MAP_ANONYMOUS : 0) | MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);

	if (p != VAULT || q != (void *)LOOKALIKE)
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	memset(p, 'S', VAULT_LEN);
	if (getenv("VAULT_HIDES"))
		prctl(PR_SET_DUMPABLE, 0);
	if (getenv("VAULT_TELLS") && write(atoi(getenv("VAULT_TELLS")), "", 1) != 1)
		return 1;
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

/* Device memory that an offer names beside the block: lies_device.h. */
static uint64_t offers_desc, offers_ring, offers_at;

/* Offers n bytes at an address of its process, as shim/conn/stream_direct.c does. What became of
 * it. */
static uint32_t offer(struct peer *h, const void *where, const void *sh, size_t n)
{
	struct ring_shared *r = h->tx.sh;
	int64_t end = now_ms() + 300;

	ring_tx_refresh(&h->tx);
	atomic_store(&r->offer_dev, offers_desc);
	atomic_store(&r->offer_ring, offers_ring);
	atomic_store(&r->offer_at, offers_at);
	atomic_store(&r->offer_sh, (uintptr_t)sh);
	atomic_store(&r->offer_addr, (uintptr_t)where);
	atomic_store(&r->offer_len, n);
	atomic_store(&r->offer, RING_OFFERED);
	while (now_ms() < end &&
	       (atomic_load(&r->offer) == RING_OFFERED || atomic_load(&r->offer) == RING_TAKING)) {
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
		if (segment_room_wanted(&h->rx))
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
	/* Not a second one, be it as true as it may: an answer to each would tell which
	 * addresses there are. */
	st = offer(&h, VAULT, sh ? sh : h.tx.sh, VAULT_LEN);
	if (st != RING_REFUSED)
		broken("the second offer is not refused (%u)", st);
}

/* There is nothing at the address of our shared memory. */
static void becomes_another(void) { offers_after_exec(NULL); }

/* There is, but not what the victim wrote there. */
static void becomes_lookalike(void) { offers_after_exec(LOOKALIKE); }

/* A block of its own is taken. */
static void own_is_taken(struct peer *h, uint8_t block[VAULT_LEN])
{
	uint32_t st;

	memset(block, 'S', VAULT_LEN);
	get_path(h);
	st = offer(h, block, h->tx.sh, VAULT_LEN);
	if (st != RING_TAKEN)
		broken("its own memory is not taken (%u)", st);
}

/* What it offers is its own: that is taken, or the scenarios above say nothing. */
static void offers_own(void)
{
	static uint8_t block[VAULT_LEN];
	struct peer h;

	own_is_taken(&h, block);
}

/* ---- a word that is handed on ---- The other program maps a file of ours, as many map one of
 * their caller's, and a child hands the victim's word on to there as soon as it sees it: then
 * the word is right in memory that is not the peer's.
 */
#define RELAY_TRIES 40
struct relay { struct ring_shared sh; _Atomic bool won, taken, refused; };

static void hands_on(struct relay *to, const struct ring_shared *from)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		atomic_store(&to->sh.read_word, atomic_load(&from->read_word));
}

static void __attribute__((noreturn)) become_vault(void)
{
	execl("/proc/self/exe", "peer", "vault", NULL);
	_exit(1);
}

/* The vault says that it is one: we may have no right to look. */
static int vault_tells[2];

static void expect_vault(void)
{
	char text[16];

	if (pipe(vault_tells))
		broken("pipe: %s", strerror(errno));
	snprintf(text, sizeof text, "%d", vault_tells[1]);
	setenv("VAULT_TELLS", text, 1);
}

static bool vault_is_there(void)
{
	char c;

	return readable(vault_tells[0], 3000) && read(vault_tells[0], &c, 1) == 1;
}

/* In the child that has the link. */
static void __attribute__((noreturn)) relays(struct peer *h, pid_t was, struct relay *page)
{
	pid_t helper;
	uint32_t st;

	if (!vault_is_there() || (getenv("VAULT_HIDES") && is_vault(was)))
		_exit(1);
	helper = fork();
	if (!helper)
		hands_on(page, h->tx.sh);
	nap(3);
	st = offer(h, VAULT, LOOKALIKE, VAULT_LEN);
	if (st == RING_TAKEN && leaked(h, 1000))
		atomic_store(&page->won, true);
	atomic_store(&page->taken, st == RING_TAKEN);
	atomic_store(&page->refused, st == RING_REFUSED);
	kill(helper, SIGKILL);
	_exit(0);
}

static void relay_often(void (*once)(struct relay *))
{
	char name[] = "/tmp/relayXXXXXX";
	int fd = mkstemp(name), tries;
	struct relay *page;

	if (fd < 0 || ftruncate(fd, 4096))
		broken("no file");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	setenv("VAULT_SHARED", name, 1);
	for (tries = 1; tries <= RELAY_TRIES && !atomic_load(&page->won); tries++) {
		atomic_store(&page->refused, false);
		once(page);
	}
	unlink(name);
	if (atomic_load(&page->won))
		broken("the victim read another program's memory, try %d", tries - 1);
	if (!atomic_load(&page->refused))
		broken("the last offer was not refused%s",
		       atomic_load(&page->taken) ? ", but taken" : "");
}

/* ---- ... by one who has fewer rights than the victim, as root has in a container, and may not
 * read that program himself */

static void fewer_rights(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		broken("capget: %s", strerror(errno));
	if (prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE))
		broken("bounding set: %s", strerror(errno));
	d[0].permitted &= ~(1u << CAP_SYS_PTRACE);
	d[0].effective &= d[0].permitted;
	if (syscall(SYS_capset, &h, d))
		broken("capset: %s", strerror(errno));
}

static void relay_by_exec(struct relay *page)
{
	struct peer h;
	pid_t p = fork(), keeper;
	int st;

	if (p) {
		waitpid(p, &st, 0);
		return;
	}
	fewer_rights();
	get_path(&h);
	expect_vault();
	keeper = fork();
	if (!keeper) {
		pid_t was = getppid();

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p = fork();
		if (!p)
			relays(&h, was, page);
		waitpid(p, &st, 0);
		kill(was, SIGKILL);
		_exit(0);
	}
	become_vault();
}

static void becomes_relay(void)
{
	setenv("VAULT_HIDES", "1", 1);
	relay_often(relay_by_exec);
}

/* The same by one who gives them up only when he is linked, as a server's worker does. */
static void gives_rights_up(void)
{
	static uint8_t block[VAULT_LEN];
	struct peer h;
	uint32_t st;

	own_is_taken(&h, block);
	fewer_rights();
	nap(150);		/* so often is it looked at */
	take(&h);
	st = offer(&h, block, h.tx.sh, sizeof block);
	if (st != RING_REFUSED)
		broken("it has fewer rights, and is not refused (%u)", st);
}

/* ---- ... or whose number another process has by now */

static void relay_by_number(struct relay *page)
{
	struct clone_args how = { .exit_signal = SIGCHLD, .set_tid_size = 1 };
	pid_t set[1], next;
	struct peer h;
	int st;

	expect_vault();
	set[0] = fork();
	if (!set[0]) {
		get_path(&h);
		if (!fork())
			relays(&h, 0, page);
		_exit(0);
	}
	waitpid(set[0], &st, 0);
	how.set_tid = (uintptr_t)set;
	next = (pid_t)syscall(SYS_clone3, &how, sizeof how);
	if (!next)
		become_vault();
	if (next != set[0])
		broken("clone3: %s", strerror(errno));
	for (int64_t end = now_ms() + 5000;
	     !atomic_load(&page->refused) && !atomic_load(&page->won) && now_ms() < end;)
		nap(10);
	kill(next, SIGKILL);
	waitpid(next, &st, 0);
	close(vault_tells[0]);
	close(vault_tells[1]);
}

static void number_taken(void) { relay_often(relay_by_number); }
