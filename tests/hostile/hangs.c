/*
 * hangs.c - what an ordinary user can put in the way of root's rdmastat, in namespaces of his own:
 * a FUSE file system whose daemon takes a question and never answers it.
 *
 * 	hangs overlay DIR FUSE	the root directory of a process is an overlay above it, which lends
 * 				whoever looks below that directory the user's rights
 * 	hangs program DIR FUSE	a file of it is mounted upon the file of a program that runs
 * 	hangs file DIR FUSE COMMAND...
 * 				root runs a command that may open DIR/file, whose bytes never come:
 * 				user 31337 has mounted it, as by fusermount with allow_other. Says
 * 				when it is read
 *
 * FUSE: a device file like /dev/fuse. Prints the process's number when all is there, and how often
 * it was asked when its input ends, with which all that waits is released. Exits 77 if it cannot
 * be done here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILE_NODE 2

static struct { _Atomic bool silent; _Atomic int asked; } *shared;

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "hangs: %s: %s\n", what, strerror(errno));
	exit(77);
}

static void answer(int dev, uint64_t unique, int error, const void *p, size_t n)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof h + n), .error = error,
				     .unique = unique };
	struct iovec v[2] = { { &h, sizeof h }, { (void *)p, n } };

	if (writev(dev, v, n ? 2 : 1) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attr(uint64_t node)
{
	return (struct fuse_attr){ .ino = node, .size = 65536, .blksize = 4096, .nlink = 1,
				   .mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755 };
}

static void serve_one(int dev, const struct fuse_in_header *in, const char *name)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
				      .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096 };
	struct fuse_attr_out get = { .attr = attr(in->nodeid) };
	struct fuse_entry_out entry = { .nodeid = FILE_NODE, .attr = attr(FILE_NODE),
					.attr_valid = 1000, .entry_valid = 1000 };
	struct fuse_open_out open = { .fh = 1 };
	struct fuse_statfs_out fs = { .st = { .bsize = 4096, .namelen = 255 } };

	switch (in->opcode) {
	case FUSE_INIT: answer(dev, in->unique, 0, &init, sizeof init); break;
	case FUSE_GETATTR: answer(dev, in->unique, 0, &get, sizeof get); break;
	case FUSE_LOOKUP:
		if (strcmp(name, "file"))
			answer(dev, in->unique, -ENOENT, NULL, 0);
		else
			answer(dev, in->unique, 0, &entry, sizeof entry);
		break;
	case FUSE_OPENDIR: answer(dev, in->unique, 0, &open, sizeof open); break;
	case FUSE_STATFS: answer(dev, in->unique, 0, &fs, sizeof fs); break;
	case FUSE_OPEN: answer(dev, in->unique, 0, &open, sizeof open); break;
	case FUSE_READ:
		printf("read %d\n", ++shared->asked);
		fflush(stdout);
		break;
	case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: case FUSE_RELEASE: break;
	default: answer(dev, in->unique, -ENOSYS, NULL, 0);
	}
}

static _Noreturn void serve(int dev)
{
	static char buf[1 << 17];
	const struct fuse_in_header *in = (void *)buf;
	struct pollfd p[2] = { { .fd = dev, .events = POLLIN },
			       { .fd = STDIN_FILENO, .events = POLLIN } };

	while (poll(p, 2, -1) >= 0 && !p[1].revents) {
		if (read(dev, buf, sizeof buf) <= 0)
			continue;
		if (!shared->silent)
			serve_one(dev, in, buf + sizeof *in);
		else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT)
			shared->asked++;
	}
	printf("asked %d\n", shared->asked);
	fflush(stdout);
	kill(getppid(), SIGKILL);
	_exit(0);
}

static void put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);

	need(fd >= 0 && write(fd, text, strlen(text)) > 0, file);
	close(fd);
}

static void own_namespaces(void)
{
	unsigned uid = getuid(), gid = getgid();
	char map[32];

	need(!unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare");
	put("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "0 %u 1\n", uid);
	put("/proc/self/uid_map", map);
	snprintf(map, sizeof map, "0 %u 1\n", gid);
	put("/proc/self/gid_map", map);
}

/* A process in a root directory above FUSE, with a /dev/shm as rdmastat wants it. */
static void overlay(void)
{
	need(!mkdir("low", 0755) && !mkdir("low/dev", 0755) && !mkdir("low/dev/shm", 0755) &&
	     !mkdir("root", 0755), "mkdir");
	need(!mount("hangs", "root", "overlay", 0, "lowerdir=fuse:low"), "overlay");
	need(!mount("hangs", "root/dev/shm", "tmpfs", 0, NULL), "tmpfs");
	need(!chroot("root") && !chdir("/"), "chroot");
}

static bool runs(pid_t pid, const char *path)
{
	char exe[64], to[300];
	ssize_t n;

	snprintf(exe, sizeof exe, "/proc/%d/exe", pid);
	n = readlink(exe, to, sizeof to - 1);
	to[n > 0 ? n : 0] = '\0';
	return !strcmp(to, path);
}

/* A program whose file is another one by now. */
static void program(const char *dir)
{
	char path[300];

	need(!system("cp /bin/sleep program"), "cp");
	snprintf(path, sizeof path, "%s/program", dir);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (!runs(getppid(), path))
			poll(NULL, 0, 1);
		need(!mount("fuse/file", "program", NULL, MS_BIND, NULL), "bind");
		shared->silent = true;
		printf("%d\n", getppid());
		fflush(stdout);
		pause();
	}
	execl(path, path, "1000", NULL);
}

static _Noreturn void file(char **argv)
{
	int dev = open(argv[3], O_RDWR | O_CLOEXEC);
	char opts[100];

	need(dev >= 0, argv[3]);
	need(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL),
	     "unshare");
	snprintf(opts, sizeof opts,
		 "fd=%d,rootmode=40000,user_id=31337,group_id=31337,allow_other", dev);
	need(!mount("hangs", argv[2], "fuse", MS_NOSUID | MS_NODEV, opts), "fuse");
	if (!fork()) {
		need(!setgid(31337) && !setuid(31337), "setuid");
		serve(dev);
	}
	close(dev);
	execvp(argv[4], argv + 4);
	need(false, argv[4]);
	exit(1);
}

int main(int argc, char **argv)
{
	char opts[100];
	struct stat st;
	pid_t pid;
	int dev;

	if (argc < 4)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	need(shared != MAP_FAILED, "mmap");
	if (!strcmp(argv[1], "file") && argc > 4)
		file(argv);
	need(!chdir(argv[2]), argv[2]);
	own_namespaces();
	need(!mount("hangs", argv[2], "tmpfs", 0, NULL) && !chdir(argv[2]), "tmpfs");
	dev = open(argv[3], O_RDWR | O_CLOEXEC);
	need(dev >= 0, argv[3]);
	snprintf(opts, sizeof opts,
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions", dev);
	need(!mkdir("fuse", 0755) && !mount("hangs", "fuse", "fuse", MS_NOSUID | MS_NODEV, opts),
	     "fuse");
	pid = fork();
	if (pid) {	/* the first of the two is the one that is looked at, by its number */
		close(dev);
		need(!stat("fuse", &st), "stat");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!strcmp(argv[1], "program"))
			program(argv[2]);
		overlay();
		shared->silent = true;
		printf("%d\n", getpid());
		fflush(stdout);
		pause();
	}
	serve(dev);
}
