/*
 * test_closer.c - descriptors whose close may wait (shim/base/closer.c), and those that a peer
 * passes (shim/link/rights.c): a number that was the program's until the kernel gave it to us, a
 * thread that cannot be had, a forked child, 253 at once, system calls that fail. The kernel
 * waits where the test has it wait: when the number has its other file already.
 *
 * LINK: shim/base/proof.c shim/base/fdtab.c shim/base/lock.c shim/base/procfs.c shim/base/event.c
 */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "../../shim/base/sys.h"

static sem_t go_on, waiting;
static _Atomic int held = -1;	/* the number whose close waits */
static _Atomic int early = -1;	/* the number whose thread has not begun to close it */
static int fails = -1;		/* a system call that does; a look at a record does not */

static long sys_of_test(long n, long a, long b, long c, long d, long e, long f)
{
	long r;

	if (n == SYS_dup3 && b == atomic_load(&early)) {
		sem_post(&waiting);
		sem_wait(&go_on);
	}
	r = n == fails && !(n == SYS_recvmsg && c & MSG_PEEK) ? -EMFILE
							       : sys6(n, a, b, c, d, e, f);
	if (n == SYS_dup3 && b == atomic_load(&held)) {
		sem_post(&waiting);
		sem_wait(&go_on);
	}
	return r;
}

