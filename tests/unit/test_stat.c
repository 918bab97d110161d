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

#include "stat_reader.h"
#include "stat_list.h"
#include "stat_histories.h"
#include "stat_memory.h"

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
	tcase_add_loop_test(t, test_memory, 0, 2);
	tcase_add_test(t, test_memory_threads);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed;
}
