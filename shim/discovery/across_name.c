/*
 * across_name.c - what the two ends of a connection between network namespaces know and others do
 * not (docs/namespaces.md): a name in the policy's cross_ns_dir, and macs that prove who they are.
 *
 * Background thread only. Locks: none.
 */
#include "discovery/across_name.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/procs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "discovery/net_call.h"
#include "discovery/netkey.h"
#include "link/link.h"
#include "policy/log.h"
#include "policy/words.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77		/* asm-generic/socket.h, since 6.5 */
#endif
#define PIDFS 0x50494446	/* linux/magic.h; its inodes are one number for all, since 6.9 */

#define NAME "shim1n."

_Static_assert(NETKEY_MAC == ACROSS_MAC, "across.h and netkey.h");

static const char *directory(void)
{
	return policy_cross_ns_dir(atomic_load(&shim_policy));
}

static const char *key_file(void) { return policy_key_file(atomic_load(&shim_policy)); }

/* ---- macs ---- */

/* What a mac is over. Its name has no processes. */
struct said {
	char label[16];
	uint8_t boot[16];
	uint32_t isn[2];	/* client's, server's */
	uint64_t process[2];	/* the same: inodes of their pidfds */
};

static bool mac_of_said(const char *label, struct said *s, uint8_t mac[ACROSS_MAC])
{
	memcpy(s->label, label, strlen(label));
	memset(mac, 0, ACROSS_MAC);
	return netkey_mac(key_file(), s, sizeof(*s), mac);
}

static bool mac_of(const char *label, const uint32_t isn[2], uint64_t client, uint64_t server,
		   uint8_t mac[ACROSS_MAC])
{
	struct said s = { .isn = { isn[0], isn[1] }, .process = { client, server } };

	net_boot_id(s.boot);
	return mac_of_said(label, &s, mac);
}

bool across_make_mac(const uint32_t isn[2], bool by_server, uint64_t client, uint64_t server,
		     uint8_t mac[ACROSS_MAC])
{
	return client && server &&
	       mac_of(by_server ? "across server" : "across client", isn, client, server, mac);
}

bool across_mac_right(const uint32_t isn[2], bool by_server, uint64_t client, uint64_t server,
		      const uint8_t mac[ACROSS_MAC])
{
	uint8_t want[ACROSS_MAC];

	return across_make_mac(isn, by_server, client, server, want) && netkey_same(want, mac);
}

/* ---- processes ---- */

static uint64_t inode_of(int pidfd)
{
	struct statfs fs;
	struct stat st;

	return sys(SYS_fstatfs, pidfd, &fs) < 0 || fs.f_type != PIDFS ||
			       sys(SYS_fstat, pidfd, &st) < 0
		       ? 0
		       : st.st_ino;
}