#undef sys
#define ARGS_(n, a, b, c, d, e, f, ...) \
	sys_of_test((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define sys(n, ...) ARGS_(n, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#include "../../shim/base/closer.c"
#include "../../shim/link/rights.c"
#include "suite.h"

_Atomic(const struct policy *) shim_policy;

static bool no_thread;
static pthread_t thread;
static int threads;

struct bell *loop_bell(void)
{
	static struct bell b;

	if (!b.fd)
		b.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	return &b;
}

int own_thread(void *(*runs)(void *arg), void *arg, const cpu_set_t *cpus)
{
	(void)cpus;
	ck_assert(!fd_number_held());
	threads++;
	return no_thread ? EAGAIN : pthread_create(&thread, NULL, runs, arg);
}

void own_thread_begins(void) { }
void own_thread_ends(void) { }

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static int count_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += is_open(fd);
	return n;
}

/* A kind that is not known: it may wait for somebody. */
static int odd_file(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert(!closer_knows(fd));
	return fd;
}

/* The last descriptor of O_PATH of a file is the end of the file, of which its daemon hears; of a
 * socket it ends nothing. */
START_TEST(knows_a_proof)
{
	char path[40];
	int sock = socket(AF_INET, SOCK_STREAM, 0), of_file = open("/dev/null", O_PATH), of_sock;

	snprintf(path, sizeof path, "/proc/self/fd/%d", sock);
	of_sock = open(path, O_PATH);
	ck_assert_int_ge(of_sock, 0);
	ck_assert(closer_knows(of_sock));
	ck_assert(!closer_knows(of_file));
	ck_assert(waits_for_nobody(of_sock));
}
END_TEST

static void put(int fd)
{
	fd_number_lock();
	closer_put(fd);
	fd_number_unlock();
}

static void begin(void)
{
	sem_init(&go_on, 0, 0);
	sem_init(&waiting, 0, 0);
	loop_bell();
}

START_TEST(closes)
{
	int fds[2] = { odd_file(), socket(AF_INET, SOCK_STREAM, 0) };

	begin();
	for (int i = 0; i < 2; i++) {
		put(fds[i]);
		ck_assert(fdtab_internal(fds[i]));
		ck_assert(is_open(fds[i]));
		ck_assert_int_eq(fd_aparts(i ? FD_APART_SOCKET : FD_APART_OTHER), 1);
		closer_start();
		pthread_join(thread, NULL);
		ck_assert(!is_open(fds[i]));
		ck_assert(!fdtab_get(fds[i]));
		ck_assert_int_eq(fd_aparts(FD_APART_SOCKET) + fd_aparts(FD_APART_OTHER), 0);
	}
	ck_assert_int_eq(threads, 2);
	ck_assert(closer_work(now_us()) == UINT64_MAX);
}
END_TEST

/* The number is given back before the close is over, and the file that gets it stays open. */
START_TEST(waits_without_the_number)
{
	int fd = odd_file(), next = odd_file();

	begin();
	atomic_store(&held, fd);
	put(fd);
	put(next);
	closer_start();
	sem_wait(&waiting);
	ck_assert(fdtab_internal(fd));		/* the program cannot have it */
	ck_assert(fdtab_internal(next));
	ck_assert(closer_work(now_us()) != UINT64_MAX);
	closer_work(now_us() + STUCK_US);
	ck_assert(!fdtab_get(fd));
	ck_assert(!is_open(fd));
	ck_assert_int_eq(open("/dev/zero", O_RDONLY), fd);
	closer_work(now_us() + STUCK_US);
	atomic_store(&held, -1);
	sem_post(&go_on);
	pthread_join(thread, NULL);
	ck_assert(is_open(fd));
	ck_assert(!is_open(next));
	ck_assert_int_eq(threads, 1);
}
END_TEST

/* A file in memory looks like the one that is to take its place: until it has been closed the
 * program does not get its number, and so loses no file to the thread that closes. */
START_TEST(keeps_the_number_of_a_known_kind)
{
	int fd = (int)syscall(SYS_memfd_create, "known", 1), got;
	struct stat st;

	begin();
	ck_assert(closer_knows(fd));
	atomic_store(&early, fd);
	put(fd);
	closer_start();
	sem_wait(&waiting);
	closer_work(now_us() + STUCK_US);
	closer_vacate(fd);
	got = open("/dev/zero", O_RDONLY);
	atomic_store(&early, -1);
	sem_post(&go_on);
	pthread_join(thread, NULL);
	ck_assert_int_eq(fstat(got, &st), 0);
	ck_assert(S_ISCHR(st.st_mode));
	ck_assert(!fdtab_get(fd));
	ck_assert_int_eq(fd_aparts(FD_APART_OTHER), 0);
	close(got);
}
END_TEST

/* Nobody of the sockets' waits with it. */
START_TEST(apart_from_each_other)
{
	int fd = odd_file(), sock = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t other;

	begin();
	atomic_store(&held, fd);
	put(fd);
	closer_start();
	sem_wait(&waiting);
	other = thread;
	put(sock);
	closer_start();
	pthread_join(thread, NULL);
	ck_assert(!is_open(sock));
	ck_assert(closer_vacate(fd));	/* for dup2(), without the background thread */
	ck_assert(!is_open(fd));
	sem_post(&go_on);
	pthread_join(other, NULL);
	ck_assert(!closer_vacate(loop_bell()->fd) || !fdtab_get(loop_bell()->fd));
}
END_TEST

START_TEST(no_thread_can_be_had)
{
	int fd = odd_file();
	uint64_t due;

	begin();
	no_thread = true;
	put(fd);
	closer_start();
	ck_assert(is_open(fd));
	ck_assert_int_eq(threads, 1);
	due = closer_work(now_us());
	ck_assert(due != UINT64_MAX);
	closer_work(now_us() + AGAIN_US);
	ck_assert(is_open(fd));
	ck_assert_int_eq(threads, 2);
	no_thread = false;
	closer_work(now_us() + AGAIN_US);
	ck_assert_int_eq(threads, 3);
	pthread_join(thread, NULL);
	ck_assert(!is_open(fd));
}
END_TEST

/* A child closes nothing when it is forked, and what waited waits there. */
START_TEST(a_child)
{
	int fds[3] = { odd_file(), odd_file(), socket(AF_INET, SOCK_STREAM, 0) }, st;
	pid_t pid;

	begin();
	atomic_store(&held, fds[0]);
	put(fds[0]);
	put(fds[1]);
	closer_start();
	sem_wait(&waiting);
	no_thread = true;
	put(fds[2]);
	pid = fork();
	if (!pid) {
		bool all = true;

		fdtab_after_fork();
		closer_after_fork();
		fdtab_after_fork_last(NULL);
		for (int i = 0; i < 3; i++)
			all &= is_open(fds[i]) && fdtab_internal(fds[i]);
		no_thread = false;
		atomic_store(&held, -1);
		for (int kind = 0; kind < FD_APARTS; kind++)
			run(&works[kind]);
		for (int i = 0; i < 3; i++)
			all &= !is_open(fds[i]);
		_exit(!all);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	sem_post(&go_on);
	pthread_join(thread, NULL);
}
END_TEST

/* By a system call of its own, and then it got the number for another file, as we see. */
START_TEST(closed_by_the_program)
{
	int fd = odd_file();

	begin();
	no_thread = true;
	put(fd);
	closer_start();
	close(fd);
	fdtab_set(fd, FD_NONE, NULL, NULL);
	ck_assert_int_eq(odd_file(), fd);
	run(&works[FD_APART_OTHER]);
	ck_assert(is_open(fd));
	ck_assert(closer_work(now_us()) == UINT64_MAX);
	fdtab_set(fd, FD_INTERNAL, &fdtab_closing, NULL);	/* a thread waits in close() */
	put(fd);
	ck_assert(fd_is_apart(fd));
	fdtab_closed(fd);
	ck_assert(fd_is_apart(fd));
}
END_TEST

START_TEST(many)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	begin();
	ck_assert(!closer_stuck());
	atomic_store(&held, fd);
	put(fd);
	closer_start();
	sem_wait(&waiting);
	for (int i = 0; i < MANY - 1; i++)
		put(socket(AF_INET, SOCK_STREAM, 0));
	ck_assert(!closer_busy());
	put(socket(AF_INET, SOCK_STREAM, 0));
	ck_assert(closer_busy());
	ck_assert(closer_stuck());
	sem_post(&go_on);
	pthread_join(thread, NULL);
	ck_assert(!closer_stuck());
}
END_TEST

/* ---- what a peer passes ---- */

#define FDS_MAX 253	/* the kernel passes no more at once: SCM_MAX_FD, net/scm.h */

static void pass_of(int to, const int *fds, unsigned n, size_t len)
{
	struct iovec iov = { "x", len };
	union { char buf[CMSG_SPACE(FDS_MAX * sizeof(int))]; struct cmsghdr align; } ctl = { 0 };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			    .msg_controllen = n ? CMSG_SPACE(n * sizeof(int)) : 0 };
	struct cmsghdr *cm = &ctl.align;

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(cm), fds, n * sizeof(int));
	ck_assert_int_eq(sendmsg(to, &h, 0), (ssize_t)len);
}

