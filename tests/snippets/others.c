/*
 * others.c - calls of libc that are left alone, on connections: positions, message queues of
 * another age, libc's own sockets. Calls: pread pread64 __pread64 __pread_chk __pread64_chk
 * pwrite pwrite64 __pwrite64 preadv preadv64 pwritev pwritev64 readahead
 *        copy_file_range process_vm_readv process_vm_writev eventfd_read eventfd_write getmsg
 *        putmsg isastream fattach
 *        forkpty login_tty rcmd rcmd_af rexec rexec_af res_send res_nsend closelog
 * LIBS: -ldl
 */
#include <arpa/nameser.h>
#include <netdb.h>
#include <pty.h>
#include <resolv.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <syslog.h>
#include <utmp.h>

#include "snip.h"

static char t[512];

SNIPPET(no_positions, "pread pread64 __pread64 __pread_chk __pread64_chk pwrite pwrite64 "
		      "__pwrite64 preadv preadv64 pwritev pwritev64")
{
	struct iovec v = { t, 5 };

	pair();
	put(a, b, "hello");
	SAY("pread", pread(b, t, 5, 0));
	SAY("pread64", pread64(b, t, 5, 0));
	SAY("__pread64", SYM(__pread64, pread64)(b, t, 5, 0));
	SAY("__pread_chk", ((ssize_t(*)(int, void *, size_t, off_t, size_t))symbol("__pread_chk"))(
				   b, t, 5, 0, sizeof(t)));
	SAY("__pread64_chk", ((ssize_t(*)(int, void *, size_t, off_t, size_t))symbol(
				     "__pread64_chk"))(b, t, 5, 0, sizeof(t)));
	SAY("pwrite", pwrite(a, t, 5, 0));
	SAY("pwrite64", pwrite64(a, t, 5, 0));
	SAY("__pwrite64", SYM(__pwrite64, pwrite64)(a, t, 5, 0));
	SAY("preadv", preadv(b, &v, 1, 0));
	SAY("preadv64", preadv64(b, &v, 1, 0));
	SAY("pwritev", pwritev(a, &v, 1, 0));
	SAY("pwritev64", pwritev64(a, &v, 1, 0));
	SAY("lseek", lseek(a, 0, SEEK_CUR));
	SAY("nothing was taken", recv(b, t, 10, 0));
	SAY("nor sent", recv(b, t, 10, MSG_DONTWAIT));
}

SNIPPET(no_file, "readahead copy_file_range process_vm_readv process_vm_writev")
{
	struct iovec v = { t, 5 }, w = { buf, 5 };

	pair();
	SAY("readahead", readahead(a, 0, 10));
	SAY("copy_file_range", copy_file_range(a, NULL, b, NULL, 10, 0));
	SAY("fsync", fsync(a));
	SAY("ftruncate", ftruncate(a, 0));
	SAY("process_vm_readv", process_vm_readv(getpid(), &v, 1, &w, 1, 0));
	SAY("process_vm_writev", process_vm_writev(getpid(), &v, 1, &w, 1, 0));
	alive("after", a, b);
}

SNIPPET(eventfds, "eventfd_read eventfd_write")
{
	eventfd_t v = 0;
	int e = eventfd(0, EFD_NONBLOCK);

	pair();
	SAY("eventfd_write", eventfd_write(e, 5));
	SAY("eventfd_read", eventfd_read(e, &v));
	tell("%d", (int)v);
	SAY("eventfd_read, empty", eventfd_read(e, &v));
	SAY("eventfd_write on a stream", eventfd_write(a, 1));
	SAY("eventfd_read on a stream", eventfd_read(b, &v));
	tell("%d", (int)v);
}

SNIPPET(streams_of_old, "getmsg putmsg isastream fattach")
{
	/* gone from the headers; present in libc for old programs */
	static const char *const name[] = { "getmsg", "putmsg", "isastream", "fattach" };

	pair();
	for (int i = 0; i < 4; i++) {
		int (*fn)(int, void *, void *, int) = (int (*)(int, void *, void *, int))dlvsym(
			RTLD_DEFAULT, name[i], "GLIBC_2.2.5");

		if (fn)
			SAYV(name[i], fn(a, NULL, NULL, 0));
		else
			tell("no %s", name[i]);
	}
	alive("after", a, b);
}

SNIPPET(ptys, "forkpty login_tty")
{
	int m;
	pid_t p;

	pair();
	SAY("login_tty of a stream", ({
		    pid_t c;
		    fflush(stdout);
		    c = fork();
		    if (!c)
			    _exit(login_tty(a) ? 5 : 6);
		    say_end("child", c);
		    0;
	    }));
	fflush(stdout);
	p = forkpty(&m, NULL, NULL, NULL);
	if (!p) {
		send(a, "child", 5, 0);
		_exit(0);
	}
	tell("forkpty: %d", p > 0);
	SAY("recv", recv(b, t, 5, MSG_WAITALL));
	say_end("child", p);
	alive("after", a, b);
}

