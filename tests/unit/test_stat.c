/*
 * test_stat.c - counter files: the writer (rows by many threads, fork, no room, unsafe
 * directories) and rdmastat's reader (truncated, garbled, foreign and vanishing files).
 *
 * Every test runs in a process of its own (Check forks), with its own $RDMASHIM_STAT_DIR.
 *
 * LINK: tools/rdmastat/ground/statfile.c tools/rdmastat/ground/statfile_list.c
 * LINK: tools/rdmastat/ground/statfile_dir.c tools/rdmastat/ground/statfile_mounts.c
 * LINK: tools/rdmastat/ground/statfile_user.c
 * TIMEOUT: 180
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../policy/procstat.h"
#include "../../policy/stat.h"
#include "ground/statfile.h"

#define FILE_SIZE (sizeof(struct stat_header) + STAT_ROWS * (sizeof(struct stat_row) + \
	sizeof(struct stat_history)) + sizeof(struct stat_calls) + \
		   STAT_SITES * sizeof(struct stat_call_site) + sizeof(struct stat_move_calls) + \
			   STAT_ROWS * sizeof(struct stat_moves) + sizeof(struct stat_links))

static char dir[64], file[96];
static int dirfd_;

static void setup(void)
{
	strcpy(dir, "/tmp/rdmashim-stat-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("RDMASHIM_STAT_DIR", dir, 1);
	snprintf(file, sizeof(file), "%s/%d", dir, (int)getpid());
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dirfd_, 0);
}

static void teardown(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static const char *own_name(void)
{
	static char name[16];

	snprintf(name, sizeof(name), "%d", (int)getpid());
	return name;
}

static struct stat_row *live_row(uint32_t fd)
{
	struct stat_row *r = stat_row_alloc();

	r->fd = fd;
	r->family = AF_INET;
	r->lport = 1;
	r->rx_bytes[PATH_RDMA] = fd;	/* far from fd, so that a row mixed of two connections
					 * shows */
	r->pport = 2;
	stat_row_publish(r);
	return r;
}

static size_t read_self(struct stat_proc *p)
{
	int rc = statfile_read(dirfd_, own_name(), geteuid(), p);

	ck_assert_msg(rc == 0, "reading our own file: %d", rc);
	return p->nconns;
}

/* ---- writer ---- */