static void pass(int to, const int *fds, unsigned n) { pass_of(to, fds, n, 1); }

static long take(int from, int *fd, int *flags)
{
	char byte;
	struct iovec iov = { &byte, 1 };

	return rights_recv(from, &iov, flags, fd);
}

START_TEST(one_comes)
{
	int pair[2], sock = socket(AF_INET, SOCK_STREAM, 0), fd, flags, was;

	begin();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	was = count_open();
	pass(pair[0], &sock, 1);
	ck_assert_int_eq(take(pair[1], &fd, &flags), 1);
	ck_assert_int_ge(fd, fd_high());
	ck_assert(fdtab_internal(fd));
	ck_assert(!(flags & MSG_CTRUNC));
	ck_assert(rights_done(fd));
	ck_assert_int_eq(count_open(), was);
	ck_assert_int_eq(threads, 0);
}
END_TEST

/* What a look has got is not kept if the record cannot be taken after it; it comes with the
 * next. */
START_TEST(none_comes)
{
	int pair[2], sock = socket(AF_INET, SOCK_STREAM, 0), fd, flags, was;

	begin();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	was = count_open();
	pass(pair[0], &sock, 1);
	fails = SYS_recvmsg;
	ck_assert_int_eq(take(pair[1], &fd, &flags), -EMFILE);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_open(), was);
	fails = -1;
	ck_assert_int_eq(take(pair[1], &fd, &flags), 1);
	ck_assert(rights_done(fd));
	ck_assert_int_eq(count_open(), was);
}
END_TEST

/* Beyond a limit that was lowered there is no other file for the number. */
START_TEST(no_other_file)
{
	int fd = odd_file();

	begin();
	fails = SYS_dup3;
	put(fd);
	closer_start();
	pthread_join(thread, NULL);
	ck_assert(!is_open(fd));
	ck_assert(!fdtab_get(fd));
}
END_TEST

#define DEEP 25		/* names of 200 bytes: longer than /proc tells */

