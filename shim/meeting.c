/* meeting.c - see meeting.h. No locks. */
#include "meeting.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "../policy/log.h"
#include "../policy/words.h"
#include "fdtab.h"
#include "identity.h"
#include "shim.h"
#include "sys.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define ABSTRACT "rdmashim1."
#define IN_DIR   "shim1."	/* shorter: the path to it must fit, too */
#define SWEEP_US 60000000
#define STALE_S  150		/* no name is open for so long: `rendezvous` is a minute at most */

static const char *directory(void)
{
	return policy_rendezvous_dir(atomic_load(&shim_policy));
}

/* 72 digits: ports and addresses. */
static char *put_ends(char *p, const struct sockaddr *client, const struct sockaddr *server)
{
	static const char hex[] = "0123456789abcdef";
	struct ctl_tuple t;
	uint8_t raw[4 + 32];

	tuple_from(&t, client, server);
	raw[0] = (uint8_t)(t.lport >> 8);
	raw[1] = (uint8_t)t.lport;
	raw[2] = (uint8_t)(t.pport >> 8);
	raw[3] = (uint8_t)t.pport;
	memcpy(raw + 4, t.laddr, 16);
	memcpy(raw + 20, t.paddr, 16);
	for (unsigned i = 0; i < sizeof raw; i++) {
		*p++ = hex[raw[i] >> 4];
		*p++ = hex[raw[i] & 15];
	}
	return p;
}

static socklen_t abstract_name(struct sockaddr_un *un, const struct sockaddr *client, const struct sockaddr *server)
{
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, ABSTRACT, strlen(ABSTRACT));
	return (socklen_t)(put_ends(un->sun_path + 1 + strlen(ABSTRACT), client, server) - (char *)un);
}

/* ---- in a directory ---- */

struct place { int dir; struct sockaddr_un un; const char *name; };

/* Others who could write there could put themselves between the two. 0 or -errno, never -ENOENT. */
static int open_directory(int flags)
{
	struct stat st;
	int fd = fd_moment_sys(SYS_openat, AT_FDCWD, directory(), flags | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && (sys(SYS_fstat, fd, &st) < 0 || (st.st_uid && st.st_uid != (uid_t)sys(SYS_geteuid)) || st.st_mode & 022)) {
		fd_internal_close(fd);
		fd = -EPERM;
	}
	if (fd < 0)
		log_line(2, "rendezvous_dir %s may not be used: error %d", directory(), -fd);
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

	if (!strncmp(name, IN_DIR, strlen(IN_DIR)) && sys(SYS_newfstatat, dir, name, &st, AT_SYMLINK_NOFOLLOW) >= 0 &&
	    S_ISSOCK(st.st_mode) && st.st_uid == (uid_t)sys(SYS_geteuid) && now - st.st_mtime > STALE_S)
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
	if (r == -EADDRINUSE) {		/* the connection is ours: so this is left over from an earlier one */
		sys(SYS_unlinkat, p.dir, p.name, 0);
		r = (int)sys(SYS_bind, fd, &p.un, sizeof p.un);
	}
	fd_internal_close(p.dir);
	return r == -ENOENT ? -EACCES : r;
}

/* ---- either ---- */

int meeting_open(int fd, const struct sockaddr *client, const struct sockaddr *server)
{
	struct sockaddr_un un;
	socklen_t len;

	if (*directory()) {
		sweep();
		return open_in_directory(fd, client, server);
	}
	len = abstract_name(&un, client, server);
	return (int)sys(SYS_bind, fd, &un, len);
}

int meeting_knock(int fd, const struct sockaddr *client, const struct sockaddr *server)
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

void meeting_close(const struct sockaddr *client, const struct sockaddr *server)
{
	struct place p;

	if (!*directory() || place_of(&p, client, server))
		return;
	sys(SYS_unlinkat, p.dir, p.name, 0);
	fd_internal_close(p.dir);
}

/* A directory reaches into other network namespaces, where the same addresses and ports, and before Linux 5.10 even the same
 * socket cookies, may belong to other connections. */
bool meeting_same_network(int fd)
{
	uint64_t theirs = 0, ours = 0;
	uint32_t len = sizeof theirs, olen = sizeof ours;
	int mine;
	bool same;

	if (!*directory())
		return true;
	mine = fd_moment_sys(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (mine < 0)
		return false;
	same = sys(SYS_getsockopt, fd, SOL_SOCKET, SO_NETNS_COOKIE, &theirs, &len) >= 0 &&
	       sys(SYS_getsockopt, mine, SOL_SOCKET, SO_NETNS_COOKIE, &ours, &olen) >= 0 && theirs == ours;
	fd_internal_close(mine);
	return same;
}