START_TEST(test_round_trip)
{
	struct stat_proc p;
	struct stat_row *r;
	struct stat st;

	stat_add(STAT_conns, 3);		/* before there is a file: must not be lost */
	ck_assert_int_eq(stat_open("prog\033[2J", "/etc/x.conf"), 0);
	ck_assert_int_eq(stat(file, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	stat_add(STAT_conns, 2);
	stat_self()->mode = STAT_MODE_ON;
	r = live_row(7);
	inet_pton(AF_INET, "127.0.0.1", r->laddr);
	r->tx_bytes[PATH_SHM] = 100;
	r->rx_bytes[PATH_TCP] = 5;
	r->tx_path = PATH_SHM;
	r->role = ROLE_SERVER;
	stat_row_alloc();			/* being written: not shown */
	ck_assert_uint_eq(read_self(&p), 1);
	ck_assert_str_eq(p.program, "prog?[2J");
	ck_assert_str_eq(p.policy_file, "/etc/x.conf");
	ck_assert_uint_eq(p.counter[STAT_conns], 5);
	ck_assert_uint_eq(p.pid, (unsigned)getpid());
	ck_assert(p.mode == STAT_MODE_ON && !stat_proc_gone(&p));
	ck_assert_uint_eq(p.conns[0].fd, 7);
	ck_assert_int_eq(p.conns[0].tx_path, PATH_SHM);
	ck_assert_int_eq(p.conns[0].role, ROLE_SERVER);
	ck_assert_uint_eq(p.tx_bytes[PATH_SHM], 100);
	ck_assert_uint_eq(p.rx_bytes[PATH_TCP], 5);
	stat_proc_clear(&p);
	/* closed: out of the list, its bytes stay in the sums */
	stat_row_free(r);
	ck_assert_uint_eq(read_self(&p), 0);
	ck_assert_uint_eq(p.tx_bytes[PATH_SHM], 100);
	ck_assert_uint_eq(p.rx_bytes[PATH_TCP], 5);
	stat_proc_clear(&p);
	/* freed twice by mistake: two later connections must not share it */
	stat_row_free(r);
	ck_assert_ptr_ne(stat_row_alloc(), stat_row_alloc());
}
END_TEST

/* What a row has beside bytes: counted once, and the next connection begins with none. */
START_TEST(test_ring_counts)
{
	struct stat_proc p;
	struct stat_row *r, *again;

	stat_link_error(REASON_WRONG_KEY);	/* before there is a file */
	ck_assert_int_eq(stat_open("prog", ""), 0);
	stat_link_error(REASON_WRONG_KEY);
	stat_link_error(REASON_COUNT);		/* there is none such */
	r = live_row(7);
	r->fulls = 5;
	r->overflows = 2;
	r->ring = 65536;
	r->link = 3;
	r->tx_base = 11;
	r->rx_base = 12;
	ck_assert_uint_eq(read_self(&p), 1);
	ck_assert_uint_eq(p.link_errors[REASON_WRONG_KEY], 2);
	ck_assert_uint_eq(p.counter[STAT_ring_full], 5);
	ck_assert_uint_eq(p.conns[0].fulls, 5);
	ck_assert_uint_eq(p.conns[0].overflows, 2);
	ck_assert_uint_eq(p.conns[0].ring, 65536);
	ck_assert_uint_eq(p.conns[0].link, 3);
	ck_assert_uint_eq(p.conns[0].tx_base, 11);
	ck_assert_uint_eq(p.conns[0].rx_base, 12);
	stat_proc_clear(&p);
	stat_row_free(r);
	again = live_row(8);
	ck_assert_ptr_eq(again, r);
	ck_assert_uint_eq(read_self(&p), 1);
	ck_assert_uint_eq(p.counter[STAT_ring_full], 5);
	ck_assert(!p.conns[0].fulls && !p.conns[0].overflows && !p.conns[0].ring &&
		  !p.conns[0].link && !p.conns[0].tx_base && !p.conns[0].rx_base);
	stat_proc_clear(&p);
}
END_TEST

START_TEST(test_rows_are_reused)
{
	struct stat_row *r = NULL, *first, *dummy;
	uint32_t gen;
	int i;

	dummy = stat_row_alloc();		/* before stat_open */
	ck_assert_ptr_nonnull(dummy);
	dummy->tx_bytes[PATH_TCP] = 9;
	ck_assert_int_eq(stat_open("p", ""), 0);
	stat_row_free(dummy);
	ck_assert_uint_eq(stat_self()->bytes_tx[PATH_TCP], 9);

	first = live_row(1);
	gen = first->gen;
	first->rx_bytes[PATH_SHM] = 5;
	for (i = 0; i < 1000; i++) {
		stat_row_free(first);
		r = live_row(1);
		ck_assert_ptr_eq(r, first);
	}
	ck_assert_uint_eq(r->gen, gen + 1000);
	ck_assert_uint_eq(r->rx_bytes[PATH_SHM], 0);
	ck_assert_uint_eq(stat_self()->rows_used, 1);
	ck_assert_uint_eq(stat_self()->bytes_rx[PATH_SHM], 5);
	for (i = 1; i < STAT_ROWS; i++)
		ck_assert_ptr_ne(live_row(1), dummy);
	ck_assert_uint_eq(stat_self()->rows_used, STAT_ROWS);
	ck_assert_ptr_eq(stat_row_alloc(), dummy);	/* full */
	stat_row_free(r);
	ck_assert_ptr_eq(stat_row_alloc(), r);
}
END_TEST

START_TEST(test_reasons)
{
	struct stat_header *h;
	struct stat_row *r;

	ck_assert_int_eq(stat_open("p", ""), 0);
	h = stat_self();
	r = live_row(1);
	stat_row_reason(r, REASON_NOT_EARNED);
	stat_row_reason(r, REASON_NOT_EARNED);
	ck_assert_uint_eq(h->reasons[REASON_NOT_EARNED], 1);
	stat_row_reason(r, REASON_POLICY);
	ck_assert_uint_eq(h->reasons[REASON_NOT_EARNED], 0);
	ck_assert_uint_eq(h->reasons[REASON_POLICY], 1);
	stat_row_free(r);
	r = live_row(1);			/* another connection, same reason */
	stat_row_reason(r, REASON_POLICY);
	ck_assert_uint_eq(h->reasons[REASON_POLICY], 2);
	stat_row_reason(r, REASON_NONE);
	ck_assert_uint_eq(h->reasons[REASON_POLICY], 1);
	ck_assert_uint_eq(h->reasons[REASON_NONE], 0);
	stat_row_reason(r, (enum reason)200);
	ck_assert_uint_eq(r->reason, REASON_NONE);
	ck_assert_str_eq(reason_name(REASON_BYPASS), "bypass");
	ck_assert_str_eq(reason_name(REASON_COUNT), "?");
	ck_assert_str_eq(reason_remedy(~0u), "?");
}
END_TEST

enum { THREADS = 8, ROUNDS = 50000, HELD = 12, PER_ROUND = 4 };
static _Atomic int doubly;

static void done(struct stat_row *r, uint32_t me)
{
	if (r->fd != me)
		doubly++;
	r->tx_bytes[PATH_SHM] = 1;
	stat_row_free(r);
}

/*
 * Marks each row it gets with its own number: a row given to two threads at once shows. Rows go
 * back oldest first while younger ones are held: a thread that was stopped between reading the
 * free list's top A (next B) and exchanging it then finds A on top again, but B in use.
 */
static void *churn(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg + 1;
	struct stat_row *held[HELD], *a, *b, *c;
	int i;

	for (i = 0; i < HELD; i++)
		held[i] = live_row(me);
	for (i = 0; i < ROUNDS; i++) {
		a = live_row(me);
		b = live_row(me);
		done(a, me);
		c = live_row(me);
		done(b, me);
		done(c, me);
		done(held[i % HELD], me);
		held[i % HELD] = live_row(me);
	}
	for (i = 0; i < HELD; i++)
		done(held[i], me);
	return NULL;
}

/* Meanwhile: whatever it reads must be sane, though no two reads agree. */
static void *watch(void *stop)
{
	struct stat_proc p;
	size_t i;

	while (!*(_Atomic int *)stop) {
		if (statfile_read(dirfd_, own_name(), geteuid(), &p)) {
			doubly++;
			break;
		}
		for (i = 0; i < p.nconns; i++)
			if (!p.conns[i].fd || p.conns[i].fd > THREADS ||
			    p.conns[i].rx_bytes[PATH_RDMA] != p.conns[i].fd)
				doubly++;
		stat_proc_clear(&p);
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t t[THREADS], w;
	_Atomic int stop = 0;
	int i;

	ck_assert_int_eq(stat_open("p", ""), 0);
	pthread_create(&w, NULL, watch, &stop);
	for (i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)i);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	stop = 1;
	pthread_join(w, NULL);
	ck_assert_int_eq(doubly, 0);
	ck_assert_uint_eq(stat_self()->bytes_tx[PATH_SHM],
			  (uint64_t)THREADS * (PER_ROUND * ROUNDS + HELD));
	ck_assert_uint_le(stat_self()->rows_used, THREADS * (HELD + 2));
}
END_TEST

/*
 * A signal handler takes rows while the code that it interrupted is taking one. In particular:
 * top A (next B) was read, the handler takes A and B and gives A back, A is on top again, but B
 * is in use.
 */
static struct stat_row *handler_holds;
static _Atomic int signals;
static _Atomic int rounds;
enum { SIGNALS = 6000 };

static void on_signal(int sig)
{
	struct stat_row *a, *b;

	(void)sig;
	a = live_row(2);
	b = live_row(2);
	if (handler_holds)
		done(handler_holds, 2);
	done(a, 2);		/* last, so that it is on top again */
	handler_holds = b;
	signals++;
}

static void *pester(void *main_thread)
{
	unsigned seed = 1;
	int seen = 0, at, k;

	while (seen < SIGNALS) {
		/* let the code run for a while between signals, or each comes at the same
		 * instruction */
		for (at = rounds; rounds < at + 2;)
			sched_yield();
		for (k = rand_r(&seed) % 256; k; k--)
			__asm__ volatile("");
		pthread_kill(*(pthread_t *)main_thread, SIGUSR1);
		while (signals == seen)
			sched_yield();
		seen++;
	}
	return NULL;
}

START_TEST(test_signals)
{
	pthread_t self = pthread_self(), t;
	struct stat_row *r[8];
	int i;

	ck_assert_int_eq(stat_open("p", ""), 0);
	for (i = 0; i < 8; i++)
		r[i] = live_row(1);
	for (i = 0; i < 8; i++)
		stat_row_free(r[i]);
	signal(SIGUSR1, on_signal);
	pthread_create(&t, NULL, pester, &self);
	for (; signals < SIGNALS; rounds++) {
		r[0] = live_row(1);
		r[1] = live_row(1);
		done(r[0], 1);
		done(r[1], 1);
	}
	pthread_join(t, NULL);
	ck_assert_int_eq(doubly, 0);
	ck_assert_uint_le(stat_self()->rows_used, 8);
}
END_TEST

START_TEST(test_fork)
{
	struct stat_row *r;
	struct stat_proc p;
	int st;
	pid_t pid;

	ck_assert_int_eq(stat_open("p", ""), 0);
	r = live_row(1);
	r->tx_bytes[PATH_SHM] = 10;
	stat_add(STAT_cuts, 1);
	stat_row_reason(r, REASON_OVERFLOW);
	pid = fork();
	if (!pid) {
		stat_after_fork();
		if (r->tx_bytes[PATH_SHM])
			_exit(1);		/* readable, and not the parent's */
		r->tx_bytes[PATH_SHM] = 1000;	/* private */
		stat_add(STAT_cuts, 100);
		if (stat_open("child", ""))
			_exit(2);
		stat_row_reason(r, REASON_POLICY);	/* old row: nothing to take back in the
							 * new file */
		stat_row_free(r);
		if (stat_self()->reasons[REASON_OVERFLOW] || stat_self()->bytes_tx[PATH_SHM])
			_exit(3);
		if (stat_self()->counter[STAT_cuts] != 100 || stat_self()->rows_used)
			_exit(4);
		if (live_row(2) == r || stat_self()->rows_used != 1)
			_exit(5);
		if (read_self(&p) != 1 || strcmp(p.program, "child"))
			_exit(6);
		_exit(0);
	}
	waitpid(pid, &st, 0);
	ck_assert_msg(WIFEXITED(st) && WEXITSTATUS(st) == 0, "child: %x", st);
	ck_assert_uint_eq(read_self(&p), 1);
	ck_assert_uint_eq(p.tx_bytes[PATH_SHM], 10);
	ck_assert_uint_eq(p.counter[STAT_cuts], 1);
	stat_proc_clear(&p);
}
END_TEST

/* In each case the counters go on in memory that nobody reads. */
START_TEST(test_no_file)
{
	struct stat st;
	char bad[128];

	switch (_i) {
	case 0: ck_assert_int_eq(chmod(dir, 0755), 0); break;			/* open to others */
	case 1: setenv("RDMASHIM_STAT_DIR", "/proc/nowhere/x", 1); break;
	case 2:
		/* a link where the directory should be */
		snprintf(bad, sizeof(bad), "%s/link", dir);
		ck_assert_int_eq(symlink(dir, bad), 0);
		setenv("RDMASHIM_STAT_DIR", bad, 1);
		break;
	case 3:
		/* of another user */
		if (geteuid() == 0)
			ck_assert_int_eq(chown(dir, 12345, 0), 0);
		else
			setenv("RDMASHIM_STAT_DIR", "/", 1);
		break;
	}
	errno = 77;
	ck_assert_int_lt(stat_open("p", ""), 0);
	ck_assert_int_eq(errno, 77);
	ck_assert_int_lt(stat(file, &st), 0);
	stat_add(STAT_conns, 1);
	ck_assert_uint_eq(stat_self()->counter[STAT_conns], 1);
	live_row(3)->tx_bytes[0] = 1;
	ck_assert_uint_eq(stat_self()->rows_used, 1);
	chmod(dir, 0700);
}
END_TEST

/* A counter directory on a file system with room for the header but not for all rows: no SIGBUS. */
START_TEST(test_no_room)
{
	struct stat_row *r = NULL;
	char cmd[160], over[96];
	int i;

	snprintf(cmd, sizeof(cmd), "mount -t tmpfs -o size=64k,mode=700 none %s 2>/dev/null", dir);
	/* in a mount namespace of our own, so that nothing is left behind whatever happens */
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    system(cmd)) {
		fprintf(stderr,
			"test_no_room: no tmpfs may be mounted here, only the other cases ran\n");
		return;
	}
	ck_assert_int_eq(stat_open("p", ""), 0);
	for (i = 0; i < STAT_ROWS; i++) {
		r = live_row(1);
		r->tx_bytes[PATH_TCP] = 1;
	}
	ck_assert_uint_gt(stat_self()->rows_used, 0);
	ck_assert_uint_lt(stat_self()->rows_used, STAT_ROWS);
	snprintf(over, sizeof(over), "umount %s", dir);
	munmap(stat_self(), FILE_SIZE);
	ck_assert_int_eq(system(over), 0);
}
END_TEST

/* ---- reader ---- */

static struct stat_header *map_own(void)
{
	int fd = open(file, O_RDWR);
	void *m = mmap(NULL, sizeof(struct stat_header) + 8 * sizeof(struct stat_row),
		       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert(m != MAP_FAILED);
	close(fd);
	return m;
}

static int read_rc(void)
{
	struct stat_proc p;
	int rc = statfile_read(dirfd_, own_name(), geteuid(), &p);

	if (!rc)
		stat_proc_clear(&p);
	return rc;
}

START_TEST(test_liars)
{
	struct stat_header *h, good;
	struct stat_row *r, good_row;
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	live_row(1);
	h = map_own();
	r = (struct stat_row *)(h + 1);
	memcpy(&good, h, sizeof(good));
	memcpy(&good_row, r, sizeof(good_row));
#define BREAK(stmt, want) do { \
		stmt; \
		ck_assert_msg(read_rc() == (want), #stmt ": %d", read_rc()); \
		memcpy(h, &good, sizeof(good)); \
		ck_assert_int_eq(read_rc(), 0); \
	} while (0)
	BREAK(h->magic ^= 1, -EBADMSG);
	BREAK(h->version++, -EPROTO);
	BREAK(h->header_size--, -EPROTO);
	BREAK(h->row_size++, -EPROTO);
	BREAK(h->rows++, -EBADMSG);
	BREAK(h->rows = UINT32_MAX, -EBADMSG);
	BREAK(h->rows_used = STAT_ROWS + 1, -EBADMSG);
	BREAK(h->rows_used = UINT32_MAX, -EBADMSG);
	BREAK(h->pid++, -EBADMSG);
	BREAK(h->pid = 0, -EBADMSG);
	BREAK(h->bytes_tx[0] = UINT64_MAX, -EBADMSG);
	BREAK(h->bytes_rx[2] = UINT64_MAX / 2, -EBADMSG);

	memset(h->program, 'A', sizeof(h->program));	/* no NUL */
	memset(h->policy_file, '\n', sizeof(h->policy_file));
	h->reasons[REASON_POLICY] = UINT64_MAX;
	h->uid = 4711;
	ck_assert_uint_eq(read_self(&p), 1);
	ck_assert_uint_eq(strlen(p.program), sizeof(p.program) - 1);
	ck_assert_int_eq(p.policy_file[0], '?');
	ck_assert_uint_eq(p.reasons[REASON_POLICY], 0);
	ck_assert_uint_eq(p.uid, geteuid());
	stat_proc_clear(&p);
	memcpy(h, &good, sizeof(good));

	/* a row that lies is left out, the others stay */
#define BREAK_ROW(stmt) do { \
		stmt; \
		ck_assert_msg(read_self(&p) == 0, #stmt); \
		stat_proc_clear(&p); \
		memcpy(r, &good_row, sizeof(good_row)); \
		ck_assert_uint_eq(read_self(&p), 1); \
		stat_proc_clear(&p); \
	} while (0)
	BREAK_ROW(r->state = 77);
	BREAK_ROW(r->family = 1);
	BREAK_ROW(r->role = 3);
	BREAK_ROW(r->reason = REASON_COUNT);
	BREAK_ROW(r->tx_path = PATH_KINDS);
	BREAK_ROW(r->rx_path = 255);
	BREAK_ROW(r->tx_bytes[1] = UINT64_MAX);
	BREAK_ROW(r->rx_bytes[2] = UINT64_MAX);
}
END_TEST

START_TEST(test_truncated)
{
	struct stat st;
	char begin[16384];		/* the rest is zero */
	off_t len;
	int fd;

	ck_assert_int_eq(stat_open("p", ""), 0);
	live_row(1);
	munmap(stat_self(), FILE_SIZE);	/* or we get SIGBUS */
	fd = open(file, O_RDWR);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, FILE_SIZE);
	ck_assert_int_eq(pread(fd, begin, sizeof(begin), 0), sizeof(begin));
	for (len = 0; len < st.st_size; len += len < 2000 ? 1 : 50021) {
		ck_assert_int_eq(ftruncate(fd, len), 0);
		ck_assert_msg(read_rc() == -EBADMSG, "length %ld: %d", (long)len, read_rc());
		ck_assert_int_eq(ftruncate(fd, st.st_size), 0);
		ck_assert_int_eq(pwrite(fd, begin, sizeof(begin), 0), sizeof(begin));
	}
	ck_assert_int_eq(read_rc(), 0);
	close(fd);
}
END_TEST

/* Random bytes over header and first rows: any answer but a crash, and what is taken is in
 * range. */
START_TEST(test_garbled)
{
	struct stat_header *h, *good;
	size_t len = sizeof(*h) + 8 * sizeof(struct stat_row), i, k;
	struct stat_proc p;
	unsigned seed = 1;
	int round, taken = 0;

	ck_assert_int_eq(stat_open("p", ""), 0);
	for (i = 0; i < 8; i++)
		live_row((uint32_t)i + 1);
	h = map_own();
	good = malloc(len);
	memcpy(good, h, len);
	for (round = 0; round < 5000; round++) {
		memcpy(h, good, len);
		for (i = rand_r(&seed) % 64; i; i--)
			((uint8_t *)
				 h)[(size_t)rand_r(&seed) % (round % 2 ? len - sizeof(*h) : len) +
				    (round % 2 ? sizeof(*h) : 0)] = (uint8_t)rand_r(&seed);
		if (statfile_read(dirfd_, own_name(), geteuid(), &p))
			continue;
		taken++;
		for (k = 0; k < p.nconns; k++)
			ck_assert(p.conns[k].tx_path < PATH_KINDS &&
				  p.conns[k].rx_path < PATH_KINDS &&
				  p.conns[k].reason < REASON_COUNT && p.conns[k].role <= ROLE_ANY);
		ck_assert(memchr(p.program, 0, sizeof(p.program)) &&
			  memchr(p.policy_file, 0, sizeof(p.policy_file)));
		stat_proc_clear(&p);
	}
	ck_assert_int_gt(taken, 1000);
	free(good);
}
END_TEST

/*
 * The reader's pread is this one. Armed, the given reading of the rows is cut in two in the
 * middle of row 0, and the row is given to another connection in between: what preemption does
 * once in a million readings.
 */
static int tear_in = -1;
static struct stat_row *tear_row;

#define LINKS_AT ((off_t)(FILE_SIZE - sizeof(struct stat_links)))
static struct stat_link *tear_link;
static bool tear_back;		/* the later half is read first */

static struct stat_link *live_link(unsigned n, uint32_t qpn)
{
	struct stat_link *l = stat_link_begin(n);

	l->qpn = qpn;
	l->peer_qpn = qpn + 1;
	l->phase = STAT_LINK_UP;
	l->device[0] = 'd';
	l->device[STAT_DEVICE - 1] = (char)qpn;		/* no end: only what fits is there */
	stat_link_publish(l);
	return l;
}

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	long a = 0, b = 0;

	if (tear_link && off == LINKS_AT + (off_t)offsetof(struct stat_links, link) &&
	    tear_in-- == 0) {
		const long cut = offsetof(struct stat_link, peer_qpn);

		for (int half = 0; half < 2; half++) {
			if (half) {
				stat_link_free(tear_link);
				ck_assert_ptr_eq(live_link(0, 500), tear_link);
			}
			if (half != tear_back)
				b = syscall(SYS_pread64, fd, (char *)buf + cut, len - (size_t)cut,
					    off + cut);
			else
				a = syscall(SYS_pread64, fd, buf, cut, off);
		}
		return a + b;
	}
	if (off != sizeof(struct stat_header) || tear_in-- != 0)
		return syscall(SYS_pread64, fd, buf, len, off);
	a = syscall(SYS_pread64, fd, buf, sizeof(struct stat_row) / 2, off);
	stat_row_free(tear_row);
	ck_assert_ptr_eq(live_row(2), tear_row);
	b = syscall(SYS_pread64, fd, (char *)buf + a, len - (size_t)a, off + a);
	return a + b;
}

