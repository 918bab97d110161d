/*
 * calls_oracle.c - corner cases of the interposed calls, one line of output each.
 * tests/unit/test_calls.sh runs it bare and under the wrappers: the lines must be the same, the
 * kernel is the oracle. With the argument "internal": the fd in CALLS_STUB_INTERNAL is the
 * library's own and must look closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wnonnull"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"

extern char **environ;
static int a = -1, b = -1;	/* the two ends */
static struct sockaddr_in at = { .sin_family = AF_INET };
static int listener;

/* Evaluates a call with a known errno and prints result and errno. */
#define SAY(what, call) do { errno = 4711; long r_ = (long)(call); \
	printf("%s: %ld errno %d\n", what, r_, errno); } while (0)

static void fresh(void)
{
	struct sockaddr_storage who;
	socklen_t len = sizeof(who);

	close(a);
	close(b);
	a = socket(AF_INET, SOCK_STREAM, 0);
	connect(a, (struct sockaddr *)&at, sizeof(at));
	b = accept(listener, (struct sockaddr *)&who, &len);
	printf("accept: family %d len %u\n", who.ss_family, len);
}

static void arrive(const char *text)
{
	struct pollfd p = { .fd = b, .events = POLLIN };

	send(a, text, strlen(text), 0);
	poll(&p, 1, 1000);
}

static void accepting(void)
{
	char small[4];
	socklen_t len = sizeof(small);
	int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP), d;
	struct pollfd p = { .fd = c, .events = POLLOUT };

	SAY("connect nonblock", connect(c, (struct sockaddr *)&at, sizeof(at)));
	SAY("poll", poll(&p, 1, 1000));
	d = accept4(listener, (struct sockaddr *)small, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	printf("accept4: %d len %u flags %x %x\n", d >= 0, len, fcntl(d, F_GETFL) & O_NONBLOCK,
	       fcntl(d, F_GETFD));
	len = (socklen_t)-1;
	fcntl(listener, F_SETFL, O_NONBLOCK);
	SAY("accept len -1", accept(listener, (struct sockaddr *)small, &len));
	SAY("accept none", accept(listener, NULL, NULL));
	SAY("accept on a stream", accept(d, NULL, NULL));
	fcntl(listener, F_SETFL, 0);
	close(c);
	close(d);
}

static void receiving(void)
{
	char buf[100], ctl[100];
	struct iovec iov = { buf, 1 }, neg = { buf, (size_t)-1 };
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct msghdr m = { .msg_name = &ss, .msg_namelen = sizeof(ss), .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl, .msg_controllen = sizeof(ctl),
				    .msg_flags = 0x1234 };

	arrive("0123456789");
	SAY("recvfrom", recvfrom(b, buf, 1, 0, (struct sockaddr *)&ss, &len));
	printf("len %u\n", len);
	len = (socklen_t)-1;
	SAY("recvfrom len -1", recvfrom(b, buf, 1, 0, (struct sockaddr *)&ss, &len));
	SAY("recvfrom no len", recvfrom(b, buf, 1, 0, (struct sockaddr *)&ss, NULL));
	SAY("recvmsg", recvmsg(b, &m, MSG_CMSG_CLOEXEC));
	printf("name %u control %zu flags %x\n", m.msg_namelen, m.msg_controllen,
	       (unsigned)m.msg_flags);
	m.msg_name = NULL;
	m.msg_namelen = 55;
	SAY("recvmsg without name", recvmsg(b, &m, 0));
	printf("name %u control %zu flags %x\n", m.msg_namelen, m.msg_controllen,
	       (unsigned)m.msg_flags);
	SAY("peek", recv(b, buf, 1, MSG_PEEK));
	SAY("read", read(b, buf, 2));
	printf("%.2s\n", buf);
	SAY("readv", readv(b, &iov, 1));
	SAY("preadv2", preadv2(b, &iov, 1, -1, 0));
	SAY("preadv2 at 0", preadv2(b, &iov, 1, 0, 0));
	SAY("readv negative", readv(b, &neg, 1));
	SAY("readv 1025", readv(b, &iov, 1025));
	SAY("recv nothing of some", recv(b, buf, 0, MSG_DONTWAIT));
	SAY("recv null", recv(b, NULL, 1, MSG_DONTWAIT));
	SAY("recv null trunc", recv(b, NULL, 1, MSG_DONTWAIT | MSG_TRUNC));
	SAY("recvmsg null", recvmsg(b, NULL, 0));
	SAY("recv nothing of none", recv(b, buf, 0, MSG_DONTWAIT));
	SAY("read nothing", read(b, buf, 0));
	SAY("readv nothing", readv(b, &iov, 0));
	m.msg_flags = 0x1234;
	m.msg_controllen = 100;
	SAY("recvmsg none", recvmsg(b, &m, MSG_DONTWAIT));
	printf("name %u control %zu flags %x\n", m.msg_namelen, m.msg_controllen,
	       (unsigned)m.msg_flags);
	SAY("recv oob", recv(b, buf, 1, MSG_OOB));
	fresh();
	SAY("recv errqueue", recv(b, buf, 1, MSG_ERRQUEUE));
}

