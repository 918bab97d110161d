/*
 * lies_stuck.h - descriptors whose close never returns, or takes a minute: by a stranger who may
 * not even connect, and by a peer who is let in. For peer.c only.
 */
#ifndef LIES_STUCK_H
#define LIES_STUCK_H

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "fuse.h"

#define FILES 64	/* that the victim opens: victim.c */
#define AT_ONCE 100	/* ms: no thread of the victim's may be held up longer */

static int stuck_file(_Atomic int **ret_flushes)
{
	int fd = fuse_file(ret_flushes);

	if (fd < 0)
		not_here("no FUSE file system can be mounted");
	return fd;
}

/* ---- another user ---- */

static void become_other(void)
{
	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		broken("setuid: %s", strerror(errno));
	prctl(PR_SET_DUMPABLE, 1);
}

static void no_peeking(void)
{
	char path[64];
	int n = 0;

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", victim, fd);
		if (open(path, O_RDWR) >= 0)
			n++;
	}
	snprintf(path, sizeof path, "/proc/%d/mem", victim);
	if (n || open(path, O_RDWR) >= 0)
		broken("another user opens the victim's descriptors or memory");
}

/* One attempt of a stranger's. He is shown the door without a word, whatever he brought along. */
static void shown_the_door(struct peer *h, int fd, const char *what)
{
	struct pollfd p = { .events = POLLRDHUP };
	struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0);
	struct since start;
	int ms;

	h->ctl = p.fd = call_victim(h);
	start = since_now(LIBRARY);
	say_raw(h->ctl, &m, sizeof m, &fd, fd >= 0);
	if (poll(&p, 1, 3000) < 1)
		broken("%s: another user is let in", what);
	ms = took_ms(&start);
	if (ms > AT_ONCE)
		late(what, ms);
	if (recv(h->ctl, &m, sizeof m, MSG_DONTWAIT) > 0)
		broken("%s: the victim answered another user", what);
	close(h->ctl);
}

/* A connection that root made, claimed by another user. Root's own claim is what all other
 * scenarios make. */
static void claims_other(void)
{
	struct peer h;
	int keep;

	get_tcp(&h);
	become_other();
	shown_the_door(&h, -1, "a stranger's HELLO");
	for (int i = 0; i < 8; i++) {
		int fd = lingering(&keep);	/* a minute each, if anybody waits for it */
		struct ctl_msg m = record(CTL_HELLO, 0, 0, 0, 0);

		h.ctl = call_victim(&h);
		/* Not even sent, where the kernel can refuse it: then the last one is ours. */
		if (say_raw(h.ctl, &m, sizeof m, &fd, 1))
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 0, 0 },
				   sizeof(struct linger));
		close_apart(fd);
		close(h.ctl);
		shown_the_door(&h, -1, "after a socket that lingers");
	}
	no_peeking();
}

static void stranger_freezes(void)
{
	_Atomic int *flushes;
	struct peer h;
	int fd = stuck_file(&flushes);

	get_tcp(&h);
	become_other();
	for (int i = 0; i < 4; i++)
		shown_the_door(&h, fd, "a stranger's file");
	if (atomic_load(flushes))
		broken("the victim closes a stranger's file");
}

/* His own connection: nobody of the victim's even waits for him. The policy does not name him. */
static void stranger_calls(void)
{
	struct peer h;

	become_other();
	get_tcp(&h);
	if (try_call_victim(&h, 500) >= 0)
		broken("a discovery socket for another user");
}

/* ---- one who is let in ---- */

/* The link is gone, or answers at once. */
static void goes_on_within(struct peer *h, const char *what, int ms)
{
	struct ctl_msg m = record(CTL_BIND, first_slot(h) + 3, 0, 0, 0);
	struct since start = since_now(LIBRARY);
	int r, took;

	m.tuple = h->tuple, m.tuple.pport++;
	if (say(h, m, h->tcp) < 0)
		return;
	while ((r = hear(h, &m, 2000)) == 1 && m.type != CTL_NOT_MINE)
		;
	took = took_ms(&start);
	if (!r)
		broken("%s: the victim's thread waits (%d ms)", what, took);
	if (took > ms)
		late(what, took);
}

static void goes_on(struct peer *h, const char *what) { goes_on_within(h, what, AT_ONCE); }

static void stuck_beside(unsigned type, const char *what)
{
	_Atomic int *flushes;
	struct ctl_msg m;
	struct peer h;
	int fd = stuck_file(&flushes);

	get_path(&h);
	m = record(type, first_slot(&h) + 1, 7, 0, 0);
	m.tuple = h.tuple;
	say(&h, m, fd);
	goes_on(&h, what);
}

static void stuck_bell(void) { stuck_beside(CTL_BELL, "a FUSE file for a bell"); }
static void stuck_bind(void) { stuck_beside(CTL_BIND, "a FUSE file for a connection"); }
static void stuck_cut(void) { stuck_beside(CTL_CUT, "a FUSE file where nothing belongs"); }