START_TEST(test_torn_row)
{
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	tear_row = live_row(1);
	live_row(3);
	tear_in = _i;
	read_self(&p);
	ck_assert_int_lt(tear_in, 0);
	ck_assert_uint_ge(p.nconns, 1);
	ck_assert_uint_eq(p.conns[p.nconns - 1].fd, 3);
	if (p.nconns == 2)
		ck_assert_uint_eq(p.conns[0].fd, p.conns[0].rx_bytes[PATH_RDMA]);
	stat_proc_clear(&p);
}
END_TEST

/* proc_pid_stat(5), with a name that has all that could be taken for something else. */
START_TEST(test_proc_stat)
{
	static const char text[] =
		"7 (a) Z (b 1) R 1 2 3 4 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 99\n";
	struct proc_stat st;

	ck_assert(proc_stat_parse(text, sizeof text - 1, &st));
	ck_assert_int_eq(st.state, 'R');
	ck_assert_uint_eq(st.flags, 4194560);
	ck_assert_uint_eq(st.start, 12345);
	for (size_t n = 0; n < (size_t)(strstr(text, "12345") - text); n++)
		ck_assert(!proc_stat_parse(text, n, &st));
	ck_assert(!proc_stat_parse("no brackets", 11, &st));
}
END_TEST

