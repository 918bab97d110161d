/* discovery_sock.c - see discovery_sock.h. No locks. */
#include "discovery/discovery_sock.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "discovery/identity.h"
#include "link/rights.h"
#include "policy/log.h"
#include "policy/words.h"

#define ABSTRACT "rdmashim1."
#define IN_DIR   "shim1."	/* shorter: the path to it must fit, too */
#define SWEEP_US 60000000
#define STALE_S  150		/* no name is open for so long: `discovery` is a minute at most */

static const char *directory(void)
{
	return policy_discovery_dir(atomic_load(&shim_policy));
}

static char *put_hex(char *p, const void *raw, size_t n)
{
	static const char hex[] = "0123456789abcdef";

	for (const uint8_t *at = raw; n--; at++) {
		*p++ = hex[*at >> 4];
		*p++ = hex[*at & 15];
	}
	return p;
}

/* 72 digits: ports and addresses. */
static char *put_ends(char *p, const struct sockaddr *client, const struct sockaddr *server)
{
	struct ctl_tuple t;
	uint8_t raw[4 + 32];

	tuple_from(&t, client, server);
	raw[0] = (uint8_t)(t.lport >> 8);
	raw[1] = (uint8_t)t.lport;
	raw[2] = (uint8_t)(t.pport >> 8);
	raw[3] = (uint8_t)t.pport;
	memcpy(raw + 4, t.laddr, 16);
	memcpy(raw + 20, t.paddr, 16);
	return put_hex(p, raw, sizeof raw);
}

static socklen_t abstract_name(struct sockaddr_un *un, const struct sockaddr *client,
			       const struct sockaddr *server)
{
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, ABSTRACT, strlen(ABSTRACT));
	return (socklen_t)(put_ends(un->sun_path + 1 + strlen(ABSTRACT), client, server) -
			   (char *)un);
}

/* ---- where a stranger has the name: a spare one, which nobody can know before it is bound ---- */

#define SPARE_DIGITS 16
#define LOOK_US      20000	/* of so many sockets as a stranger may have made we look at some */
#define LOOK_AGAIN   20		/* ... and then for so many times as long at none */

#ifndef UDIAG_SHOW_UID
#define UDIAG_SHOW_UID 0x40
#define UNIX_DIAG_UID  7
#endif

/* Our own user's listener is left over from a connection before, and goes soon. */
static bool a_strangers(const struct sockaddr_un *un, socklen_t len)
{
	struct ucred c;
	socklen_t clen = sizeof c;
	bool ours;
	int fd;

	fd = fd_moment_sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	rights_allow(fd, false);
	ours = sys(SYS_connect, fd, un, len) >= 0 &&
	       sys(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &c, &clen) >= 0 &&
	       c.uid == (uid_t)sys(SYS_geteuid);
	rights_close(fd);
	return !ours;
}

static socklen_t spare_name(struct sockaddr_un *un, socklen_t len)
{
	char *p = (char *)un + len;
	uint64_t r;

	if (sys(SYS_getrandom, &r, sizeof r, GRND_NONBLOCK) != sizeof r)
		r = now_ns();
	*p = '.';
	return (socklen_t)(put_hex(p + 1, &r, sizeof r) - (char *)un);
}

/* Is that the spare name of `un`, and a listener of the user's? Then it takes the name's place. */
static bool is_spare(const struct nlmsghdr *h, struct sockaddr_un *un, socklen_t *len, uid_t uid)
{
	size_t plain = *len - offsetof(struct sockaddr_un, sun_path),
	       whole = plain + 1 + SPARE_DIGITS;
	size_t fixed = NLMSG_ALIGN(sizeof(struct unix_diag_msg));
	const struct rtattr *a = (const void *)((const char *)NLMSG_DATA(h) + fixed);
	long left = (long)h->nlmsg_len - (long)NLMSG_LENGTH(fixed);
	const char *name = NULL;
	bool theirs = false;

	for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == UNIX_DIAG_NAME && RTA_PAYLOAD(a) == whole)
			name = RTA_DATA(a);
		if (a->rta_type == UNIX_DIAG_UID && RTA_PAYLOAD(a) == sizeof uid)
			theirs = !memcmp(RTA_DATA(a), &uid, sizeof uid);
	}
	if (!name || !theirs || memcmp(name, un->sun_path, plain) || name[plain] != '.' ||
	    ((const struct unix_diag_msg *)NLMSG_DATA(h))->udiag_state != TCP_LISTEN)
		return false;
	memcpy(un->sun_path, name, whole);
	*len += 1 + SPARE_DIGITS;
	return true;
}

/* Among all. If only those that listen were asked for, the kernel would go past any number of
 * others in one system call; so each call ends when its answer is full. 0 or -errno; -ECONNREFUSED:
 * none was found. */
static int look_for_spare(struct sockaddr_un *un, socklen_t *len, uid_t uid, uint64_t end)
{
	struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} req = {
		.h = { .nlmsg_len = sizeof req, .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.r = { .sdiag_family = AF_UNIX, .udiag_states = ~0u,
		       .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID },
	};
	union { struct nlmsghdr h; char buf[16384]; } ans;
	int fd, r = 1;
	long n;

	fd = fd_moment_sys(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return fd;
	if (sys(SYS_sendto, fd, &req, sizeof req, 0, NULL, 0) < 0)
		r = -ECONNREFUSED;
	while (r > 0 && now_us() < end) {
		n = kernel_answer(fd, &ans, sizeof ans, MSG_DONTWAIT);
		if (n <= 0)
			break;
		for (struct nlmsghdr *h = &ans.h; r > 0 && NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
				r = -ECONNREFUSED;
			else if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY && is_spare(h, un, len, uid))
				r = 0;
		}
	}
	fd_internal_close(fd);
	return r > 0 ? -ECONNREFUSED : r;
}

