/*
 * refused.c - calls that cannot succeed, beside a connection on the fast path: they change nothing.
 *
 *	refused [fast | bare [CASE]]
 *
 * Prints each call with its error. fast: after each of them a message must come without the
 * kernel's TCP again, by the kernel's own count.
 */
#include <aio.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/tcp.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
#define MSG 1000
#define PATIENCE 10	/* s */
#define BAD ((void *)8)

static int fd, other, pipe_r, pipe_w;
static int lone, left;	/* UNIX sockets: connected with nobody; with one that is closed */
static unsigned round_;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t kernel_received(void)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof ti;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len))
		die("TCP_INFO");
	return ti.tcpi_bytes_received;
}

/* True: the answer came without TCP. */
static int turn(void)
{
	unsigned char out[MSG], in[MSG];
	uint64_t before = kernel_received();

	round_++;
	for (size_t i = 0; i < MSG; i++)
		out[i] = (unsigned char)(round_ * 7 + i);
	if (send(fd, out, MSG, MSG_NOSIGNAL) != MSG || recv(fd, in, MSG, MSG_WAITALL) != MSG)
		die("a turn");
	if (memcmp(out, in, MSG))
		exit((fprintf(stderr, "wrong bytes in turn %u\n", round_), 1));
	return kernel_received() == before;
}

static int fast_again(void)
{
	time_t end = time(NULL) + PATIENCE;

	while (!turn())
		if (time(NULL) > end)
			return 0;
	return 1;
}

/* ---- seccomp ---- */

static long filter(unsigned flags, const struct sock_filter *f, unsigned short n)
{
	struct sock_fprog p = { .len = n, .filter = (struct sock_filter *)f };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p);
}

static const struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
static const struct sock_filter unknown[] = { BPF_STMT(0xfff0, 0),
					      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
static const struct sock_filter endless[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0) };
static const struct sock_filter beyond[] = { BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 7, 7),
					     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
static const struct sock_filter odd[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 3),
					  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };

static long probe(void) { return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL); }
static long probe_tsync(void) { return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1, NULL); }
static long probe_listener(void) { return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8, NULL); }
static long probe_prctl(void) { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0); }
static long probe_raw_prctl(void)
{
	return syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0);
}
static long prctl_mode(void) { return prctl(PR_SET_SECCOMP, 77, NULL, 0, 0); }
static long seccomp_flags(void) { return filter(1u << 30, allow, 1); }
static long seccomp_op(void) { return syscall(SYS_seccomp, 99, 0, NULL); }
static long strict_flags(void) { return syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL); }
static long strict_arg(void) { return syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, allow); }
static long filter_empty(void) { return filter(0, allow, 0); }
static long filter_long(void) { return filter(0, allow, BPF_MAXINSNS + 1); }
static long filter_unreadable(void) { return filter(0, BAD, 3); }
static long filter_unknown(void) { return filter(0, unknown, 2); }
static long filter_endless(void) { return filter(0, endless, 1); }
static long filter_beyond(void) { return filter(0, beyond, 2); }
static long filter_odd(void) { return filter(0, odd, 2); }

/* Without CAP_SYS_ADMIN and PR_SET_NO_NEW_PRIVS. */
static long filter_rights(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct had[2], less[2];
	long r;
	int e;

	if (syscall(SYS_capget, &h, had))
		die("capget");
	memcpy(less, had, sizeof had);
	less[0].effective &= ~(1u << CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &h, less))
		die("capset");
	r = filter(0, allow, 1);
	e = errno;
	if (syscall(SYS_capset, &h, had))
		die("capset");
	errno = e;
	return r;
}

/* ---- namespaces, io_uring, libraries ---- */

static long unshare_flags(void) { return unshare(CLONE_NEWUSER | CLONE_NEWPID | 1); }
static long setns_closed(void) { return setns(-1, CLONE_NEWUSER | CLONE_NEWPID); }
static long setns_pipe(void) { return setns(pipe_r, CLONE_NEWUSER | CLONE_NEWPID); }
static long setup_none(void) { return syscall(SYS_io_uring_setup, 0, NULL); }
static long enter_closed(void) { return syscall(SYS_io_uring_enter, -1, 1, 0, 0, NULL, 0); }
static long enter_pipe(void) { return syscall(SYS_io_uring_enter, pipe_r, 1, 0, 0, NULL, 0); }
static long register_closed(void)
{
	return syscall(SYS_io_uring_register, -1, IORING_REGISTER_FILES, &fd, 1);
}
static long register_pipe(void)
{
	return syscall(SYS_io_uring_register, pipe_r, IORING_REGISTER_FILES, &fd, 1);
}
static long opened(void *p) { return errno = 0, p ? 0 : -1; }
static long open_absent(void)
{
	return opened(dlopen("/nonexistent/lib.so", RTLD_NOW | RTLD_DEEPBIND));
}
static long open_mode(void) { return opened(dlopen("/usr/lib/os-release", RTLD_DEEPBIND)); }
static long dlm_absent(void)
{
	return opened(dlmopen(LM_ID_NEWLM, "/nonexistent/lib.so", RTLD_NOW));
}