START_TEST(test_wrong_files)
{
	struct stat_proc p;
	char path[128];

	ck_assert_int_eq(stat_open("p", ""), 0);
	ck_assert_int_eq(statfile_read(dirfd_, "1", geteuid(), &p), -ENOENT);
	ck_assert_int_eq(statfile_read(dirfd_, own_name(), geteuid() + 1, &p), -EPERM);
	ck_assert_int_eq(chmod(file, 0644), 0);
	ck_assert_int_eq(read_rc(), -EPERM);
	ck_assert_int_eq(chmod(file, 0600), 0);
	snprintf(path, sizeof(path), "%s/2", dir);
	ck_assert_int_eq(link(file, path), 0);
	/* not its own name */
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(symlink(file, path), 0);
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(rename(file, path), 0);
	ck_assert_int_eq(symlink(path, file), 0);	/* all is right but that it is a link */
	ck_assert_int_eq(read_rc(), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	/* and does not wait */
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(statfile_read(dirfd_, "2", geteuid(), &p), -EBADMSG);
}
END_TEST

/* ---- the list ---- */

static int bad_files;

static void count_bad(const char *path, int error, const struct stat_proc *p)
{
	(void)p;
	(void)path;
	(void)error;
	bad_files++;
}

/* A child that leaves a counter file with one connection and 50 bytes, killed without any
 * clean-up. */
static pid_t dead_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		if (stat_open("dead", ""))
			_exit(1);
		live_row(1)->tx_bytes[PATH_SHM] = 50;
		kill(getpid(), SIGKILL);
	}
	return pid;
}