int discovery_sock_connect_spare(int fd, const struct sockaddr *client,
				 const struct sockaddr *server, uid_t uid)
{
	static uint64_t next;
	struct sockaddr_un un;
	uint64_t from = now_us();
	socklen_t len;
	int r;

	if (*directory())
		return -ECONNREFUSED;
	if (from < next)
		return -EAGAIN;
	len = abstract_name(&un, client, server);
	r = look_for_spare(&un, &len, uid, from + LOOK_US);
	next = now_us() + LOOK_AGAIN * (now_us() - from);
	return r ? r : (int)sys(SYS_connect, fd, &un, len);
}

/* ---- in a directory ---- */

struct place { int dir; struct sockaddr_un un; const char *name; };

/* Others who could write there could put themselves between the two. 0 or -errno, never -ENOENT. */
static int open_directory(int flags)
{
	struct stat st;
	int fd;

	if (!proc_is_ours())	/* nor is this directory, then */
		return -EPERM;
	fd = fd_moment_sys(SYS_openat, AT_FDCWD, directory(), flags | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && (sys(SYS_fstat, fd, &st) < 0 ||
			(st.st_uid && st.st_uid != (uid_t)sys(SYS_geteuid)) || st.st_mode & 022)) {
		fd_internal_close(fd);
		fd = -EPERM;
	}
	if (fd < 0)
		log_line(2, "discovery_dir %s may not be used: error %d", directory(), -fd);
	return fd == -ENOENT ? -EACCES : fd;
}

/* By way of the open directory: its own path may be too long for an address. */
static int place_of(struct place *p, const struct sockaddr *client, const struct sockaddr *server)
{
	char name[sizeof IN_DIR + 72];
	size_t at;

	p->dir = open_directory(O_PATH);
	if (p->dir < 0)
		return p->dir;
	memcpy(name, IN_DIR, sizeof IN_DIR);
	*put_ends(name + strlen(IN_DIR), client, server) = '\0';
	p->un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	at = fmt_string(p->un.sun_path, sizeof p->un.sun_path, "/proc/thread-self/fd/%d/", p->dir);
	p->name = p->un.sun_path + at;
	if (at + strlen(name) < sizeof p->un.sun_path) {
		memcpy(p->un.sun_path + at, name, strlen(name));
		return 0;
	}
	fd_internal_close(p->dir);
	return -ENAMETOOLONG;
}

static void remove_if_stale(int dir, const char *name, time_t now)
{
	struct stat st;

	if (!strncmp(name, IN_DIR, strlen(IN_DIR)) &&
	    sys(SYS_newfstatat, dir, name, &st, AT_SYMLINK_NOFOLLOW) >= 0 && S_ISSOCK(st.st_mode) &&
	    st.st_uid == (uid_t)sys(SYS_geteuid) && now - st.st_mtime > STALE_S)
		sys(SYS_unlinkat, dir, name, 0);
}

/* What processes left there that ended while they looked for somebody. */
static void sweep(void)
{
	static uint64_t next;
	_Alignas(struct dirent64) char buf[4096];
	struct timespec now;
	int dir;
	long n;

	if (now_us() < next)
		return;
	next = now_us() + SWEEP_US;
	dir = open_directory(O_RDONLY);
	if (dir < 0)
		return;
	sys(SYS_clock_gettime, CLOCK_REALTIME, &now);
	while ((n = sys(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < n; at += ((struct dirent64 *)(buf + at))->d_reclen)
			remove_if_stale(dir, ((struct dirent64 *)(buf + at))->d_name, now.tv_sec);
	fd_internal_close(dir);
}

static int open_in_directory(int fd, const struct sockaddr *client, const struct sockaddr *server)
{
	struct place p;
	int r = place_of(&p, client, server);

	if (r)
		return r;
	r = (int)sys(SYS_bind, fd, &p.un, sizeof p.un);
	if (r == -EADDRINUSE) {		/* the connection is ours: so this is left over from an
					 * earlier one */
		sys(SYS_unlinkat, p.dir, p.name, 0);
		r = (int)sys(SYS_bind, fd, &p.un, sizeof p.un);
	}
	fd_internal_close(p.dir);
	return r == -ENOENT ? -EACCES : r;
}

/* ---- either ---- */

int discovery_sock_open(int fd, const struct sockaddr *client, const struct sockaddr *server)
{
	struct sockaddr_un un;
	socklen_t len;
	int r;

	if (*directory()) {
		sweep();
		return open_in_directory(fd, client, server);
	}
	len = abstract_name(&un, client, server);
	r = (int)sys(SYS_bind, fd, &un, len);
	if (r == -EADDRINUSE && a_strangers(&un, len))
		r = (int)sys(SYS_bind, fd, &un, spare_name(&un, len));
	return r;
}

int discovery_sock_connect(int fd, const struct sockaddr *client, const struct sockaddr *server)
{
	struct sockaddr_un un;
	socklen_t len;
	struct place p;
	int r;

	if (!*directory()) {
		len = abstract_name(&un, client, server);
		return (int)sys(SYS_connect, fd, &un, len);
	}
	r = place_of(&p, client, server);
	if (r)
		return r;
	r = (int)sys(SYS_connect, fd, &p.un, sizeof p.un);
	fd_internal_close(p.dir);
	return r == -ENOENT ? -ECONNREFUSED : r;
}

void discovery_sock_close(const struct sockaddr *client, const struct sockaddr *server)
{
	struct place p;

	if (!*directory() || place_of(&p, client, server))
		return;
	sys(SYS_unlinkat, p.dir, p.name, 0);
	fd_internal_close(p.dir);
}