/* A file of which /proc tells nothing is of no known kind, and no proof that we cannot look at. */
START_TEST(no_proof_for_a_long_name)
{
	char name[201], path[] = "/tmp/rdmashim.closer.XXXXXX";
	int dirs[DEEP + 1], pair[2], fd, flags, last;

	begin();
	no_thread = true;
	memset(name, 'n', 200);
	name[200] = 0;
	ck_assert(mkdtemp(path));
	dirs[0] = open(path, O_PATH);
	for (int i = 0; i < DEEP; i++) {
		ck_assert_int_eq(mkdirat(dirs[i], name, 0700), 0);
		dirs[i + 1] = openat(dirs[i], name, O_PATH);
	}
	last = dirs[DEEP];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pass(pair[0], &last, 1);
	ck_assert_int_eq(proof_inode(last), 0);
	ck_assert_int_eq(take(pair[1], &fd, &flags), -EPROTO);
	ck_assert_int_eq(fd_aparts(FD_APART_OTHER), 1);
	for (int i = DEEP; i-- > 0;)
		unlinkat(dirs[i], name, AT_REMOVEDIR);
	rmdir(path);
}
END_TEST

/* Who passes gigabytes and releases them leaves it to us to free them: not to a thread for which
 * others wait. */
START_TEST(large_memory)
{
	static char mib[1 << 20];
	int fd = (int)syscall(SYS_memfd_create, "large", 1), low;

	begin();
	no_thread = true;
	for (int i = 0; i < (_i ? 5 : 1); i++)
		ck_assert_int_eq(write(fd, mib, sizeof mib), sizeof mib);
	low = fd;
	fd_number_lock();
	fd = fd_internal_place(low);
	fd_number_unlock();
	close(low);
	ck_assert(rights_done(fd));
	ck_assert_int_eq(fd_aparts(FD_APART_OTHER), _i);
	ck_assert_int_eq(is_open(fd), _i);
	run(&works[FD_APART_OTHER]);
	ck_assert(!is_open(fd));
}
END_TEST

/* Of 253, of which some are odd, a few are ours until they are closed, and none is lost. */
START_TEST(as_many_as_can_come)
{
	int pair[2], fds[FDS_MAX], odd = _i ? odd_file() : -1, fd, flags, was;
	int sock = socket(AF_INET, SOCK_STREAM, 0);

	begin();
	no_thread = true;
	for (int i = 0; i < FDS_MAX; i++)
		fds[i] = _i && i % 64 == 5 ? odd : sock;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pair[1] = fd_internal_dup(pair[1]);
	was = count_open();
	pass(pair[0], fds, FDS_MAX);
	ck_assert_int_eq(take(pair[1], &fd, &flags), -EPROTO);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_le(count_open(), was + 16);
	rights_end(pair[1]);
	ck_assert(is_open(pair[1]));	/* what is left in it may linger */
	no_thread = false;
	for (int kind = 0; kind < FD_APARTS; kind++)
		run(&works[kind]);
	ck_assert(!is_open(pair[1]));
	ck_assert_int_eq(count_open(), was - (pair[1] < 1024));
	ck_assert(!fd_number_held());
}
END_TEST

/* All of a user's processes together may have as many under way as one may have open (unix(7)):
 * none of what another user has passed counts among ours. */
START_TEST(under_way)
{
	int pair[2], fds[FDS_MAX], own[2], fd, flags, st;
	struct rlimit few = { 200, 200 };
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	pid_t pid;

	begin();
	no_thread = true;
	for (int i = 0; i < FDS_MAX; i++)
		fds[i] = sock;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pass(pair[0], fds, FDS_MAX);
	pid = fork();
	if (!pid) {
		if (setgid(31337) || setuid(31337))
			_exit(77);
		if (take(pair[1], &fd, &flags) != -EPROTO)
			_exit(1);
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, own) || setrlimit(RLIMIT_NOFILE, &few))
			_exit(2);
		pass(own[0], fds, 1);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_msg(!st || st == 77 << 8, "%#x", st);
}
END_TEST

/* A socket that goes is closed apart if something is in its queue, and otherwise here. */
START_TEST(left_in_a_queue)
{
	static const struct { int type, records; bool passes; size_t len; } row[] = {
		{ SOCK_SEQPACKET, 0, false, 0 }, { SOCK_DGRAM, 0, false, 0 },
		{ SOCK_SEQPACKET, 1, false, 1 }, { SOCK_SEQPACKET, 1, true, 1 },
		{ SOCK_SEQPACKET, 1, true, 0 }, { SOCK_SEQPACKET, 2, true, 0 },
		{ SOCK_DGRAM, 1, true, 0 }, { SOCK_DGRAM, 1, true, 1 }, { SOCK_DGRAM, 2, true, 0 },
	};
	int pair[2], sock = socket(AF_INET, SOCK_STREAM, 0), on = 1, fd;

	begin();
	no_thread = true;
	ck_assert_int_eq(socketpair(AF_UNIX, row[_i].type, 0, pair), 0);
	if (row[_i].type == SOCK_DGRAM)		/* as the names of connections between hosts */
		setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	fd = fd_internal_dup(pair[1]);
	for (int i = 0; i < row[_i].records; i++)	/* of two, the first one has none */
		pass_of(pair[0], &sock, row[_i].passes && i == row[_i].records - 1, row[_i].len);
	rights_end(fd);
	ck_assert_int_eq(is_open(fd), row[_i].records > 0);
	ck_assert_int_eq(fd_aparts(FD_APART_SOCKET), row[_i].records > 0);
	ck_assert_int_eq(send(pair[0], "x", 1, MSG_NOSIGNAL), -1);
}
END_TEST