START_TEST(test_list)
{
	struct stat_list l;
	char path[128];
	struct stat st;
	pid_t pid = dead_child();
	int fd;

	waitpid(pid, NULL, 0);
	ck_assert_int_eq(stat_open("alive", ""), 0);
	snprintf(path, sizeof(path), "%s/123", dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, "garbage", 7), 7);
	close(fd);
	snprintf(path, sizeof(path), "%s/%d", dir, (int)pid);

	/* only one pid: the others, dead ones too, are left alone */
	ck_assert_int_eq(statfile_list(false, getpid(), count_bad, &l), 0);
	ck_assert_uint_eq(l.n, 1);
	ck_assert_str_eq(l.proc[0].program, "alive");
	stat_list_clear(&l);
	ck_assert_int_eq(bad_files, 0);
	ck_assert_int_eq(stat(path, &st), 0);

	/* the dead one is shown once, then removed */
	ck_assert_int_eq(statfile_list(true, 0, count_bad, &l), 0);
	ck_assert_int_eq(bad_files, 1);
	ck_assert_uint_eq(l.bad, 1);
	ck_assert_uint_eq(l.n, 2);
	ck_assert_int_eq(l.proc[0].dead + l.proc[1].dead, 1);
	ck_assert_uint_eq(l.proc[l.proc[0].dead ? 0 : 1].tx_bytes[PATH_SHM], 50);
	stat_list_clear(&l);
	ck_assert_int_eq(statfile_list(true, 0, NULL, &l), 0);
	ck_assert_uint_eq(l.n, 1);
	stat_list_clear(&l);
	ck_assert_int_lt(stat(path, &st), 0);
	ck_assert_int_eq(stat(file, &st), 0);

	/* a directory that others can write is not believed */
	ck_assert_int_eq(chmod(dir, 0770), 0);
	ck_assert_int_eq(statfile_list(true, 0, count_bad, &l), 0);
	ck_assert_uint_eq(l.n, 0);
	ck_assert_int_eq(bad_files, 2);
	chmod(dir, 0700);
}
END_TEST

/* A dead process's pid that was given to another process, and a pid of another namespace. */
START_TEST(test_gone)
{
	struct stat_header *h;
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	h = map_own();
	ck_assert_uint_ne(h->start_time, 0);
	ck_assert_uint_ne(h->pid_ns, 0);
	h->start_time++;
	read_self(&p);
	ck_assert(stat_proc_gone(&p));
	p.pid_ns++;
	ck_assert(!stat_proc_gone(&p));
	stat_proc_clear(&p);
	h->start_time--;
	read_self(&p);
	ck_assert(!stat_proc_gone(&p));
	stat_proc_clear(&p);
}
END_TEST

