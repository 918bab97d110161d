/*
 * fuse.h - a file whose close never returns: in a FUSE file system of an own user namespace,
 * whose daemon answers everything but FLUSH. For peer.c only. When the daemon ends, all that
 * waits is released.
 */
#ifndef HOSTILE_FUSE_H
#define HOSTILE_FUSE_H

#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define FUSE_FILE 2	/* its inode; the root is 1 */

static void fuse_answer(int dev, uint64_t unique, int error, const void *p, size_t n)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof h + n), .error = error,
				     .unique = unique };
	struct iovec v[2] = { { &h, sizeof h }, { (void *)p, n } };

	if (writev(dev, v, n ? 2 : 1) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr fuse_attr(uint64_t node)
{
	return (struct fuse_attr){ .ino = node, .size = 4096, .blksize = 4096, .nlink = 1,
				   .mode = node == FUSE_FILE ? S_IFREG | 0666 : S_IFDIR | 0777 };
}

/* Its files are closed one by one, and what waits for us among them would wait for ever. */
static bool fuse_maker_ends(pid_t maker)
{
	char path[64], buf[512] = "", *p;
	unsigned flags = 4;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", maker);
	f = fopen(path, "r");
	if (f && fgets(buf, sizeof buf, f) && (p = strrchr(buf, ')')))
		sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %u", &flags);
	if (f)
		fclose(f);
	return flags & 4;	/* PF_EXITING, or gone */
}

/* Serves the file system until its maker ends. A FLUSH is counted and never answered. */
static void fuse_serve(int dev, pid_t maker, _Atomic int *flushes)
{
	static char buf[1 << 17];
	const struct fuse_in_header *in = (void *)buf;

	while (!fuse_maker_ends(maker))
		if (readable(dev, 20) && read(dev, buf, sizeof buf) > 0)
			switch (in->opcode) {
			case FUSE_INIT: {
				struct fuse_init_out o = { .major = FUSE_KERNEL_VERSION,
							   .minor = FUSE_KERNEL_MINOR_VERSION,
								   .max_write = 4096 };

				fuse_answer(dev, in->unique, 0, &o, sizeof o);
				break;
			}
			case FUSE_LOOKUP: {
				struct fuse_entry_out o = { .nodeid = FUSE_FILE,
							    .attr = fuse_attr(FUSE_FILE),
								    .attr_valid = 1000,
									    .entry_valid = 1000 };

				fuse_answer(dev, in->unique, 0, &o, sizeof o);
				break;
			}
			case FUSE_GETATTR: {
				struct fuse_attr_out o = { .attr_valid = 1000,
							   .attr = fuse_attr(in->nodeid) };

				fuse_answer(dev, in->unique, 0, &o, sizeof o);
				break;
			}
			case FUSE_OPEN: {
				struct fuse_open_out o = { .fh = 1 };

				fuse_answer(dev, in->unique, 0, &o, sizeof o);
				break;
			}
			case FUSE_FLUSH:
				atomic_fetch_add(flushes, 1);
				break;
			case FUSE_READ:		/* nor that: who maps the file waits, too */
			case FUSE_FORGET:
				break;
			default:
				fuse_answer(dev, in->unique, -ENOSYS, NULL, 0);
			}
}

/* A descriptor of such a file, and how many are stuck in closing it. -1: none can be had here. */
static int fuse_file(_Atomic int **ret_flushes)
{
	_Atomic int *flushes =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char dir[] = "/tmp/rdmashim-fuse.XXXXXX", opts[100], path[64];
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC), fd = -1, sv[2];
	struct stat st;
	pid_t maker = getpid(), pid;
	char c;

	*ret_flushes = flushes;
	if (dev < 0 || !mkdtemp(dir) || chmod(dir, 0777) || socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		return -1;
	pid = fork();
	if (!pid) {	/* in its own namespaces: mounts, opens, and hands the file out; a child
			 * of it serves */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) ||
		    (!geteuid() && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)))
			_exit(1);
		snprintf(opts, sizeof opts, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
			 dev);
		if (mount("hostile", dir, "fuse", MS_NOSUID | MS_NODEV, opts) &&
		    (snprintf(opts, sizeof opts, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", dev,
			      geteuid(), getegid()),
		     mount("hostile", dir, "fuse", MS_NOSUID | MS_NODEV, opts)))
			_exit(1);
		if (!fork()) {
			close(sv[0]);
			close(sv[1]);
			fuse_serve(dev, maker, flushes);
			_exit(0);
		}
		close(dev);	/* the daemon's alone: when it ends, so does the connection */
		snprintf(path, sizeof path, "%s/file", dir);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			_exit(1);
		say_raw(sv[1], "f", 1, &fd, 1);
		while (!fuse_maker_ends(maker))
			nap(20);
		_exit(0);
	}
	close(dev);
	close(sv[1]);
	{
		struct iovec v = { &c, 1 };
		union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } ctl;
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl.buf,
				    .msg_controllen = sizeof ctl.buf };

		if (readable(sv[0], 3000) && recvmsg(sv[0], &m, MSG_CMSG_CLOEXEC) == 1 &&
		    CMSG_FIRSTHDR(&m))
			memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	}
	rmdir(dir);
	return fd >= 0 && !fstat(fd, &st) ? fd : -1;
}

#endif