static void sending(void)
{
	char buf[100] = "";
	struct iovec iov = { buf, 1 };
	struct sockaddr_in other = { .sin_family = AF_INET, .sin_port = htons(9),
				     .sin_addr.s_addr = htonl(0x7f000005) };
	struct msghdr m = { .msg_name = &other, .msg_namelen = 500, .msg_iov = &iov,
			    .msg_iovlen = 1 };

	SAY("sendto address", sendto(a, "x", 1, 0, (struct sockaddr *)&other, sizeof(other)));
	SAY("sendto len 200", sendto(a, "x", 1, 0, (struct sockaddr *)&other, 200));
	SAY("sendto len 0", sendto(a, "x", 1, 0, (struct sockaddr *)&other, 0));
	SAY("sendto fastopen",
	    sendto(a, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&other, sizeof(other)));
	SAY("sendmsg name 500", sendmsg(a, &m, 0));
	m.msg_namelen = (socklen_t)-1;
	SAY("sendmsg name -1", sendmsg(a, &m, 0));
	m.msg_name = NULL;
	SAY("sendmsg null name -1", sendmsg(a, &m, 0));
	m.msg_iovlen = 1025;
	SAY("sendmsg 1025", sendmsg(a, &m, 0));
	SAY("sendmsg null", sendmsg(a, NULL, 0));
	SAY("writev", writev(a, &iov, 1));
	SAY("writev -1", writev(a, &iov, -1));
	SAY("writev nothing", writev(a, &iov, 0));
	SAY("pwritev2", pwritev2(a, &iov, 1, -1, 0));
	SAY("send nothing", send(a, buf, 0, 0));
	SAY("send null", send(a, NULL, 1, 0));
	SAY("send -1", send(a, buf, (size_t)-1, 0));
	SAY("write", write(a, buf, 3));
	SAY("send oob", send(a, buf, 1, MSG_OOB));
}