/* A listing while processes come and die must never fail, whatever it happens to see. */
START_TEST(test_churn)
{
	struct stat_list l;
	pid_t pid[16] = { 0 };
	int i, round, st;

	for (round = 0; round < 40; round++) {
		for (i = 0; i < 16; i++)
			pid[i] = dead_child();
		bad_files = 0;
		ck_assert_int_eq(statfile_list(true, 0, NULL, &l), 0);
		stat_list_clear(&l);
		for (i = 0; i < 16; i++)
			waitpid(pid[i], &st, 0);
	}
	ck_assert_int_eq(statfile_list(false, 0, count_bad, &l), 0);
	ck_assert_uint_eq(l.n, 0);
	stat_list_clear(&l);
}
END_TEST

/* ---- calls ---- */

static const char *name_of(unsigned call) { return call ? "second" : "first"; }

enum { CALLERS = 40, CALLS_EACH = 1000 };
static pthread_barrier_t all_here;

static void *call_often(void *together)
{
	stat_calls_attach();
	if (together)
		pthread_barrier_wait(&all_here);
	for (int i = 0; i < CALLS_EACH; i++)
		stat_call(1, i & 1);
	return NULL;
}

static uint64_t calls_now(unsigned call, int fast)
{
	struct stat_proc p;
	uint64_t n;

	read_self(&p);
	n = p.calls[call][fast];
	ck_assert_str_eq(p.call[0], "first");
	ck_assert_str_eq(p.call[1], "second");
	ck_assert_str_eq(p.call[2], "");
	stat_proc_clear(&p);
	return n;
}

/* Exact for as many threads as there are blocks at a time, however many in all; a child counts
 * in its own file. */
START_TEST(test_calls)
{
	pthread_t t[CALLERS];
	int st;

	stat_call(0, 0);		/* no file yet: goes nowhere */
	stat_calls_attach();
	ck_assert_ptr_eq(stat_my_calls, &stat_no_calls);
	ck_assert_int_eq(stat_open("p", ""), 0);
	stat_calls_name(2, name_of);
	stat_calls_attach();
	stat_call(0, 1);
	ck_assert_uint_eq(calls_now(0, 1), 1);
	ck_assert_uint_eq(calls_now(0, 0), 0);
	pthread_barrier_init(&all_here, NULL, CALLERS);
	for (int i = 0; i < CALLERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, call_often, t), 0);
	for (int i = 0; i < CALLERS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 3 * STAT_CALL_BLOCKS; i++) {
		ck_assert_int_eq(pthread_create(&t[0], NULL, call_often, NULL), 0);
		pthread_join(t[0], NULL);
	}
	ck_assert_uint_eq(calls_now(1, 0), (CALLERS + 3 * STAT_CALL_BLOCKS) * CALLS_EACH / 2);
	ck_assert_uint_eq(calls_now(1, 1), (CALLERS + 3 * STAT_CALL_BLOCKS) * CALLS_EACH / 2);
	if (!fork()) {
		stat_after_fork();
		stat_calls_attach();
		stat_call(0, 1);
		_exit(stat_my_calls != &stat_no_calls);
	}
	ck_assert_int_gt(wait(&st), 0);
	ck_assert_int_eq(st, 0);
	ck_assert_uint_eq(calls_now(0, 1), 1);
}
END_TEST

/* Calls that are counted by connection: seen while it lives, kept when it is closed, counted
 * once when its row is used again. */
START_TEST(test_moves)
{
	static const uint8_t call[] = { 1, 0 };		/* the first kind is called "second" */
	struct stat_row *row = stat_row_alloc();
	struct stat_moves *m = stat_row_moves(row), *other;

	stat_move(&m->n[0][0]);		/* no file yet: a dummy's */
	ck_assert_int_eq(stat_open("p", ""), 0);
	stat_calls_name(2, name_of);
	stat_moves_name(2, call);
	stat_calls_attach();
	stat_call(1, 1);
	for (int round = 1; round <= 3; round++) {
		row = stat_row_alloc();
		m = stat_row_moves(row);
		ck_assert_uint_eq(m->n[0][0] | m->n[1][0] | m->n[1][1], 0);
		for (int i = 0; i < 5; i++)
			stat_move(&m->n[1][0]);
		stat_move(&m->n[0][1]);
		ck_assert_uint_eq(calls_now(1, 1), 1 + (uint64_t)round * 5);
		ck_assert_uint_eq(calls_now(0, 0), (uint64_t)round);
		if (round == 2) {	/* two at once */
			other = stat_row_moves(stat_row_alloc());
			ck_assert_ptr_ne(other, m);
			stat_move(&other->n[1][1]);
			ck_assert_uint_eq(calls_now(0, 1), 1);
		}
		stat_row_free(row);
		ck_assert_uint_eq(calls_now(1, 1), 1 + (uint64_t)round * 5);
		ck_assert_uint_eq(calls_now(0, 0), (uint64_t)round);
	}
	/* in a child the parent's rows count for nobody, and harm nobody */
	row = stat_row_alloc();
	m = stat_row_moves(row);
	if (!fork()) {
		stat_after_fork();
		stat_move(&m->n[1][0]);
		stat_row_free(row);
		_exit(stat_open("p", "") != 0);
	}
	{
		int st;

		ck_assert_int_gt(wait(&st), 0);
		ck_assert_int_eq(st, 0);
	}
	ck_assert_uint_eq(calls_now(1, 1), 16);
}
END_TEST

/* ---- histories ---- */

static size_t past_of(uint32_t fd, struct stat_past *past)
{
	struct stat_list l;

	memset(past, 0, sizeof(*past));
	ck_assert_int_eq(statfile_list(false, getpid(), NULL, &l), 0);
	ck_assert_uint_eq(l.n, 1);
	for (size_t i = 0; i < l.proc[0].nconns; i++)
		if (l.proc[0].conns[i].fd == fd)
			ck_assert_int_eq(statfile_history(&l.proc[0], &l.proc[0].conns[i], past),
					 0);
	stat_list_clear(&l);
	return past->n;
}