static void stuck_welcome(void)
{
	struct ctl_msg m = record(CTL_WELCOME, 0, 0, 0, 0);
	_Atomic int *flushes;
	struct peer h;
	int fd = stuck_file(&flushes);

	get_tcp(&h);
	one_welcome(&h, "a FUSE file for a segment", &m, sizeof m, &fd, 1);
	must_go_on(20);
}

/* So many of the victim's descriptors are of that file. */
static int victim_has(const char *file)
{
	char path[300], to[256];
	struct dirent *e;
	int n = 0;
	ssize_t len;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/fd", victim);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "/proc/%d/fd/%s", victim, e->d_name);
		len = readlink(path, to, sizeof to - 1);
		to[len < 0 ? 0 : len] = 0;
		n += !strcmp(to, file);
	}
	if (d)
		closedir(d);
	return n;
}

static bool victim_comes_to(const char *file, int n)
{
	for (int64_t end = now_ms() + 4000; victim_has(file) != n; nap(5))
		if (now_ms() > end)
			return false;
	return true;
}

static long victim_threads(void) { return victim_status("Threads:"); }

static void pass_where_none_belongs(int fd)
{
	struct peer h;

	get_path(&h);
	say(&h, record(CTL_CUT, first_slot(&h) + 1, 7, 0, 0), fd);
	must_close(&h, "a file where nothing belongs");
}

/* A process whose end lets all go that waits for it: it has passed such a file `times` times, and
 * the victim waits in closing one of them. */
