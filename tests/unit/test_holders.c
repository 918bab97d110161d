/*
 * test_holders.c - who holds a socket (shim/conn/holders.c): who is alive, at which cost, and when
 * the end of a child is news to the background thread.
 *
 * LINK: shim/conn/holders.c shim/base/procs.c shim/base/procfs.c
 */
#include <check.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../shim/base/event.h"
#include "../../shim/base/fdtab.h"
#include "../../shim/base/loop.h"
#include "../../shim/base/own_memory.h"
#include "../../shim/base/shim.h"
#include "../../shim/conn/holders.h"
#include "../../shim/conn/stream.h"
#include "suite.h"
#include "../../shim/conn/stream_life.h"

_Atomic int shim_pid;
bool shim_on = true;
static int posted;

struct work *stream_work_of(const struct stream *s) { (void)s; return NULL; }
void loop_post(struct work *w) { (void)w; posted++; }
bool memory_is_ours(void) { return true; }
void word_ring(const _Atomic uint32_t *w) { (void)w; }
void word_wait(const _Atomic uint32_t *w, uint32_t seen, uint64_t until_ns) { (void)w, (void)seen,
	(void)until_ns; }

void fd_number_lock(void) {}
void fd_number_unlock(void) {}
bool fd_may_make(void) { return true; }
int fd_internal_made(int fd, bool ok) { (void)ok; return fd; }
void fd_internal_close(int fd) { close(fd); }

static void setup(void) { atomic_store(&shim_pid, (int)getpid()); }

/* From now on these end the process: what asks of another process. */
static void forbid(void)
{
	static const unsigned calls[] = { SYS_waitid, SYS_readlinkat, SYS_statx, SYS_kill };
	struct sock_filter f[8];
	struct sock_fprog prog = { .filter = f };
	unsigned n = 0;

	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					      offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < 4; i++)
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i],
						      (uint8_t)(4 - i), 0);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL);
	prog.len = (unsigned short)n;
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

/* Each child of this process asks that, several times. */
START_TEST(this_process_lives)
{
	forbid();
	ck_assert(process_lives((int)getpid()));
	ck_assert(process_lives(-(int)syscall(SYS_gettid)));
}
END_TEST

static void *ends(void *tid)
{
	*(int *)tid = (int)syscall(SYS_gettid);
	return NULL;
}

START_TEST(what_has_ended)
{
	pthread_t t;
	int tid, st;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, &st, 0);
	ck_assert(!process_lives(pid));
	pthread_create(&t, NULL, ends, &tid);
	pthread_join(t, NULL);
	while (!syscall(SYS_tgkill, getpid(), tid, 0))	/* the kernel sees it off a moment later */
		;
	ck_assert(!process_lives(-tid));
	ck_assert(!process_lives(INT32_MIN));
}
END_TEST

/* A child that has a copy of our memory, and asks for its parent, which is no more. */
START_TEST(a_dead_parent)
{
	int p[2], st;
	char c = 0;
	pid_t middle;

	ck_assert_int_eq(pipe(p), 0);
	middle = fork();
	if (!middle) {
		atomic_store(&shim_pid, (int)getpid());
		if (!fork()) {
			for (int i = 0; i < 5000 && process_lives(atomic_load(&shim_pid)); i++)
				usleep(1000);
			c = process_lives(atomic_load(&shim_pid)) ? 'l' : 'd';
			_exit(write(p[1], &c, 1) != 1);
		}
		_exit(0);
	}
	waitpid(middle, &st, 0);
	ck_assert_int_eq(read(p[0], &c, 1), 1);
	ck_assert_int_eq(c, 'd');
}
END_TEST

static const struct {
	uint8_t mode, upgrade;
	int pause_us, looks;
} less[] = {
	{ MODE_TCP_FOR_NOW, 1, 1000000, 0 },	/* it rests, and who wakes it knows when */
	{ MODE_TCP_FOR_NOW, 1, -1, 1 },		/* it was shared longer than its pause */
	{ MODE_ATTACHED, 1, 1000000, 1 },	/* an ARM waits, perhaps */
	{ MODE_ATTACHED, 0, -1, 0 },		/* the background thread does not know it */
};

START_TEST(a_child_less)
{
	static struct stream s;

	memset(&s, 0, sizeof s);
	atomic_store(&s.mode, less[_i].mode);
	atomic_store(&s.upgrade, less[_i].upgrade);
	s.earn.next_us = now_us() + (uint64_t)less[_i].pause_us;
	posted = 0;
	fork_less_shared(&s);
	ck_assert_int_eq(posted, less[_i].looks);
}
END_TEST

/* Of memory that may be shared; and how many mappings there are. */
static size_t shared_pages(size_t *ret_mappings)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	char line[512], how[8] = "";
	size_t kb, n = 0;

	ck_assert_ptr_nonnull(f);
	*ret_mappings = 0;
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3)
			++*ret_mappings;
		else if (how[3] == 's' && sscanf(line, "Rss: %zu", &kb) == 1)
			n += kb / 4;
	}
	fclose(f);
	return n;
}

#define FORKS 3000
/* One connection at a time, or thousands, with a fork behind each: when they are closed their
 * memory is gone, and so are their mappings. */
START_TEST(closed_ones_leave_little)
{
	static struct stream s[FORKS], again[4000];
	size_t was, mappings;
	struct holders *c, *before = NULL;

	shared_pages(&was);
	for (int i = 0; i < FORKS; i++) {
		c = holders_of(&s[i]);
		ck_assert(c && c != before);
		before = c;
		ck_assert(holders_has(c, getpid()));
		ck_assert_uint_eq(atomic_load(&c->on_tcp), 0);
		atomic_store(&c->on_tcp, 1);
		holders_close();	/* a fork */
		if (!_i)
			fork_drop(&s[i]);
	}
	for (int i = 0; i < FORKS && _i; i++) {
		ck_assert_uint_eq(atomic_load(&atomic_load(&s[i].others.holders)->on_tcp), 1);
		fork_drop(&s[i]);
	}
	ck_assert_uint_le(shared_pages(&mappings), 257);
	ck_assert_uint_le(mappings, was + 270);
	/* and are there again */
	for (int i = 0; i < 4000; i++) {
		c = holders_of(&again[i]);
		ck_assert_ptr_nonnull(c);
		ck_assert_uint_eq(atomic_load(&c->on_tcp), 0);
		atomic_store(&c->on_tcp, 1);
		holders_close();
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("holders");
	TCase *c = tcase_create("holders");

	tcase_set_timeout(c, 30);
	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, this_process_lives);
	tcase_add_test(c, what_has_ended);
	tcase_add_test(c, a_dead_parent);
	tcase_add_loop_test(c, closed_ones_leave_little, 0, 2);
	tcase_add_loop_test(c, a_child_less, 0, (int)(sizeof less / sizeof *less));
	suite_add_tcase(s, c);
	return run_suite(s);
}