static void many(void)
{
	char buf[100];
	struct iovec iov = { buf, 1 };
	struct mmsghdr v[3];
	struct timespec t = { 1, 0 };

	for (int i = 0; i < 3; i++)
		v[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
	SAY("sendmmsg 0", sendmmsg(a, v, 0, 0));
	SAY("sendmmsg 3", sendmmsg(a, v, 3, 0));
	printf("len %u\n", v[2].msg_len);
	SAY("sendmmsg null", sendmmsg(a, NULL, 1, 0));
	recv(b, buf, 3, MSG_WAITALL);
	arrive("ab");
	SAY("recvmmsg one", recvmmsg(b, v, 3, MSG_WAITFORONE, &t));
	printf("time left %d\n", t.tv_sec == 0 && t.tv_nsec > 0);
	SAY("recvmmsg none", recvmmsg(b, v, 3, MSG_DONTWAIT, &t));
	t.tv_nsec = -1;
	SAY("recvmmsg time", recvmmsg(b, v, 3, MSG_DONTWAIT, &t));
	shutdown(a, SHUT_WR);
	SAY("recvmmsg end", recvmmsg(b, v, 3, 0, NULL));
	SAY("send after shutdown", send(a, "x", 1, 0));
	SAY("shutdown 7", shutdown(a, 7));
}

static void options(void)
{
	int on = 1, n = 0, err = 7;
	socklen_t len = 2;

	SAY("nodelay", setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
	SAY("lowat", setsockopt(a, SOL_SOCKET, SO_RCVLOWAT, &on, sizeof(on)));
	SAY("nonsense", setsockopt(a, SOL_SOCKET, 9999, &on, sizeof(on)));
	SAY("so_error", getsockopt(a, SOL_SOCKET, SO_ERROR, &err, &len));
	printf("len %u %d\n", len, err & 0xffff);
	fresh();
	arrive("abc");
	SAY("fionread", ioctl(b, FIONREAD, &n));
	printf("%d\n", n);
	SAY("fionread null", ioctl(b, FIONREAD, NULL));
	SAY("fionbio", ioctl(b, FIONBIO, &on));
	printf("%x\n", fcntl(b, F_GETFL) & O_NONBLOCK);
	SAY("setfl", fcntl(b, F_SETFL, 0));
	printf("%x\n", fcntl(b, F_GETFL) & O_NONBLOCK);
	SAY("async", fcntl(b, F_SETFL, O_ASYNC));
	SAY("ioctl bad", ioctl(999, FIONREAD, &n));
}

static void numbers(void)
{
	int d, e, null = open("/dev/null", O_RDWR);
	struct stat st;
	char c = 0;

	fresh();
	d = dup(b);
	e = fcntl(b, F_DUPFD_CLOEXEC, 30);
	printf("dup %d, at least 30: %d, cloexec %d\n", d > 2, e >= 30, fcntl(e, F_GETFD));
	arrive("xyz");
	SAY("read dup", read(d, &c, 1));
	SAY("close original", close(b));
	SAY("read copy", read(e, &c, 1));
	printf("%c\n", c);
	SAY("dup2 bad onto a stream", dup2(999, e));
	SAY("still there", fcntl(e, F_GETFD));
	SAY("dup3 same", dup3(e, e, 0));
	SAY("dup3 flags", dup3(d, e, 7));
	SAY("dup2 same", dup2(e, e) - e);
	SAY("dup2 null onto a stream", dup2(null, e) - e);
	fstat(e, &st);
	printf("character device %d\n", !!S_ISCHR(st.st_mode));
	SAY("dup2 onto null", dup2(d, null) - null);
	SAY("read there", read(null, &c, 1));
	SAY("close twice", (close(d), close(d)));
	SAY("close_range flags", close_range(3, 4, 64));
	SAY("close_range order", close_range(4, 3, 0));
	SAY("close_range", close_range(20, ~0U, 0));
	SAY("closed", fcntl(e, F_GETFD));
	SAY("here", fcntl(null, F_GETFD));
	b = null;
	SAY("raw write", syscall(SYS_write, a, "q", 1));
	SAY("read", read(b, &c, 1));
	SAY("raw dup3", syscall(SYS_dup3, b, 33, 0));
	SAY("raw close", syscall(SYS_close, 33));
	SAY("raw close again", syscall(SYS_close, 33));
	SAY("sendfile", sendfile(a, open("/proc/self/comm", O_RDONLY), NULL, 4));
	SAY("splice no pipe", splice(a, NULL, b, NULL, 1, 0));
}

static void waiting(void)
{
	struct pollfd p = { .fd = b, .events = POLLIN | POLLOUT };
	struct timespec ts = { 0, 1000000 }, bad = { 0, -1 };
	struct timeval tv = { 0, 1500000 };
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 77 }, got[2];
	sigset_t none;
	fd_set r;
	int ep = epoll_create1(EPOLL_CLOEXEC), old = epoll_create(1), ep2;

	fresh();
	p.fd = b;
	sigemptyset(&none);
	SAY("poll out", poll(&p, 1, 0));
	printf("%x\n", p.revents);
	p.events = POLLIN;
	SAY("poll 1 ms", poll(&p, 1, 1));
	SAY("ppoll", ppoll(&p, 1, &ts, &none));
	SAY("ppoll time", ppoll(&p, 1, &bad, NULL));
	SAY("poll null", poll(NULL, 1, 0));
	SAY("ctl add", epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev));
	SAY("ctl again", epoll_ctl(ep, EPOLL_CTL_ADD, b, &ev));
	SAY("ctl null", epoll_ctl(ep, EPOLL_CTL_MOD, b, NULL));
	SAY("wait none", epoll_wait(ep, got, 2, 1));
	SAY("wait max 0", epoll_wait(ep, got, 0, 1));
	SAY("wait null", epoll_wait(ep, NULL, 2, 0));
	arrive("1");
	SAY("wait one", epoll_wait(ep, got, 2, -1));
	printf("%x %u\n", got[0].events, (unsigned)got[0].data.u64);
	SAY("pwait", epoll_pwait(ep, got, 2, 0, &none));
	SAY("pwait2", epoll_pwait2(ep, got, 2, &ts, &none));
	SAY("pwait2 time", epoll_pwait2(ep, got, 2, &bad, NULL));
	SAY("raw pwait2", syscall(SYS_epoll_pwait2, ep, got, 2, &ts, NULL, 0));
	ep2 = dup(ep);
	SAY("wait dup", epoll_wait(ep2, got, 2, 0));
	SAY("ctl del", epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL));
	close(ep);
	SAY("wait none left", epoll_wait(ep2, got, 2, 0));
	SAY("close", close(ep2));
	SAY("wait closed", epoll_wait(ep2, got, 2, 0));
	SAY("wait on a stream", epoll_wait(b, got, 2, 0));
	close(old);
	FD_ZERO(&r);
	FD_SET(b, &r);
	SAY("select", select(b + 1, &r, NULL, NULL, &tv));
	printf("left %d\n", tv.tv_sec == 1 && tv.tv_usec > 0);
	read(b, &ev, 1);
	FD_SET(b, &r);
	tv = (struct timeval){ 0, 1000 };
	SAY("select none", select(b + 1, &r, NULL, NULL, &tv));
	printf("left %ld %ld set %d\n", (long)tv.tv_sec, (long)tv.tv_usec, !!FD_ISSET(b, &r));
	tv.tv_usec = -1;
	SAY("select time", select(b + 1, &r, NULL, NULL, &tv));
	SAY("pselect time", pselect(b + 1, &r, NULL, NULL, &bad, NULL));
	SAY("pselect", pselect(b + 1, &r, NULL, NULL, &ts, &none));
}