START_TEST(test_history)
{
	struct timespec now;
	struct stat_past past;
	struct stat_list l;
	struct stat_row *r = stat_row_alloc();
	pid_t pid;
	int st;

	stat_row_event(r, EVENT_EARNED, 0);	/* the dummy: no place for it */
	ck_assert_int_eq(stat_open("p", "/etc/p.conf"), 0);
	r = live_row(7);
	live_row(8);
	ck_assert_uint_eq(past_of(7, &past), 0);
	stat_row_reason(r, REASON_NOT_EARNED);
	stat_row_reason(r, REASON_NOT_EARNED);
	stat_row_rule(r, 12);
	stat_row_rule(r, 12);
	stat_row_rule(r, 0);
	ck_assert_uint_eq(r->rule_at, 0);
	stat_row_rule(r, 9);
	stat_row_reason(r, REASON_POLICY);
	ck_assert_uint_eq(past_of(8, &past), 0);
	ck_assert_uint_eq(past_of(7, &past), 5);
	ck_assert(past.at[0].kind == EVENT_REASON && past.at[0].reason == REASON_NOT_EARNED);
	ck_assert(past.at[1].kind == EVENT_RULE && past.at[1].arg == 12 && past.at[2].arg == 0);
	ck_assert(past.at[4].kind == EVENT_REASON && past.at[4].reason == REASON_POLICY &&
		  past.at[4].arg == 9);
	clock_gettime(CLOCK_REALTIME, &now);
	ck_assert_uint_le(past.at[0].when, past.at[4].when);
	ck_assert_uint_le((uint64_t)now.tv_sec - 60, past.at[0].when / 1000000);
	ck_assert_uint_le(past.at[0].when / 1000000, (uint64_t)now.tv_sec);
	/* the first six stay, and the last ten */
	for (uint64_t i = 5; i < 1000; i++)
		stat_row_event(r, EVENT_CUT_TX, i);
	ck_assert_uint_eq(past_of(7, &past), STAT_EVENTS);
	ck_assert_uint_eq(past.left_out, 1000 - STAT_EVENTS);
	ck_assert_uint_eq(past.at[5].arg, 5);
	for (int i = 6; i < STAT_EVENTS; i++)
		ck_assert_uint_eq(past.at[i].arg, 1000 - STAT_EVENTS + (uint64_t)i);
	/* a child adds nothing to its parent's rows, not even to its copy of them */
	pid = fork();
	if (!pid) {
		stat_after_fork();
		stat_row_event(r, EVENT_LINKED, 1);
		_exit(stat_open("child", "") != 0 || past_of(7, &past) != 0);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	ck_assert_uint_eq(past_of(7, &past), STAT_EVENTS);
	ck_assert_uint_eq(past.at[STAT_EVENTS - 1].kind, EVENT_CUT_TX);
	/* the next connection in the row starts anew, and the old one's is gone */
	ck_assert_int_eq(statfile_list(false, getpid(), NULL, &l), 0);
	stat_row_free(r);
	r = live_row(9);
	ck_assert_int_eq(statfile_history(&l.proc[0], &l.proc[0].conns[0], &past), -ENOENT);
	stat_list_clear(&l);
	ck_assert_uint_eq(past_of(9, &past), 0);
	stat_row_event(r, EVENT_SEARCH, 1);
	ck_assert_uint_eq(past_of(9, &past), 1);
	ck_assert(past.at[0].kind == EVENT_SEARCH && past.at[0].arg == 1);
	ck_assert_uint_eq(past.left_out, 0);
	ck_assert_str_eq(event_name(EVENT_CUT_RX), "cut-rx");
	ck_assert_str_eq(event_name(EVENT_COUNT), "?");
	ck_assert_str_eq(event_text(~0u), "?");
}
END_TEST

/* Each thread's events have its number and kind in both halves: whatever is read, they belong
 * together. */
static struct stat_row *busy_row;
static _Atomic int busy_stop;

static void *add_events(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (uint64_t i = 0; !busy_stop; i++)
		stat_row_event(busy_row, (enum stat_event_kind)(EVENT_CUT_TX + me), i << 8 | me);
	return NULL;
}

START_TEST(test_history_threads)
{
	struct stat_past past;
	struct stat_list l;
	pthread_t t[2];
	size_t seen = 0;

	ck_assert_int_eq(stat_open("p", ""), 0);
	busy_row = live_row(7);
	ck_assert_int_eq(statfile_list(false, getpid(), NULL, &l), 0);
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, add_events, (void *)i), 0);
	for (int k = 0; k < 2000 || !seen; k++) {
		if (k % 100) {
			memset(&past, 0, sizeof(past));
			ck_assert_int_eq(statfile_history(&l.proc[0], &l.proc[0].conns[0], &past),
					 0);
		} else {
			past_of(7, &past);
		}
		for (size_t i = 0; i < past.n; i++)
			ck_assert_uint_eq(past.at[i].kind, EVENT_CUT_TX + (past.at[i].arg & 0xff));
		seen += past.n;
	}
	busy_stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_ge(past_of(7, &past), STAT_EVENTS_FIRST);
	stat_list_clear(&l);
}
END_TEST

START_TEST(test_sites)
{
	struct stat_call_site *a;
	struct stat_proc p;

	/* no file yet: goes nowhere */
	ck_assert_ptr_nonnull(stat_call_site_add(false, "nowhere"));
	ck_assert_int_eq(stat_open("p", ""), 0);
	a = stat_call_site_add(true, "f+0x1 < g\033");
	a->bytes = 1000;
	a->taken = 600;
	a->why[REASON_DEVICE_WRITTEN] = 400;
	a->copies = UINT64_MAX;		/* no writer writes that */
	read_self(&p);
	ck_assert_uint_eq(p.ncall_sites, 1);
	ck_assert(p.sites[0].rx);
	ck_assert_str_eq(p.sites[0].where, "f+0x1 < g?");
	ck_assert_uint_eq(p.sites[0].bytes, 1000);
	ck_assert_uint_eq(p.sites[0].taken, 600);
	ck_assert_uint_eq(p.sites[0].copies, 0);
	ck_assert_uint_eq(p.sites[0].why[REASON_DEVICE_WRITTEN], 400);
	ck_assert_uint_eq(p.sites[0].why[REASON_DEVICE_UNSENT], 0);
	stat_proc_clear(&p);
	for (int i = 1; i < STAT_SITES; i++)
		ck_assert_ptr_eq(stat_call_site_add(false, "another"), a + i);
	a = stat_call_site_add(false, "one too many");
	a->bytes = 7;
	read_self(&p);
	ck_assert_uint_eq(p.ncall_sites, STAT_SITES);
	for (int i = 0; i < STAT_SITES; i++)
		ck_assert_uint_ne(p.sites[i].bytes, 7);
	stat_proc_clear(&p);
}
END_TEST

