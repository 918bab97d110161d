/*
 * stat_file.c - the making of a counter file, for stat.c: its name, its size, its mapping and what
 * its header says of this process.
 *
 * It is opened, sized and closed by syscall(2): the libc names are the library's wrappers. A full
 * /dev/shm would be SIGBUS at the first touch of a page, so pages are populated (and that can fail
 * politely) before anything is written to them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "procstat.h"
#include "raw.h"
#include "stat_int.h"
#include "trust.h"
#include "version.h"
#include "words.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Field 22 of /proc/self/stat, 0 if it cannot be read. */
static uint64_t own_start_time(void)
{
	char buf[1024];
	struct proc_stat st;
	int n = trust_proc() ? raw_read_file("/proc/self/stat", buf, sizeof(buf)) : -EPERM;

	return n > 0 && proc_stat_parse(buf, (size_t)n, &st) ? st.start : 0;
}

static uint64_t own_pid_ns(void)
{
	struct stat st;

	return trust_proc() && !syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) ?
	       st.st_ino : 0;
}

/* A file of our pid that is already there is from a dead process, or from this one before exec. */
static int create_file(int dir, const char *name, const struct stat_header *me)
{
	int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = raw(syscall(SYS_openat, dir, name, flags, 0600));

	if (fd == -EEXIST) {
		stat_sweep_number(dir, me);
		syscall(SYS_unlinkat, dir, name, 0);
		fd = raw(syscall(SYS_openat, dir, name, flags, 0600));
	}
	return fd;
}

/* Makes the pages of [from, to) exist. Kernels before 5.14 don't know how; then they are taken
 * on trust. */
bool stat_populate(struct stat_header *h, size_t from, size_t to)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
		  start = ((uintptr_t)h + from) & ~(page - 1);
	int saved = errno, rc;

	rc = madvise((void *)start, (uintptr_t)h + to - start, MADV_POPULATE_WRITE) < 0 ? -errno
											: 0;
	errno = saved;
	return !rc || rc == -EINVAL;
}

/* me: who we are; of the header only what does not change. */
int stat_map_file(const struct stat_header *me, struct stat_header **ret)
{
	char name[16], path[PATH_MAX];
	int dir = stat_dir_open(me->uid, true, path, sizeof(path)), fd, rc = 0;
	struct rlimit lim;
	void *m;

	if (dir < 0)
		return dir;
	fmt_string(name, sizeof(name), "%u", me->pid);
	/* Beyond RLIMIT_FSIZE it would be SIGXFSZ. */
	fd = getrlimit(RLIMIT_FSIZE, &lim) || lim.rlim_cur < STAT_FILE_SIZE
		     ? -EFBIG
		     : create_file(dir, name, me);
	if (fd < 0) {
		rc = fd;
		goto out_dir;
	}
	rc = raw(syscall(SYS_ftruncate, fd, STAT_FILE_SIZE));
	if (rc)
		goto out;
	m = mmap(NULL, STAT_FILE_SIZE, PROT_NONE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		rc = -errno;
		goto out;
	}
	/* Where the program has locked its future (mlockall(2)), all pages would be made as soon
	 * as they may be touched. */
	rc = raw(syscall(SYS_munlock, m, STAT_FILE_SIZE));
	if (!rc)
		rc = raw(syscall(SYS_mprotect, m, STAT_FILE_SIZE, PROT_READ | PROT_WRITE));
	if (rc) {
		munmap(m, STAT_FILE_SIZE);
		goto out;
	}
	if (!stat_populate(m, 0, sizeof(struct stat_header)) ||
	    !stat_populate(m, STAT_CALLS_AT,
			   STAT_CALLS_AT + sizeof(((struct stat_calls *)0)->name)) ||
	    !stat_populate(m, STAT_MOVES_AT, STAT_MOVES_AT + sizeof(struct stat_move_calls))) {
		munmap(m, STAT_FILE_SIZE);
		rc = -ENOSPC;
		goto out;
	}
	stat_sweep(dir, me);
	*ret = m;
out:
	if (rc)
		syscall(SYS_unlinkat, dir, name, 0);
	syscall(SYS_close, fd);
out_dir:
	syscall(SYS_close, dir);
	return rc;
}

int stat_map_anonymous(struct stat_header **ret)
{
	void *m = mmap(NULL, STAT_FILE_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (m == MAP_FAILED)
		return -errno;
	*ret = m;
	return 0;
}

/* All but the magic. */
void stat_fill_header(struct stat_header *h, const char *program, const char *policy_file)
{
	h->version = STAT_VERSION;
	h->header_size = sizeof(struct stat_header);
	h->row_size = sizeof(struct stat_row);
	h->rows = STAT_ROWS;
	h->pid = (uint32_t)syscall(SYS_getpid);
	h->uid = (uint32_t)syscall(SYS_geteuid);
	h->start_time = own_start_time();
	h->pid_ns = own_pid_ns();
	fmt_string(h->program, sizeof(h->program), "%s", program ? program : "");
	fmt_string(h->build, sizeof(h->build), "%s", rdmashim_version);
	fmt_string(h->policy_file, sizeof(h->policy_file), "%s", policy_file ? policy_file : "");
}