static int reap(pid_t pid)
{
	int st = 0;

	waitpid(pid, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static void processes(void)
{
	char *argv[] = { "true", NULL }, *sh[] = { "sh", "-c", "exit 5", NULL };
	pid_t pid;
	FILE *f;
	char c;

	fresh();
	fflush(stdout);
	SAY("execl none", execl("/nonexistent", "x", "y", NULL));
	SAY("execvp none", execvp("/nonexistent", argv));
	SAY("raw execve none", syscall(SYS_execve, "/nonexistent", argv, environ));
	fflush(stdout);
	pid = fork();
	if (!pid)
		execle("/bin/sh", "sh", "-c", "exit $X", NULL, (char *[]){ "X=6", NULL });
	SAY("execle", reap(pid));
	fflush(stdout);
	pid = fork();
	if (!pid)
		execlp("sh", "sh", "-c", "exit $(($# + $1))", "a", "3", "d", NULL);
	SAY("execlp", reap(pid));
	fflush(stdout);
	pid = vfork();
	if (!pid) {
		dup2(a, 60);
		close(a);
		close(b);
		execv("/bin/sh", sh);
		_exit(1);
	}
	SAY("vfork", reap(pid));
	SAY("vforked child's fd is not ours", fcntl(60, F_GETFD));
	posix_spawnp(&pid, "sh", NULL, NULL, sh, environ);
	SAY("spawn", reap(pid));
	SAY("send", send(a, "v", 1, 0));
	SAY("read", read(b, &c, 1));
	SAY("dprintf", dprintf(a, "%d%s", 42, "x"));
	f = fdopen(a, "w");
	SAY("fprintf", fprintf(f, "%d\n", 43));
	SAY("fclose", fclose(f));
	SAY("closed", fcntl(a, F_GETFD));
	SAY("all there", recv(b, (char[8]){ 0 }, 6, MSG_WAITALL));
	SAY("end", read(b, &c, 1));
}

/* 99 if the wrappers follow the fd, 0 if the kernel answered. */
static int followed(int fd)
{
	int n = -1;

	ioctl(fd, SIOCOUTQNSD, &n);
	return n;
}

/* What the wrappers remember of fds that somebody else closed, or did not. */
static void memory(void)
{
	int d;

	a = socket(AF_INET, SOCK_STREAM, 0);
	printf("followed: %d\n", followed(a));
	SAY("dup2 of nothing", dup2(999, a));
	printf("followed: %d\n", followed(a));
	fflush(stdout);
	if (!vfork()) {
		close(a);
		dup2(2, a);
		_exit(0);
	}
	SAY("vfork", wait(NULL) < 0);
	printf("followed: %d\n", followed(a));
	d = dup(a);
	printf("dup: %d\n", followed(d));
	close(a);
	printf("after close of the other: %d\n", followed(d));
	a = socket(AF_UNIX, SOCK_STREAM, 0);
	dup2(a, d);
	printf("dup2 onto: %d\n", followed(d) == 99);
}

/* The fd in the environment is open, and the library's own. */
static int internal(void)
{
	int fd = atoi(getenv("CALLS_STUB_INTERNAL"));

	SAY("close", close(fd));
	SAY("dup", dup(fd));
	SAY("dupfd", fcntl(fd, F_DUPFD, 0));
	SAY("dup2 from", dup2(fd, 70));
	dup2(2, fd - 1);
	dup2(2, fd + 1);
	SAY("close_range", close_range((unsigned)fd - 1, (unsigned)fd + 1, 0));
	SAY("before", fcntl(fd - 1, F_GETFD));
	SAY("after", fcntl(fd + 1, F_GETFD));
	SAY("kept", fcntl(fd, F_GETFD));
	closefrom(fd - 1);
	SAY("kept by closefrom", fcntl(fd, F_GETFD));
	SAY("dup2 onto", dup2(1, fd) - fd);
	SAY("close, now the application's", close(fd));
	SAY("closed", fcntl(fd, F_GETFD));
	memory();
	return 0;
}

int main(int argc, char **argv)
{
	socklen_t len = sizeof(at);

	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "internal"))
		return internal();
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&at, sizeof(at));
	listen(listener, 5);
	getsockname(listener, (struct sockaddr *)&at, &len);
	fresh();
	accepting();
	receiving();
	fresh();
	sending();
	fresh();
	many();
	fresh();
	options();
	numbers();
	waiting();
	processes();
	return 0;
}
