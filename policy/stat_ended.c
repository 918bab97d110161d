/*
 * stat_ended.c - counter files of processes that have ended (stat.h). rdmastat shows each once
 * and removes it; where nobody looks, a server that makes a process for each connection leaves
 * one for each. So whoever makes a file looks whether there are many, and adds some of them to
 * one file for each program, STAT_ENDED.N, which rdmastat reads like any other.
 *
 * One at a time, by a lock of the directory (flock(2)) for which nobody waits: rdmastat holds
 * it while it reads, and shows each process once. A file is moved aside, looked at, and added
 * only if it is whole and the process that made it is gone; a file of another pid namespace,
 * whose processes have other numbers here, is put back. Who ends in the middle loses one
 * process's counts; none counts twice.
 *
 * All is bounded: names looked at, files added, programs. No malloc, little of the stack: struct
 * work is mapped while it is needed. By syscall(2), as stat.c, within fd_hold().
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raw.h"
#include "stat_int.h"
#include "words.h"

#define KEEP	   64		/* files of the dead that stay, each by itself */
#define KEEP_LESS  48		/* ... after a sweep */
#define AT_ONCE	   32		/* files that one process looks into */
#define NAMES_MOST 16384	/* names that it looks at */
#define DEAD_MOST  4096
#define PROGRAMS   32		/* files of sums; what has none is added to one more */
#define GOING	   "going"	/* the one that is just being added */
#define BYTES_MAX  (1ull << 60)	/* nothing has moved more: larger is garbage */
#define ROWS	   64		/* at a time */
#define BLOCKS	   8

struct work {
	int dir;
	const struct stat_header *self;
	char names[32768];
	uint32_t dead[DEAD_MOST];
	struct stat_header from, to;
	struct stat_row row[ROWS];
	char call[2][STAT_CALLS][STAT_CALL_NAME];
	struct stat_call_block block[BLOCKS], calls, sum;
	struct stat_move_calls move_call;
	struct stat_moves moves[ROWS];
};

/* ---- small things ---- */

static bool get(int fd, void *buf, size_t len, size_t off)
{
	return syscall(SYS_pread64, fd, buf, len, off) == (long)len;
}

static bool put(int fd, const void *buf, size_t len, size_t off)
{
	return syscall(SYS_pwrite64, fd, buf, len, off) == (long)len;
}

static void add_to(uint64_t *to, uint64_t n)
{
	*to = n > BYTES_MAX || *to > BYTES_MAX ? *to : *to + n;
}

static void add_all(_Atomic uint64_t *to, const _Atomic uint64_t *from, int n)
{
	while (n--)
		add_to((uint64_t *)&to[n], atomic_load_explicit(&from[n], memory_order_relaxed));
}

/* A number as a process has one; 0: it is none. */
static uint32_t pid_of(const char *name)
{
	uint64_t n = 0;

	if (*name == '0' || strlen(name) > 10)
		return 0;
	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return 0;
		n = n * 10 + (uint64_t)(*name - '0');
	}
	return n <= INT_MAX ? (uint32_t)n : 0;
}

static bool no_such(uint32_t pid)
{
	return syscall(SYS_kill, pid, 0) < 0 && errno == ESRCH;
}

/* A regular file of our own with one name; then its descriptor, else -1. */
static int open_ours(const struct work *w, const char *name, int flags)
{
	int fd = raw(syscall(SYS_openat, w->dir, name,
			     flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0));
	struct stat st;

	if (fd < 0)
		return -1;
	if (!syscall(SYS_fstat, fd, &st) && S_ISREG(st.st_mode) && st.st_uid == w->self->uid &&
	    !(st.st_mode & 077) && st.st_nlink == 1)
		return fd;
	syscall(SYS_close, fd);
	return -1;
}

/* Of this version, and whole. */
static bool of_ours(const struct stat_header *h)
{
	return h->magic == STAT_MAGIC && h->version == STAT_VERSION &&
	       h->header_size == sizeof(*h) && h->row_size == sizeof(struct stat_row) &&
	       h->rows == STAT_ROWS;
}