static pid_t holds_up(int times)
{
	_Atomic int *flushes;
	int said[2], st;
	char c;
	pid_t pid;

	if (pipe2(said, O_CLOEXEC) || (pid = fork()) < 0)
		broken("fork");
	if (!pid) {
		int fd;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = stuck_file(&flushes);
		for (int i = 0; i < times; i++)
			pass_where_none_belongs(fd);
		for (int64_t end = now_ms() + 3000; !atomic_load(flushes) && now_ms() < end;)
			nap(1);
		if (!atomic_load(flushes) || write(said[1], "s", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(said[1]);
	if (!readable(said[0], 8000))
		broken("nobody waits");
	if (read(said[0], &c, 1) != 1) {
		waitpid(pid, &st, 0);
		exit(WIFEXITED(st) && WEXITSTATUS(st) == NOT_HERE ? NOT_HERE : 1);
	}
	close(said[0]);
	return pid;
}

/* What waits behind it has a number among the program's, which closes all that it does not know. */
static void stuck_low(void)
{
	char name[] = "/tmp/rdmashim-low.XXXXXX";
	long threads = victim_threads();
	int fd;
	pid_t pid = holds_up(1);

	fd = mkstemp(name);
	if (fd < 0)
		broken("mkstemp");
	unlink(name);
	pass_where_none_belongs(fd);
	kill(victim, SIGUSR1);
	if (!victim_comes_to("/dev/full", FILES))
		broken("the victim opens no files");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int64_t end = now_ms() + 1000; victim_threads() > threads && now_ms() < end;)
		nap(1);
	kill(victim, SIGUSR1);
	if (!victim_comes_to("/dev/full", 0))
		broken("a file of the victim's was closed");
}

/* A child has a copy of what waits. */
static void stuck_fork(void)
{
	pid_t pid = holds_up(2);

	kill(victim, SIGUSR2);
	if (!victim_comes_to("/dev/zero", 1))
		broken("the victim's child waits");
	kill(pid, SIGKILL);
}

/* ---- a block that never comes ---- */

/* Memory whose first touch waits for us. */
static void *never_there(size_t n)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register r = { .range = { (uintptr_t)p, n },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || p == MAP_FAILED ||
	    ioctl(fd, UFFDIO_REGISTER, &r))
		broken("userfaultfd: %s", strerror(errno));
	return p;
}

static void offer_begins(struct peer *h, void *where)
{
	struct ring_shared *r = h->tx.sh;
	int64_t end = now_ms() + 2000;

	atomic_store(&r->offer_dev, 0);
	atomic_store(&r->offer_sh, (uintptr_t)r);
	atomic_store(&r->offer_addr, (uintptr_t)where);
	atomic_store(&r->offer_len, VAULT_LEN);
	atomic_store(&r->offer, RING_OFFERED);
	while (atomic_load(&r->offer) == RING_OFFERED && now_ms() < end) {
		ring_all(h);
		nap(1);
	}
	nap(20);
	if (atomic_load(&r->offer) != RING_TAKING)
		broken("the copy does not begin, or ends (%u)", atomic_load(&r->offer));
}

/* ms: the machine may be busy, and who waits for that copy waits for ever */
#define NEVER 1000

/* Its forks, which the file $FORKS counts, go on for so long without a break. */
static void forks_go_on(const volatile uint64_t *count, int ms)
{
	int64_t end = now_ms() + ms, last = now_ms();
	uint64_t was = *count;

	while (now_ms() < end) {
		nap(1);
		if (*count != was)
			was = *count, last = now_ms();
		if (now_ms() - last > NEVER)
			broken("the victim cannot fork");
	}
}

/* For hostile/waits: the victim reads by a thread for each connection, of which ours is held up. */
static void never_comes(void)
{
	int fd = getenv("FORKS") ? open(getenv("FORKS"), O_RDWR | O_CLOEXEC) : -1;
	volatile uint64_t *count = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct peer h;

	if (fd < 0 || count == MAP_FAILED)
		broken("nothing in $FORKS");
	get_path(&h);
	offer_begins(&h, never_there(VAULT_LEN));
	if (getenv("HOLD")) {
		printf("held up\n");
		fflush(stdout);
		pause();
	}
	*count |= 1ull << 63;
	forks_go_on(count, NEVER + 500);
	goes_on_within(&h, "with a block that does not come", NEVER);
	say_cut(&h, CUT_MSG_FROZEN, h.tx_epoch, h.sent);	/* of that very stream */
	goes_on_within(&h, "when that stream falls back", NEVER);
	forks_go_on(count, NEVER + 500);
}

/* What another user, whom the policy names, offers of his memory is not read, nor does he see
 * where ours is. */
static void other_offers(void)
{
	static uint8_t block[VAULT_LEN];
	struct peer h;
	uint32_t st;

	become_other();
	memset(block, 'S', sizeof block);
	get_path(&h);
	st = offer(&h, block, h.tx.sh, sizeof block);
	if (st != RING_REFUSED)
		broken("another user's memory is read (%u)", st);
	for (int i = 0; i < 64; i++) {
		put(&h, block, 16384);
		take(&h);
		nap(1);
		if (atomic_load(&h.rx.sh->offer_addr))
			broken("the victim shows another user where its memory is");
	}
}

/* So many links, with all the bells that one can have, as one user gets. Returns how many. */
static int crowd_in(void)
{
	static struct peer h[300];
	struct ctl_msg m;
	uint32_t slot;
	int n = 0;

	for (; n < 300; n++) {
		peer_call(&h[n], port);
		h[n].ctl = try_call_victim(&h[n], 100);
		if (h[n].ctl < 0 || !ask_in(&h[n], 500))
			break;
		slot = first_slot(&h[n]);
		segment_unmap(&h[n].a);
		say_bind(&h[n], slot, h[n].tcp);
		if (!hear_type(&h[n], CTL_BOUND, &m, 500))
			break;
		for (unsigned b = 0; b < BELL_MAX; b++) {
			int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

			say(&h[n], record(CTL_BELL, 0, b, 0, 0), fd);
			close(fd);
		}
	}
	return n;
}

/* One user whom the policy names has all that he can get. Another one is let in all the same. */
static void crowds(void)
{
	struct peer h;
	int said[2], n;

	if (pipe2(said, O_CLOEXEC))
		broken("pipe");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		become_other();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		n = crowd_in();
		if (write(said[1], &n, sizeof n) != sizeof n)
			_exit(1);
		for (;;)
			pause();
	}
	close(said[1]);
	if (read(said[0], &n, sizeof n) != sizeof n || n < 2)
		broken("the other user gets no links");
	get_path(&h);
}

static void await_file(const char *name)
{
	const char *at = getenv("REMOVED");
	char path[200];

	snprintf(path, sizeof path, "%s.%s", at ? at : "", name);
	for (int i = 0; access(path, F_OK); i++) {
		if (i > 1000)
			broken("no %s", path);
		nap(10);
	}
}

/* removed.sh: one whom the policy names no more, and who never releases the fast path. */
static void removed(void)
{
	const char *at = getenv("REMOVED");
	struct ctl_msg m;
	char path[200];
	struct peer h;
	int r;

	become_other();
	get_bound(&h);
	for (int i = 0; !h.rx_on && i < 200; i++)
		answer(&h, 20);
	h.sent += send(h.tcp, "y", 1, 0) == 1;	/* the thread that reads was inside the kernel's
						 * call */
	peer_path(&h);
	snprintf(path, sizeof path, "%s.ready", at ? at : "");
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	await_file("out");
	while (hear(&h, &m, 0) == 1)
		;
	for (int i = 0; i < BELL_MAX; i++)
		h.bell[i] = -1;
	say_bind(&h, h.slot + 1, h.tcp);
	await_file("checked");
	while ((r = hear(&h, &m, 300)) == 1)
		if (m.type == CTL_BOUND || m.type == CTL_BIND || h.got_fd >= 0)
			broken("a descriptor is passed to him");
	for (int i = 0; i < BELL_MAX; i++)
		if (h.bell[i] >= 0)
			broken("bell %d is passed to him", i);
}

#endif