uint64_t across_self(void)
{
	static uint64_t inode;
	static long of;		/* a child is another one */
	long pid = sys(SYS_getpid);
	int fd;

	if (of == pid)
		return inode;
	fd = fd_moment_sys(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return 0;
	inode = inode_of(fd);
	of = pid;
	fd_internal_close(fd);
	return inode;
}

int across_process(int sock, uint64_t *ret_inode)
{
	uint32_t len = sizeof(int);
	int fd = -1;
	long r;

	*ret_inode = 0;
	fd_number_lock();
	r = fd_may_make() ? sys(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len)
			  : -EMFILE;
	fd = fd_internal_made(r < 0 ? (int)r : fd, true);
	if (fd >= 0)
		*ret_inode = inode_of(fd);
	return fd;
}

/* ---- names ---- */

struct place { int dir; struct sockaddr_un un; char name[ACROSS_LEAF]; uint8_t mac[ACROSS_MAC]; };

static void leaf(const char *begin, const uint8_t name[ACROSS_NAME], const char *end,
		 char ret[ACROSS_LEAF])
{
	static const char hex[] = "0123456789abcdef";
	char digits[2 * ACROSS_NAME + 1] = "";

	for (int i = 0; i < ACROSS_NAME; i++) {
		digits[2 * i] = hex[name[i] >> 4];
		digits[2 * i + 1] = hex[name[i] & 15];
	}
	fmt_string(ret, ACROSS_LEAF, "%s%s%s", begin, digits, end);
}

void across_leaf_of(const uint8_t name[ACROSS_NAME], const char *end, char ret[ACROSS_LEAF])
{
	leaf(NAME, name, end, ret);
}

bool across_leaf(const char *begin, const char *label, const uint32_t said[2],
		 char ret[ACROSS_LEAF])
{
	struct said s = { .isn = { said[0], said[1] } };
	uint8_t mac[ACROSS_MAC];

	if (!mac_of_said(label, &s, mac))
		return false;
	leaf(begin, mac, "", ret);
	return true;
}

/*
 * Its group may write there, as long as nobody takes another's name away; that is who may have the
 * key. Others not, nor read: who does may keep the kernel's lock of it, by memory that never comes
 * (docs/security.md), and then not even SIGKILL ends who waits for that.
 */
static bool may_be_used(const struct stat *st)
{
	return !(st->st_mode & 06) && (!(st->st_mode & 020) || st->st_mode & S_ISVTX) &&
	       (!st->st_uid || st->st_uid == OVERFLOW_UID ||
		st->st_uid == (uid_t)sys(SYS_geteuid));
}

/* 0 or -errno. */
static int open_directory(void)
{
	struct stat st;
	int fd = !proc_is_ours() ? -EPERM
				 : fd_moment_sys(SYS_openat, AT_FDCWD, directory(),
						 O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && (sys(SYS_fstat, fd, &st) < 0 || !may_be_used(&st))) {
		fd_internal_close(fd);
		fd = -EPERM;
	}
	if (fd < 0)
		log_line(2, "cross_ns_dir %s may not be used: error %d", directory(), -fd);
	return fd == -ENOENT ? -EACCES : fd;
}

static int place_of(struct place *p, const uint32_t isn[2], const char *end)
{
	if (!mac_of("across name", isn, 0, 0, p->mac))
		return -EACCES;
	across_leaf_of(p->mac, end, p->name);
	p->dir = open_directory();
	if (p->dir < 0)
		return p->dir;
	p->un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	fmt_string(p->un.sun_path, sizeof(p->un.sun_path), "/proc/thread-self/fd/%d/%s", p->dir,
		   p->name);
	return 0;
}

/* Who has it is told by what lies beside it. */
static void say_taken(const uint32_t isn[2])
{
	struct place p;

	if (place_of(&p, isn, ACROSS_TAKEN))
		return;
	sys(SYS_mkdirat, p.dir, p.name, 0);
	fd_internal_close(p.dir);
}

int across_name_open(int fd, const uint32_t isn[2])
{
	struct place p;
	int r = place_of(&p, isn, "");

	if (r)
		return r;
	across_left_add(p.dir, p.mac);
	r = (int)sys(SYS_bind, fd, &p.un, sizeof(p.un));
	if (r)
		across_left_remove(p.dir, p.mac);
	fd_internal_close(p.dir);
	if (r == -EADDRINUSE)
		say_taken(isn);
	return r == -ENOENT ? -EACCES : r;
}

bool across_name_taken(const uint32_t isn[2])
{
	struct place p;
	struct stat st;
	bool there;

	if (place_of(&p, isn, ACROSS_TAKEN))
		return true;
	there = sys(SYS_newfstatat, p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) != -ENOENT;
	fd_internal_close(p.dir);
	return there;
}

void across_name_close(const uint32_t isn[2])
{
	struct place p;

	if (place_of(&p, isn, ""))
		return;
	sys(SYS_unlinkat, p.dir, p.name, 0);
	across_left_remove(p.dir, p.mac);
	fd_internal_close(p.dir);
	if (place_of(&p, isn, ACROSS_TAKEN))
		return;
	sys(SYS_unlinkat, p.dir, p.name, AT_REMOVEDIR);
	fd_internal_close(p.dir);
}

int across_name_connect(int fd, const uint32_t isn[2])
{
	struct place p;
	int r = place_of(&p, isn, ""), at;

	if (r)
		return r;
	/* What is there itself: connect() would follow a link, and go where its maker may not. */
	at = fd_moment_sys(SYS_openat, p.dir, p.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	r = at;
	if (at >= 0) {
		fmt_string(p.un.sun_path, sizeof(p.un.sun_path), "/proc/thread-self/fd/%d", at);
		r = (int)sys(SYS_connect, fd, &p.un, sizeof(p.un));
		fd_internal_close(at);
	}
	fd_internal_close(p.dir);
	return r == -ENOENT ? -ECONNREFUSED : r;
}

/* ---- may it be? ---- */

int across_possible(void)
{
	int fd, r;

	if (!*directory())
		return -ENOENT;
	r = netkey_check(key_file());
	if (r || !across_self())
		return -EPERM;
	fd = open_directory();
	if (fd < 0)
		return -EPERM;
	fd_internal_close(fd);
	return 0;
}