START_TEST(test_links)
{
	struct stat_link *a, *b, *out;
	struct stat_proc p;

	out = live_link(0, 9);			/* no file yet: goes nowhere */
	ck_assert_int_eq(stat_open("p", ""), 0);
	read_self(&p);
	ck_assert_uint_eq(p.nqps, 0);
	ck_assert_ptr_eq(stat_link_begin(STAT_LINKS), out);
	a = live_link(STAT_LINKS - 1, 7);
	a->kind = STAT_LINK_ROCE;
	a->mtu = 1024;
	a->rtt = 5;
	a->streams = 3;
	a->port = 2;
	a->family = AF_INET6;
	a->lgid[3] = 1;
	a->pgid[4] = 2;
	a->laddr[5] = 3;
	a->paddr[6] = 4;
	a->lport = 10;
	a->pport = 11;
	strcpy(a->device, "rxe\0330");
	b = live_link(0, 20);
	stat_link_begin(1);			/* being written */
	stat_link_free(live_link(2, 30));
	read_self(&p);
	ck_assert_uint_eq(p.nqps, 2);
	ck_assert_uint_eq(p.qps[0].qpn, 20);
	ck_assert_uint_eq(p.qps[0].family, 0);
	ck_assert_uint_eq(p.qps[1].qpn, 7);
	ck_assert_uint_eq(p.qps[1].peer_qpn, 8);
	ck_assert_int_eq(p.qps[1].phase, STAT_LINK_UP);
	ck_assert_int_eq(p.qps[1].kind, STAT_LINK_ROCE);
	ck_assert_uint_eq(p.qps[1].mtu, 1024);
	ck_assert_uint_eq(p.qps[1].rtt, 5);
	ck_assert_uint_eq(p.qps[1].streams, 3);
	ck_assert_uint_eq(p.qps[1].port, 2);
	ck_assert_int_eq(p.qps[1].family, AF_INET6);
	ck_assert(p.qps[1].lgid[3] == 1 && p.qps[1].pgid[4] == 2 && p.qps[1].laddr[5] == 3 &&
		  p.qps[1].paddr[6] == 4);
	ck_assert(p.qps[1].lport == 10 && p.qps[1].pport == 11);
	ck_assert_str_eq(p.qps[1].device, "rxe?0");
	stat_proc_clear(&p);
	/* the same place each time, and nothing is left there */
	ck_assert_ptr_eq(stat_link_begin(STAT_LINKS - 1), a);
	stat_link_publish(a);
	/* what no writer writes */
	b->family = 99;
	read_self(&p);
	ck_assert_uint_eq(p.nqps, 1);
	ck_assert_uint_eq(p.qps[0].qpn + p.qps[0].rtt + p.qps[0].streams + p.qps[0].lgid[3], 0);
	stat_proc_clear(&p);
	b->family = 0;
	for (int i = 0; i < 4; i++) {
		b->phase = i == 0 ? STAT_LINK_PHASES : STAT_LINK_UP;
		b->kind = i == 1 ? STAT_LINK_KINDS : STAT_LINK_IWARP;
		b->mtu = i == 2 ? 4097 : 4096;
		read_self(&p);
		ck_assert_uint_eq(p.nqps, i == 3 ? 2 : 1);
		stat_proc_clear(&p);
	}
	/* times three is two */
	((struct stat_links *)((char *)stat_self() + LINKS_AT))->used = 0x55555556;
	ck_assert_int_eq(statfile_read(dirfd_, own_name(), geteuid(), &p), -EBADMSG);
}
END_TEST

START_TEST(test_torn_link)
{
	struct stat_proc p;

	ck_assert_int_eq(stat_open("p", ""), 0);
	tear_link = live_link(0, 1);
	live_link(1, 3);
	tear_in = _i % 3;
	tear_back = _i / 3;
	read_self(&p);
	ck_assert_int_lt(tear_in, 0);
	ck_assert_uint_ge(p.nqps, 1);
	ck_assert_uint_eq(p.qps[p.nqps - 1].qpn, 3);
	if (p.nqps == 2)
		ck_assert_uint_eq(p.qps[0].qpn + 1, p.qps[0].peer_qpn);
	stat_proc_clear(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stat");
	TCase *t = tcase_create("stat");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_proc_stat);
	tcase_add_test(t, test_round_trip);
	tcase_add_test(t, test_ring_counts);
	tcase_add_test(t, test_rows_are_reused);
	tcase_add_test(t, test_reasons);
	tcase_add_test(t, test_threads);
	tcase_add_test(t, test_signals);
	tcase_add_test(t, test_fork);
	tcase_add_loop_test(t, test_no_file, 0, 4);
	tcase_add_test(t, test_no_room);
	tcase_add_test(t, test_liars);
	tcase_add_test(t, test_truncated);
	tcase_add_test(t, test_garbled);
	tcase_add_loop_test(t, test_torn_row, 0, 3);
	tcase_add_test(t, test_wrong_files);
	tcase_add_test(t, test_list);
	tcase_add_test(t, test_gone);
	tcase_add_test(t, test_churn);
	tcase_add_test(t, test_calls);
	tcase_add_test(t, test_moves);
	tcase_add_test(t, test_history);
	tcase_add_test(t, test_history_threads);
	tcase_add_test(t, test_sites);
	tcase_add_test(t, test_links);
	tcase_add_loop_test(t, test_torn_link, 0, 6);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed;
}