/* ---- the connection ---- */

static long listen_connected(void) { return listen(fd, 5); }
static long connect_unreadable(void) { return connect(fd, BAD, 16); }
static long connect_long(void)
{
	struct sockaddr_storage a[2] = { { .ss_family = AF_UNSPEC } };

	return connect(fd, (struct sockaddr *)a, sizeof a);
}
static long option_unknown(void)
{
	return setsockopt(fd, SOL_SOCKET, 9999, &(int){ 1 }, sizeof(int));
}
static long option_ulp(void) { return setsockopt(fd, IPPROTO_TCP, TCP_ULP, "nosuch", 6); }
static long option_filter(void)
{
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, BAD, sizeof(struct sock_fprog));
}
static long zerocopy_receive(void)
{
	return getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, BAD, &(socklen_t){ 1 });
}
static long async_unreadable(void) { return ioctl(fd, FIOASYNC, BAD); }
static long fdopen_mode(void) { return fdopen(fd, "x") ? 0 : -1; }
static long aio_priority(void)
{
	static struct aiocb cb = { .aio_reqprio = -1 };
	static char c;

	cb.aio_fildes = fd;
	cb.aio_buf = &c;
	cb.aio_nbytes = 1;
	return aio_read(&cb);
}
static long lio_mode(void)
{
	struct aiocb cb = { .aio_fildes = fd, .aio_lio_opcode = LIO_READ }, *list[] = { &cb };

	return lio_listio(99, list, 1, NULL);
}
static long splice_sockets(void) { return splice(fd, NULL, other, NULL, 10, 0); }
static long splice_offset(void) { return splice(fd, &(loff_t){ 0 }, pipe_w, NULL, 10, 0); }
static long sendfile_closed(void) { return sendfile(fd, -1, NULL, 10); }
static long sendfile_socket(void) { return sendfile(fd, lone, NULL, 10); }
static long urgent_none(void) { return recv(fd, &(char){ 0 }, 1, MSG_OOB); }
static long urgent_unreadable(void) { return send(fd, BAD, 1, MSG_OOB | MSG_NOSIGNAL); }
static long preadv_flags(void)
{
	return preadv2(fd, &(struct iovec){ &(char){ 0 }, 1 }, 1, -1, 1 << 30);
}
static long pwritev_flags(void) { return pwritev2(fd, &(struct iovec){ "x", 1 }, 1, -1, 1 << 30); }
static long epoll_closed(void)
{
	return epoll_ctl(-1, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = EPOLLIN });
}
static long epoll_pipe(void)
{
	return epoll_ctl(pipe_r, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = EPOLLIN });
}
static long dup_beyond(void) { return dup2(fd, 1 << 30); }
static long close_flags(void) { return close_range(3, ~0u, 1 << 20); }

