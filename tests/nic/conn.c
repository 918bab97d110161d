/*
 * conn.c - a program's connection to the device's process: one, made at first use, made anew in a
 * child of fork. SIMNIC_DIR says where that process is, SIMNIC_NODE on which of its nodes this
 * program runs ("a").
 */
#include "lib.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sock = -1;
static long owner;
static struct nic_page *page;
static struct nic_db *db;
static _Atomic uint32_t *asleep;

const struct nic_page *nic_page(void) { return page; }

/* The kernel lets those who wait for a descriptor that was closed meanwhile wait on; they are woken
 * after a while here. */
int nic_ended(int fd)
{
	struct timespec t = { 1, 0 };

	if (raw(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK)
		return EAGAIN;
	raw(SYS_nanosleep, &t, NULL);
	return EIO;
}

void *nic_map(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	raw(SYS_close, fd);
	return p == MAP_FAILED ? NULL : p;
}

void nic_spin_until(uint64_t ns)
{
	while (nic_now() < ns)
		nic_pause();
}

void nic_doorbell(uint32_t index)
{
	atomic_fetch_or(&db->bits[index / 64], 1ull << index % 64);
	atomic_fetch_or(&db->summary, 1ull << index / 64);
	if (atomic_load(asleep) && atomic_exchange(asleep, 0))
		raw(SYS_futex, asleep, FUTEX_WAKE, 1);
}

static int exchange(struct nic_req *req, struct nic_rep *rep, struct nic_fds *fds)
{
	char control[CMSG_SPACE(NIC_FDS * sizeof(int))] = { 0 };
	struct iovec v = { req, sizeof *req };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct cmsghdr *h;
	long n;

	if (fds && fds->nin) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE((size_t)fds->nin * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN((size_t)fds->nin * sizeof(int));
		memcpy(CMSG_DATA(h), fds->in, (size_t)fds->nin * sizeof(int));
	}
	while ((n = raw(SYS_sendmsg, sock, &m, MSG_NOSIGNAL)) == -EINTR)
		;
	if (n < 0)
		return EIO;
	v = (struct iovec){ rep, sizeof *rep };
	m = (struct msghdr){ .msg_iov = &v,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control };
	while ((n = raw(SYS_recvmsg, sock, &m, MSG_CMSG_CLOEXEC)) == -EINTR)
		;
	if (n != (long)sizeof *rep)
		return EIO;
	h = CMSG_FIRSTHDR(&m);
	if (fds && h && h->cmsg_type == SCM_RIGHTS) {
		fds->nout = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds->out, CMSG_DATA(h), (size_t)fds->nout * sizeof(int));
	}
	return rep->err;
}

static int hello(void)
{
	struct nic_req req = { .op = OP_HELLO };
	struct nic_rep rep;
	struct nic_fds fds = { 0 };
	const char *node = getenv("SIMNIC_NODE");
	int r;

	snprintf((char *)req.data, 32, "%s", node ? node : "a");
	r = exchange(&req, &rep, &fds);
	if (r || fds.nout != 2)
		return r ? r : EIO;
	page = nic_map(fds.out[0], sizeof *page);
	db = nic_map(fds.out[1], sizeof *db);
	if (!page || !db)
		return ENOMEM;
	asleep = &page->engine[rep.h].asleep;
	return 0;
}

static int connect_there(void)
{
	struct sockaddr_un u = { .sun_family = AF_UNIX };
	const char *dir = getenv("SIMNIC_DIR");
	long fd;

	if (!dir ||
	    snprintf(u.sun_path, sizeof u.sun_path, "%s/ctl", dir) >= (int)sizeof u.sun_path)
		return ENODEV;
	fd = raw(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return (int)-fd;
	/* Out of the way of programs that count on small numbers. */
	sock = (int)raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 200);
	if (sock < 0)
		sock = (int)fd;
	else
		raw(SYS_close, fd);
	if (raw(SYS_connect, sock, &u, sizeof u) < 0 || hello()) {
		raw(SYS_close, sock);
		sock = -1;
		return ENODEV;
	}
	return 0;
}

static int connected(void)
{
	long me = raw(SYS_getpid);

	if (sock >= 0 && owner == me)
		return 0;
	if (sock >= 0)
		raw(SYS_close, sock);
	sock = -1;
	owner = me;
	return connect_there();
}

int nic_connected(void)
{
	int r;

	pthread_mutex_lock(&lock);
	r = connected();
	pthread_mutex_unlock(&lock);
	return r;
}

int nic_call(struct nic_req *req, struct nic_rep *rep, struct nic_fds *fds)
{
	int r;

	pthread_mutex_lock(&lock);
	memset(rep, 0, sizeof *rep);
	r = connected();
	if (!r)
		r = exchange(req, rep, fds);
	pthread_mutex_unlock(&lock);
	return r;
}

/* A child of a process whose other threads may have held it. */
static void unlock(void) { pthread_mutex_init(&lock, NULL); }
__attribute__((constructor)) static void start(void) { pthread_atfork(NULL, NULL, unlock); }
