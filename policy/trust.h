/*
 * trust.h - the one rule for files that the library, or a tool of root, believes. As ssh and
 * sudo have it, the whole path counts:
 *
 * 	- Each directory from / to the file belongs to root or to us (the effective user), and
 * 	  nobody else may write there. One with the sticky bit, such as /tmp, others may write;
 * 	  but what we take out of it must be root's or our own, and not be mounted there. So
 * 	  they may where the mount is read-only (volumes of Kubernetes).
 * 	- The file is a regular one, of root or us, and neither its group nor others may write
 * 	  to it. A policy may be /dev/null.
 * 	- A key besides: others may not read it; its group may if it is root's.
 * 	- Symbolic links are followed; all directories on the way to what they mean count. A
 * 	  link in a sticky directory must be root's or ours.
 * 	- Where / is another directory than when the first file was looked at (chroot(2)),
 * 	  only root's count, but for outputs.
 * 	- 65534 (nobody, and who has no number in this user namespace) counts as root if the
 * 	  namespace has no number for the root outside, the thing does not lie in a sticky
 * 	  directory, and it is not ours to write.
 *
 * No race: names are looked at from / on, and one that was found in a good directory cannot be
 * changed by a stranger any more; the file itself is looked at again when it is open. No locks,
 * no state but the first /, no malloc, no descriptors but a moment's (hold.h) in a user
 * namespace. Nothing here waits for a file system of a stranger's.
 */
#ifndef RDMASHIM_TRUST_H
#define RDMASHIM_TRUST_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000	/* linux/stat.h, since 6.8 */
#endif

#define TRUST_PATH 1024		/* bytes of a name without links, with its NUL */
#define TRUST_WHY  400

enum trust_kind {
	TRUST_POLICY,
	TRUST_KEY,
	TRUST_DIR,		/* of whose files some are to be read */
	TRUST_OUTPUT,		/* to append to: need not be there; one name only; may be a
				 * terminal or a pipe */
};

#define TRUST_REFUSED (-EKEYREJECTED)
/* How it is to be opened then. O_NONBLOCK: a FIFO or a terminal must not stop the program. */
#define TRUST_READ (O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

struct trust {
	char path[TRUST_PATH];	/* without links, "." and ".." */
	uint64_t size;		/* of the file as it was; 0: not known */
	uint64_t id[2];		/* of the opened file: device, inode */
	bool shared;		/* others may make names in its directory, or in itself (sticky) */
	bool stranger;		/* refused: somebody else's, in a sticky directory */
	bool only_roots;	/* / is another one: our own files do not count */
	int8_t foreign;		/* 65534 may be root; -1: nobody has asked */
	uid_t us;
	const char *named;	/* what trust_walk() was asked */
	/* Of a refusal: which directory or file ("it": as it was named), its owner and mode, and
	 * what to do. */
	char why[TRUST_WHY];
};

/* 0, TRUST_REFUSED with t->why, or what the kernel says: -ENOENT if the file is not there,
 * whatever the directories are. */
int trust_walk(const char *path, enum trust_kind kind, struct trust *t);
/* The same of the file that was opened; of a descriptor of t->path. */
int trust_opened(int fd, enum trust_kind kind, struct trust *t);
/* Was / another one at the last walk than at the first? */
bool trust_root_moved(void);
/*
 * /proc is believed where / is that of the first walk, by the same mount. Another mount
 * namespace has other mounts, also where its / is the same directory, and there /proc, or a
 * file in it, may be a stranger's, who lies or never answers. Before Linux 5.8 mounts have no
 * number; then /proc must be the root of the file system that it was at first, which tells
 * nothing of what is mounted in it. Who may mount things in our own namespace is believed.
 */
#define TRUST_PLACE (STATX_INO | STATX_MNT_ID | STATX_MNT_ID_UNIQUE)
/* Of what statx(2) says of /, and of /proc (NULL: not asked): 1, 0, or -1: it must be. */
int trust_proc_is_first(const struct statx *root, const struct statx *proc);
bool trust_proc(void);
/* Is `name` in the directory of this descriptor, in which others may make names, root's or ours? */
bool trust_name(int dir, const char *name, const struct trust *t);

#endif