static long message(int by, int level, int type, const int *fds, size_t n)
{
	union { char b[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr align; } u = { .b = "" };
	struct iovec io = { "x", 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = &u,
			    .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ CMSG_LEN(n * sizeof(int)), level, type };
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(by, &m, MSG_NOSIGNAL);
}
static long control_unknown(void) { return message(fd, SOL_SOCKET, 0x1234, (int[]){ 1 }, 1); }
static long pass_alone(void) { return message(lone, SOL_SOCKET, SCM_RIGHTS, &fd, 1); }
static long pass_closed(void) { return message(-1, SOL_SOCKET, SCM_RIGHTS, &fd, 1); }
static long pass_ended(void) { return message(left, SOL_SOCKET, SCM_RIGHTS, &fd, 1); }
static long pass_pipe(void) { return message(pipe_w, SOL_SOCKET, SCM_RIGHTS, &fd, 1); }

/* ---- other programs ---- */

static char *const nobody[] = { "nosuch", NULL };
static long exec_absent(void) { return execve("/nonexistent/program", nobody, environ); }
static long exec_path(void) { return execvp("no-such-program-anywhere", nobody); }
static long exec_directory(void) { return execl("/", "nosuch", NULL); }
static long spawn_absent(void)
{
	return errno = posix_spawn(&(pid_t){ 0 }, "/nonexistent/program", NULL, NULL, nobody,
				   environ),
	       errno ? -1 : 0;
}

#define CASE(name) { #name, name }
static const struct { const char *name; long (*call)(void);
} cases[] = {
	CASE(probe),
	CASE(probe_tsync),
	CASE(probe_listener),
	CASE(probe_prctl),
	CASE(probe_raw_prctl),
	CASE(prctl_mode),
	CASE(seccomp_flags),
	CASE(seccomp_op),
	CASE(strict_flags),
	CASE(strict_arg),
	CASE(filter_empty),
	CASE(filter_long),
	CASE(filter_unreadable),
	CASE(filter_unknown),
	CASE(filter_endless),
	CASE(filter_beyond),
	CASE(filter_odd),
	CASE(filter_rights),
	CASE(unshare_flags),
	CASE(setns_closed),
	CASE(setns_pipe),
	CASE(setup_none),
	CASE(enter_closed),
	CASE(enter_pipe),
	CASE(register_closed),
	CASE(register_pipe),
	CASE(open_absent),
	CASE(open_mode),
	CASE(dlm_absent),
	CASE(listen_connected),
	CASE(connect_unreadable),
	CASE(connect_long),
	CASE(option_unknown),
	CASE(option_ulp),
	CASE(option_filter),
	CASE(zerocopy_receive),
	CASE(async_unreadable),
	CASE(fdopen_mode),
	CASE(aio_priority),
	CASE(lio_mode),
	CASE(splice_sockets),
	CASE(splice_offset),
	CASE(sendfile_closed),
	CASE(sendfile_socket),
	CASE(urgent_none),
	CASE(urgent_unreadable),
	CASE(preadv_flags),
	CASE(pwritev_flags),
	CASE(epoll_closed),
	CASE(epoll_pipe),
	CASE(dup_beyond),
	CASE(close_flags),
	CASE(control_unknown),
	CASE(pass_alone),
	CASE(pass_closed),
	CASE(pass_ended),
	CASE(pass_pipe),
	CASE(exec_absent),
	CASE(exec_path),
	CASE(exec_directory),
	CASE(spawn_absent),
};

/* Before the connection is first on the fast path: a program in a forked child has it, too, and
 * ends, but nobody has asked after it. False: it stays on TCP. */
static int fast_after_child(int fast)
{
	siginfo_t si;
	pid_t pid = fork();
	int ok;

	if (!pid) {
		execl("/proc/self/exe", "refused", "nothing", NULL);
		_exit(1);
	}
	if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) || si.si_status)
		die("the child");
	ok = !fast || fast_again();
	waitpid(pid, NULL, 0);
	return ok;
}

static int echo(const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(port)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int c = socket(AF_INET, SOCK_STREAM, 0);
	char b[MSG];

	if (connect(c, (struct sockaddr *)&a, sizeof a))
		die("connect");
	while (recv(c, b, MSG, MSG_WAITALL) == MSG)
		if (send(c, b, MSG, MSG_NOSIGNAL) != MSG)
			die("send");
	return 0;
}

static pid_t connected(const char *self)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char port[16], *args[] = { (char *)self, "echo", port, NULL };
	pid_t pid;

	if (bind(l, (struct sockaddr *)&a, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&a, &len))
		die("listen");
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ))
		die("spawn");
	fd = accept(l, NULL, NULL);	/* inheritable, so that an exec takes it along */
	if (fd < 0)
		die("accept");
	close(l);
	return pid;
}

int main(int argc, char **argv)
{
	int fast = argc > 1 && !strcmp(argv[1], "fast"), p[2], two[2], status, bad = 0;
	pid_t pid;
	long r;

	if (argc > 2 && !strcmp(argv[1], "echo"))
		return echo(argv[2]);
	if (argc > 1 && !strcmp(argv[1], "nothing"))
		return 0;
	pid = connected(argv[0]);
	lone = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (lone < 0 || other < 0 || pipe2(p, O_CLOEXEC) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two) || close(two[1]))
		die("descriptors");
	left = two[0];
	pipe_r = p[0];
	pipe_w = p[1];
	if (!fast_after_child(fast))
		exit((fprintf(stderr, "never on the fast path after a child has ended\n"), 1));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (argc > 2 && strcmp(argv[2], cases[i].name))
			continue;
		errno = 0;
		r = cases[i].call();
		printf("%s %ld %s\n", cases[i].name, r,
		       strerrorname_np(errno) ? strerrorname_np(errno) : "-");
		if (fast && !fast_again()) {
			fprintf(stderr, "after %s: on TCP\n", cases[i].name);
			bad++;
			close(fd);	/* the next calls have a new connection, if it gets one */
			waitpid(pid, &status, 0);
			pid = connected(argv[0]);
			if (!fast_again())
				exit((fprintf(stderr, "and so is the next connection\n"), 1));
		}
		turn();
	}
	close(fd);
	return bad || waitpid(pid, &status, 0) != pid || status;
}