/* ---- the sums ---- */

static bool has_program(const struct stat_header *h, const char *program)
{
	return of_ours(h) && !h->pid && !strncmp(h->program, program, sizeof(h->program));
}

static int make_sums(struct work *w, const char *name, const char *program)
{
	int fd = raw(syscall(SYS_openat, w->dir, name,
			     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	struct stat_header *h = &w->to;

	if (fd < 0)
		return -1;
	memset(h, 0, sizeof(*h));
	h->magic = STAT_MAGIC;
	h->version = STAT_VERSION;
	h->header_size = sizeof(*h);
	h->row_size = sizeof(struct stat_row);
	h->rows = STAT_ROWS;
	h->uid = w->self->uid;
	memcpy(h->program, program, sizeof(h->program));
	if (!syscall(SYS_ftruncate, fd, STAT_FILE_SIZE) && put(fd, h, sizeof(*h), 0))
		return fd;
	syscall(SYS_close, fd);
	syscall(SYS_unlinkat, w->dir, name, 0);
	return -1;
}

/* The sums of that number, if they are the program's; made if there are none, or something that is
 * nobody's. Header in w->to; or -1. */
static int open_sums(struct work *w, unsigned n, const char *program)
{
	char name[24];
	int fd;

	fmt_string(name, sizeof(name), STAT_ENDED "%u", n);
	fd = open_ours(w, name, O_RDWR);
	if (fd >= 0 && get(fd, &w->to, sizeof(w->to), 0) && of_ours(&w->to)) {
		if (has_program(&w->to, program))
			return fd;
		syscall(SYS_close, fd);
		return -1;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	syscall(SYS_unlinkat, w->dir, name, 0);
	return make_sums(w, name, program);
}

static int sums_of(struct work *w)
{
	static const char others[sizeof(w->from.program)] = "(several)";
	unsigned hash = 0;
	int fd;

	w->from.program[sizeof(w->from.program) - 1] = '\0';
	for (const char *p = w->from.program; *p; p++)
		hash = hash * 31 + (uint8_t)*p;
	for (unsigned i = 0; i < 4; i++) {
		fd = open_sums(w, (hash + i) % PROGRAMS, w->from.program);
		if (fd >= 0)
			return fd;
	}
	return open_sums(w, PROGRAMS, others);
}

/* ---- one file ---- */

/* Connections that it had when it was ended: their bytes are in their rows. */
static void take_rows(struct work *w, int fd)
{
	uint32_t used = w->from.rows_used < STAT_ROWS ? w->from.rows_used : STAT_ROWS;

	for (uint32_t at = 0; at < used; at += ROWS) {
		uint32_t n = used - at < ROWS ? used - at : ROWS;

		if (!get(fd, w->row, n * sizeof(w->row[0]),
			 sizeof(w->from) + at * sizeof(w->row[0])))
			return;
		for (uint32_t i = 0; i < n; i++) {
			if (atomic_load(&w->row[i].state) != 2)
				continue;
			add_all(w->from.bytes_tx, w->row[i].tx_bytes, PATH_KINDS);
			add_all(w->from.bytes_rx, w->row[i].rx_bytes, PATH_KINDS);
			add_to((uint64_t *)&w->from.counter[STAT_ring_full],
			       atomic_load(&w->row[i].fulls));
		}
	}
}

/* The calls of all threads, to w->calls. */
static void take_calls(struct work *w, int fd)
{
	uint32_t used = w->from.rows_used < STAT_ROWS ? w->from.rows_used : STAT_ROWS;
	uint64_t *to = &w->calls.n[0][0];
	size_t at = STAT_CALLS_AT + sizeof(w->call[0]);

	memset(&w->calls, 0, sizeof(w->calls));
	for (int b = 0; b < STAT_CALL_BLOCKS; b += BLOCKS, at += sizeof(w->block)) {
		const uint64_t *from = &w->block[0].n[0][0];

		if (!get(fd, w->block, sizeof(w->block), at))
			return;
		for (unsigned i = 0; i < BLOCKS * 2 * STAT_CALLS; i++)
			add_to(&to[i % (2 * STAT_CALLS)], from[i]);
	}
	if (!get(fd, &w->move_call, sizeof(w->move_call), STAT_MOVES_AT))
		return;
	at = STAT_MOVES_AT + sizeof(w->move_call);
	for (uint32_t row = 0; row < used; row += ROWS, at += sizeof(w->moves)) {
		uint32_t n = used - row < ROWS ? used - row : ROWS;

		if (!get(fd, w->moves, n * sizeof(w->moves[0]), at))
			return;
		for (uint32_t i = 0; i < n * 2 * STAT_MOVES; i++) {
			unsigned kind = i % STAT_MOVES, call = w->move_call.call[kind];

			if (call && call <= STAT_CALLS)
				add_to(&w->calls.n[call - 1][i / STAT_MOVES % 2],
				       w->moves[i / (2 * STAT_MOVES)].n[i / STAT_MOVES % 2][kind]);
		}
	}
}

/* Only calls that have the same names: of the same build. */
static void add_calls(struct work *w, int sums)
{
	static const char none[STAT_CALL_NAME];
	size_t at = STAT_CALLS_AT + sizeof(w->call[0]);
	bool fresh;

	if (!get(sums, w->call[1], sizeof(w->call[1]), STAT_CALLS_AT))
		return;
	fresh = !memcmp(w->call[1][0], none, sizeof(none));
	if (fresh ? !put(sums, w->call[0], sizeof(w->call[0]), STAT_CALLS_AT) :
		    memcmp(w->call[0], w->call[1], sizeof(w->call[0])))
		return;
	if (!get(sums, &w->sum, sizeof(w->sum), at))
		return;
	for (unsigned i = 0; i < 2 * STAT_CALLS; i++)
		add_to(&w->sum.n[0][0] + i, (&w->calls.n[0][0])[i]);
	put(sums, &w->sum, sizeof(w->sum), at);
}

static void add_up(struct work *w, int fd)
{
	bool calls = get(fd, w->call[0], sizeof(w->call[0]), STAT_CALLS_AT);
	int sums = sums_of(w);

	if (sums < 0)
		return;		/* no room */
	take_rows(w, fd);
	take_calls(w, fd);
	syscall(SYS_unlinkat, w->dir, GOING, 0);	/* from here it is counted once or not at
							 * all */
	memcpy(w->to.build, w->from.build, sizeof(w->to.build));
	memcpy(w->to.policy_file, w->from.policy_file, sizeof(w->to.policy_file));
	add_all(w->to.counter, w->from.counter, 64);
	add_all(w->to.reasons, w->from.reasons, STAT_REASONS);
	add_all(w->to.link_errors, w->from.link_errors, STAT_REASONS);
	add_all(w->to.bytes_tx, w->from.bytes_tx, PATH_KINDS);
	add_all(w->to.bytes_rx, w->from.bytes_rx, PATH_KINDS);
	w->to.start_time++;
	put(sums, &w->to, sizeof(w->to), 0);
	if (calls)
		add_calls(w, sums);
	syscall(SYS_close, sums);
}

/* Is who made it gone? Of our own number: it began at another time. Else nobody has its number now,
 * in our own namespace, where we know. The first seven fields are the same in all versions. */
static bool maker_gone(const struct work *w)
{
	const struct stat_header *h = &w->from, *self = w->self;

	if (h->magic != STAT_MAGIC || !self->pid_ns || h->pid_ns != self->pid_ns || !h->pid ||
	    h->pid > INT_MAX)
		return false;
	if (h->pid == self->pid)
		return h->start_time && self->start_time && h->start_time != self->start_time;
	return no_such(h->pid);
}

/* w->from has its header, and its maker is gone: added, of our version, and removed. */
static void take_in(struct work *w, int fd)
{
	if (of_ours(&w->from))
		add_up(w, fd);
	syscall(SYS_unlinkat, w->dir, GOING, 0);
}

/* Opened, with its header in w->from, if its maker is gone; else -1. */
static int open_dead(struct work *w, const char *name)
{
	int fd = open_ours(w, name, O_RDONLY);

	if (fd < 0)
		return -1;
	if (get(fd, &w->from, sizeof(w->from), 0) && maker_gone(w))
		return fd;
	syscall(SYS_close, fd);
	return -1;
}

/* Somebody has put it aside and was ended. */
static void take_left_over(struct work *w)
{
	int fd = open_dead(w, GOING);

	if (fd < 0)
		return;
	take_in(w, fd);
	syscall(SYS_close, fd);
}

/* True: it is gone. */
static bool take_number(struct work *w, uint32_t pid)
{
	struct stat seen, aside;
	char name[16];
	bool same;
	int fd;

	fmt_string(name, sizeof(name), "%u", pid);
	fd = open_dead(w, name);
	if (fd < 0)
		return false;
	if (w->from.pid != pid || syscall(SYS_renameat, w->dir, name, w->dir, GOING) < 0) {
		syscall(SYS_close, fd);
		return false;
	}
	/* Perhaps a new process has got the number, and had put its own there by then. */
	same = !syscall(SYS_fstat, fd, &seen) &&
	       !syscall(SYS_newfstatat, w->dir, GOING, &aside, AT_SYMLINK_NOFOLLOW) &&
	       seen.st_ino == aside.st_ino;
	if (same)
		take_in(w, fd);
	else
		syscall(SYS_renameat, w->dir, GOING, w->dir, name);
	syscall(SYS_close, fd);
	return same;
}

/* ---- all ---- */

/* Numbers that name no process here; of another pid namespace, perhaps: their files tell. */
static unsigned find_dead(struct work *w)
{
	unsigned n = 0, seen = 0;
	long len;

	while (n < DEAD_MOST && seen < NAMES_MOST &&
	       (len = syscall(SYS_getdents64, w->dir, w->names, sizeof(w->names))) > 0)
		for (long at = 0; at < len; seen++) {
			const struct dirent64 *e = (const void *)(w->names + at);
			uint32_t pid = pid_of(e->d_name);

			if (pid && n < DEAD_MOST && no_such(pid))
				w->dead[n++] = pid;
			at += e->d_reclen;
		}
	return n;
}

static struct work *begin(int dir, const struct stat_header *self)
{
	struct work *w;
	void *m;

	if (syscall(SYS_flock, dir, LOCK_EX | LOCK_NB) < 0)
		return NULL;
	m = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) {
		syscall(SYS_flock, dir, LOCK_UN);
		return NULL;
	}
	w = m;
	w->dir = dir;
	w->self = self;
	return w;
}

static void end(struct work *w)
{
	syscall(SYS_flock, w->dir, LOCK_UN);	/* a child made just now may have a copy of the
						 * descriptor */
	munmap(w, sizeof(*w));
}

void stat_sweep(int dir, const struct stat_header *self)
{
	struct work *w = begin(dir, self);
	unsigned n, from, left;

	if (!w)
		return;
	n = left = find_dead(w);
	if (n > KEEP) {
		take_left_over(w);
		from = (self->pid * 2654435761u) % n;	/* anywhere: those that stay must not be
							 * in the way */
		for (unsigned i = 0; i < AT_ONCE && i < n && left > KEEP_LESS; i++)
			left -= take_number(w, w->dead[(from + i) % n]);
	}
	end(w);
}

void stat_sweep_number(int dir, const struct stat_header *self)
{
	struct work *w = begin(dir, self);

	if (!w)
		return;
	take_number(w, self->pid);
	end(w);
}