/* ---- clients that libc has inside ---- */

static struct sockaddr_in where;
static int server = -1;
static pthread_t server_thread;
static int word(int fd, char *to)
{
	int n = 0;

	while (n < 60 && recv(fd, to + n, 1, 0) == 1 && to[n])
		n++;
	to[n] = 0;
	return n;
}
static void *old_server(void *arg)
{
	char w[64];
	int d = accept(server, NULL, NULL);

	word(d, w);	/* the port for errors: none */
	word(d, w);
	word(d, w);
	word(d, w);
	send(d, "", 1, 0);
	send(d, w, strlen(w), 0);
	close(d);
	return arg;
}
static void answer_of(const char *what, int fd)
{
	ssize_t n, at = 0;

	while (fd >= 0 && (n = read(fd, t + at, sizeof(t) - (size_t)at)) > 0)
		at += n;
	say_bytes(what, t, fd < 0 ? -1 : at);
	close(fd);
}
static void serve(void *(*fn)(void *))
{
	server = listener_at(&where);
	pthread_create(&server_thread, NULL, fn, NULL);
}

SNIPPET(remote_shell, "rcmd rcmd_af rexec rexec_af")
{
	char *host = getenv("SNIP_ADDR") ?: "127.0.0.1", *h = host;

	pair();
	serve(old_server);
	answer_of("rcmd", rcmd(&h, where.sin_port, "me", "you", "command by rcmd", NULL));
	pthread_join(server_thread, NULL);
	h = host;
	serve(old_server);
	answer_of("rcmd_af",
		  rcmd_af(&h, where.sin_port, "me", "you", "command by rcmd_af", NULL, AF_INET));
	pthread_join(server_thread, NULL);
	h = host;
	serve(old_server);
	answer_of("rexec", rexec(&h, where.sin_port, "me", "secret", "command by rexec", NULL));
	pthread_join(server_thread, NULL);
	h = host;
	serve(old_server);
	answer_of("rexec_af", rexec_af(&h, where.sin_port, "me", "secret", "command by rexec_af",
				       NULL, AF_INET));
	pthread_join(server_thread, NULL);
	alive("after", a, b);
}

/* A name server on TCP that turns each question into an answer without any. */
static void *name_server(void *arg)
{
	unsigned char q[512];
	int d = accept(server, NULL, NULL);

	while (recv(d, q, 2, MSG_WAITALL) == 2) {
		ssize_t n = q[0] << 8 | q[1];

		if (n > 500 || recv(d, q + 2, (size_t)n, MSG_WAITALL) != n)
			break;
		q[4] |= 0x80;
		send(d, q, (size_t)n + 2, 0);
	}
	close(d);
	return arg;
}
SNIPPET(resolver, "res_send res_nsend __res_send __res_nsend __res_nclose")
{
	unsigned char q[512], ans[512];
	int n;

	pair();
	serve(name_server);
	res_init();
	_res.nscount = 1;
	_res.nsaddr_list[0] = where;
	_res.options |= RES_USEVC | RES_STAYOPEN;
	_res.retrans = 2;
	_res.retry = 1;
	n = res_mkquery(ns_o_query, "example.invalid", ns_c_in, ns_t_a, NULL, 0, NULL, q,
			sizeof(q));
	tell("question %d", n);
	SAYV("res_send", res_send(q, n, ans, sizeof(ans)));
	SAYV("res_nsend", res_nsend(&_res, q, n, ans, sizeof(ans)));
	SAYV("__res_send", SYM(__res_send, res_send)(q, n, ans, sizeof(ans)));
	SAYV("__res_nsend", SYM(__res_nsend, res_nsend)(&_res, q, n, ans, sizeof(ans)));
	((void (*)(res_state))symbol("__res_nclose"))(&_res);
	pthread_join(server_thread, NULL);
	alive("after", a, b);
}

SNIPPET(logs, "closelog")
{
	pair();
	openlog("snippet", LOG_NDELAY, LOG_USER);
	closelog();
	alive("after", a, b);
}

SNIPPET(proc_self_fd, "close socket")
{
	char path[64];
	struct stat s1, s2;

	/* one kernel object for life */
	pair();
	fstat(a, &s1);
	alive("it", a, b);
	fstat(a, &s2);
	tell("the same inode %d", s1.st_ino == s2.st_ino);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", a);
	tell("a socket %d", readlink(path, t, sizeof(t)) > 0 && !strncmp(t, "socket:", 7));
	SAY("open by name", open(path, O_RDWR));
}