/* A kind that is not known keeps its number, under which the program cannot close it. */
START_TEST(an_odd_one_comes)
{
	int pair[2], odd = odd_file(), fd, flags, low;

	begin();
	no_thread = true;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	low = dup(0);
	close(low);
	pass(pair[0], &odd, 1);
	ck_assert_int_eq(take(pair[1], &fd, &flags), -EPROTO);
	ck_assert_int_eq(fd, -1);
	ck_assert(is_open(low));
	ck_assert(fdtab_internal(low));
	ck_assert(fd_is_apart(low));
}
END_TEST

/* A connection that lingers, and its other end, which reads nothing. */
static int lingers(int *ret_other)
{
	static char some[1 << 20];
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct linger lg = { 1, 5 };
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(l, (void *)&a, len), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (void *)&a, &len), 0);
	ck_assert_int_eq(connect(fd, (void *)&a, len), 0);
	*ret_other = accept(l, NULL, NULL);
	close(l);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof lg);
	while (send(fd, some, sizeof some, MSG_DONTWAIT) > 0)
		;
	return fd;
}

/* No number of a descriptor is left but the one that was laid by: with the record its last
 * descriptor would go, for which the peer's socket lingers. */
START_TEST(without_a_number)
{
	struct rlimit was, now;
	int pair[2], other, sock = lingers(&other), fd, flags, next, again;

	begin();
	no_thread = true;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pass(pair[0], &sock, 1);
	rights_ready();
	ck_assert_int_ge(spare, 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = was;
	now.rlim_cur = (rlim_t)spare + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
	while ((next = dup(0)) >= 0)
		;
	close(sock);
	next = dup(0);	/* the program takes it again */
	ck_assert_int_eq(take(pair[1], &fd, &flags), 1);
	ck_assert_int_eq(fd, -1);
	ck_assert(flags & MSG_CTRUNC);
	ck_assert_int_eq(fd_aparts(FD_APART_SOCKET), 1);
	ck_assert_int_eq(spare, -1);
	again = fd_apart_next(FD_APART_SOCKET);
	ck_assert(is_open(again));
	/* It is laid by again when there is one. */
	close(next);
	close(0);
	ck_assert_int_eq(take(pair[1], &fd, &flags), -EAGAIN);
	setrlimit(RLIMIT_NOFILE, &was);
	ck_assert_int_eq(take(pair[1], &fd, &flags), -EAGAIN);
	ck_assert_int_ge(spare, 0);
	close(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("closer");
	TCase *t = tcase_create("closer");

	tcase_add_test(t, knows_a_proof);
	tcase_add_loop_test(t, large_memory, 0, 2);
	tcase_add_test(t, no_proof_for_a_long_name);
	tcase_add_test(t, closes);
	tcase_add_test(t, waits_without_the_number);
	tcase_add_test(t, keeps_the_number_of_a_known_kind);
	tcase_add_test(t, apart_from_each_other);
	tcase_add_test(t, no_thread_can_be_had);
	tcase_add_test(t, a_child);
	tcase_add_test(t, closed_by_the_program);
	tcase_add_test(t, many);
	tcase_add_test(t, one_comes);
	tcase_add_test(t, none_comes);
	tcase_add_test(t, no_other_file);
	tcase_add_loop_test(t, as_many_as_can_come, 0, 2);
	tcase_add_test(t, under_way);
	tcase_add_loop_test(t, left_in_a_queue, 0, 9);
	tcase_add_test(t, an_odd_one_comes);
	tcase_add_test(t, without_a_number);
	suite_add_tcase(s, t);
	return run_suite(s);
}
