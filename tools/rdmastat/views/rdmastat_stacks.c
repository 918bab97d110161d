/*
 * rdmastat_stacks.c - `rdmastat stacks PID`: where each thread of a process stands, by libunwind
 * through ptrace(2). The library's frames are one line in words: in which call of the program, and
 * what it sleeps for.
 *
 * Files that the process has mapped are read for names of functions, and may be a stranger's:
 * this is done by a child that has nothing of ours (rdmastat_apart.h), for which root gives up
 * all rights but the process's own user's once it is attached, and which ends after DEADLINE_S.
 * A tracer that ends lets all threads go on.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind-ptrace.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "policy/words.h"
#include "ground/rdmastat_apart.h"
#include "ground/rdmastat_ends.h"
#include "ground/rdmastat_json.h"

#define DEADLINE_S 20
/* for a thread to stop; one that sleeps in the kernel for good never does */
#define STOP_MS 1000
#define THREADS_MAX 4096
#define FRAMES_MAX 64
#define MAPS_MAX 65536
#define MEMORY_MAX (1ul << 30)
#define NAME_MAX_BYTES 256

struct map {
	unsigned long from, to;
	const char *file;		/* within the text that was read */
	bool ours, libc;
};

/* The system call that a thread sleeps in: /proc/PID/task/TID/syscall. */
struct sleep {
	long nr;			/* -1: in none */
	unsigned long arg[6], pc;
};

struct frame {
	unsigned long pc, offset;
	char name[NAME_MAX_BYTES];	/* "" if it is not known */
	const struct map *map;		/* NULL: in no file */
};

struct thread {
	pid_t tid;
	bool held;
	char name[32];
	struct sleep sleep;
	struct frame frame[FRAMES_MAX];
	size_t nframes;
};

struct target {
	const struct request *r;
	pid_t pid;
	const struct stat_proc *p;	/* NULL: without counters */
	char *maps;
	struct map *map;
	size_t nmaps;
	unw_addr_space_t space;
	json_object *list;		/* NULL: text is wanted */
	bool failed;			/* a thread was left out */
};

/* ---- what is mapped ---- */

static char *read_all(const char *path)
{
	size_t len = 0, cap = 1u << 16;
	char *s = malloc(cap), *more;
	ssize_t n = -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && s && (n = read(fd, s + len, cap - len - 1)) > 0) {
		len += (size_t)n;
		if (cap - len > 4096)
			continue;
		more = cap < (64u << 20) ? realloc(s, cap *= 2) : NULL;
		if (!more)
			break;
		s = more;
	}
	if (fd >= 0)
		close(fd);
	if (s && n == 0) {
		s[len] = '\0';
		return s;
	}
	free(s);
	return NULL;
}

static void note_map(struct target *t, char *line)
{
	struct map *m = &t->map[t->nmaps];
	const char *base;
	int at = 0;

	if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &m->from, &m->to, &at) != 2 || !at ||
	    line[at] != '/')
		return;
	m->file = line + at;
	base = strrchr(m->file, '/') + 1;
	m->ours = !strncmp(base, "librdmashim.so", 14);
	m->libc = !strncmp(base, "libc.so", 7) || !strncmp(base, "libc-", 5) ||
		  !strncmp(base, "libpthread", 10);
	t->nmaps++;
}

static bool read_maps(struct target *t)
{
	char path[64], *line, *save = NULL;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)t->pid);
	t->maps = read_all(path);
	t->map = t->maps ? calloc(MAPS_MAX, sizeof(*t->map)) : NULL;
	if (!t->map)
		return false;
	for (line = strtok_r(t->maps, "\n", &save); line && t->nmaps < MAPS_MAX;
	     line = strtok_r(NULL, "\n", &save))
		note_map(t, line);
	return true;
}

static const struct map *map_of(const struct target *t, unsigned long pc)
{
	for (size_t i = 0; i < t->nmaps; i++)
		if (pc >= t->map[i].from && pc < t->map[i].to)
			return &t->map[i];
	return NULL;
}

/* ---- stopping and looking ---- */

static void read_sleep(const struct target *t, struct thread *th)
{
	unsigned long *a = th->sleep.arg;
	char path[64], *s;

	th->sleep.nr = -1;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)t->pid, (int)th->tid);
	s = read_all(path);
	if (s && sscanf(s, "%ld %lx %lx %lx %lx %lx %lx %*x %lx", &th->sleep.nr, &a[0], &a[1],
			&a[2], &a[3], &a[4], &a[5], &th->sleep.pc) != 8)
		th->sleep.nr = -1;
	free(s);
}

static void read_name(const struct target *t, struct thread *th)
{
	char path[64], *s;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)t->pid, (int)th->tid);
	s = read_all(path);
	snprintf(th->name, sizeof(th->name), "%.*s", s ? (int)strcspn(s, "\n") : 0, s ? s : "");
	free(s);
}

/* PTRACE_SEIZE sends no signal: the program's own handlers and waits see nothing of it. Returns
 * 0, -errno, or -EBUSY if the thread does not stop. */
static int hold(struct thread *th)
{
	struct timespec ms = { 0, 1000000 };
	int i, status;

	if (ptrace(PTRACE_SEIZE, th->tid, NULL, NULL) ||
	    ptrace(PTRACE_INTERRUPT, th->tid, NULL, NULL))
		return -errno;
	for (i = 0; i < STOP_MS; i++) {
		if (waitpid(th->tid, &status, __WALL | WNOHANG) == th->tid) {
			th->held = WIFSTOPPED(status);
			return th->held ? 0 : -ESRCH;
		}
		nanosleep(&ms, NULL);
	}
	return -EBUSY;
}

/* Of a file without its table of symbols only the exported ones are known, and the nearest of them
 * is mostly another function: the unwinder's tables say where this one begins. */
static void read_function(unw_cursor_t *c, struct frame *f)
{
	unw_proc_info_t info;
	unw_word_t off;

	if (!unw_get_proc_name(c, f->name, sizeof(f->name), &off) &&
	    !unw_get_proc_info(c, &info) && f->pc - off == info.start_ip)
		f->offset = off;
	else
		f->name[0] = '\0';
}

static void walk(const struct target *t, struct thread *th)
{
	void *arg = _UPT_create(th->tid);
	unw_cursor_t c;
	unw_word_t pc;

	if (!arg)
		return;
	if (!unw_init_remote(&c, t->space, arg))
		do {
			struct frame *f = &th->frame[th->nframes];

			if (unw_get_reg(&c, UNW_REG_IP, &pc) || !pc)
				break;
			f->pc = pc;
			f->map = map_of(t, pc);
			read_function(&c, f);
			th->nframes++;
		} while (th->nframes < FRAMES_MAX && unw_step(&c) > 0);
	_UPT_destroy(arg);
}

/* ---- our own frames, in words ---- */

static bool is_ours(const struct frame *f) { return f->map && f->map->ours; }

/* The file says where it slept before it was stopped: is it still there? */
static bool sleeps(const struct thread *th)
{
	return th->sleep.nr >= 0 && th->nframes &&
	       (th->frame[0].pc == th->sleep.pc || th->frame[0].pc + 2 == th->sleep.pc);
}

/* No frame of the program behind ours: only what libc starts a thread with. */
static bool own_thread(const struct thread *th, size_t last)
{
	for (size_t i = last + 1; i < th->nframes; i++)
		if (!th->frame[i].map || !th->frame[i].map->libc)
			return false;
	return last + 1 < th->nframes;
}

static const struct stat_conn *connection(const struct target *t, int fd)
{
	for (size_t i = 0; t->p && i < t->p->nconns; i++)
		if (fd >= 0 && t->p->conns[i].fd == (uint32_t)fd)
			return &t->p->conns[i];
	return NULL;
}

static void say_connection(const struct stat_conn *c, char *buf, size_t len)
{
	char a[64], b[64];

	snprintf(buf, len, " (%s -> %s, sends by %s, receives by %s)",
		 end_text(c->family, c->laddr, c->lport, a, sizeof(a)),
		 end_text(c->family, c->paddr, c->pport, b, sizeof(b)), path_name(c->tx_path),
		 path_name(c->rx_path));
}

/* A wait for a connection is a ppoll(2) of the program's descriptor and what wakes us beside it. */
static void say_sleep(const struct target *t, const struct thread *th, char *buf, size_t len)
{
	struct pollfd p = { .fd = -1 };
	struct iovec to = { &p, sizeof(p) }, from = { (void *)th->sleep.arg[0], sizeof(p) };
	const struct stat_conn *c;
	char ends[256] = "";

	if (th->sleep.nr == SYS_futex) {
		snprintf(buf, len, ", waits for a lock or for another thread");
	} else if (th->sleep.nr == SYS_ppoll && th->sleep.arg[1] &&
		   process_vm_readv(th->tid, &to, 1, &from, 1, 0) == sizeof(p)) {
		c = connection(t, p.fd);
		if (c)
			say_connection(c, ends, sizeof(ends));
		if (p.fd >= 0 && p.events & (POLLIN | POLLOUT))
			snprintf(buf, len, ", sleeps until descriptor %d%s is %s%s", p.fd, ends,
				 p.events & POLLIN ? "readable" : "writable",
				 th->sleep.arg[1] > 3 ? ", or one of others" : "");
		else if (p.fd >= 0)
			snprintf(buf, len,
				 ", sleeps until the other end of descriptor %d%s wakes it", p.fd,
				 ends);
		else
			snprintf(buf, len, ", sleeps until the other end wakes it");
	} else {
		snprintf(buf, len, ", sleeps in the kernel");
	}
}

/* By which of our functions it is known what the program does. */
static const struct { const char *function, *words; } doing[] = {
	{ "stream_recv", "receives" },
	{ "stream_send", "sends" },
	{ "ready_epoll_wait", "waits for events (epoll)" },
	{ "ready_poll", "waits for events (poll, select)" },
};

static const char *does(const struct thread *th, size_t first, size_t last)
{
	for (size_t i = first; i <= last; i++)
		for (size_t k = 0; k < sizeof(doing) / sizeof(doing[0]); k++)
			if (!strcmp(th->frame[i].name, doing[k].function))
				return doing[k].words;
	return own_thread(th, last) ? "its own thread" : "in a call of the program";
}

/* Frames [first, last] are the library's: what it does, what it sleeps for, and through which of
 * its functions, the outermost first. */
static void say_ours(const struct target *t, const struct thread *th, size_t first, size_t last,
		     char *buf, size_t len)
{
	char sleep[512] = "";
	size_t at, i;

	if (sleeps(th))
		say_sleep(t, th, sleep, sizeof(sleep));
	else if (!first)
		snprintf(sleep, sizeof(sleep), ", runs");
	at = (size_t)snprintf(buf, len, "librdmashim: %s%s", does(th, first, last), sleep);
	for (i = last + 1; i-- > first && at < len;)
		if (th->frame[i].name[0])
			at += (size_t)snprintf(buf + at, len - at, "%s%s", i == last ? " [" : " ",
					       th->frame[i].name);
	if (at + 1 < len && strchr(buf, '['))
		strcat(buf, "]");
}

/* ---- printing ---- */

static void frame_text(const struct frame *f, char *buf, size_t len)
{
	const char *file = f->map ? f->map->file : "no file";

	if (f->name[0])
		snprintf(buf, len, "%s+0x%lx in %s", f->name, f->offset, file);
	else
		snprintf(buf, len, "0x%lx in %s", f->pc, file);
}

static json_object *frame_json(const struct frame *f, const char *words)
{
	json_object *o = json_object_new_object();

	json_add(o, "pc", json_num(f->pc));
	json_add(o, "function", f->name[0] ? json_str(f->name) : NULL);
	json_add(o, "file", f->map ? json_str(f->map->file) : NULL);
	json_add(o, "librdmashim", words ? json_str(words) : NULL);
	return o;
}

static void print_thread(struct target *t, const struct thread *th)
{
	json_object *o = NULL, *frames = NULL;
	char text[4096 + NAME_MAX_BYTES];
	size_t i, last;

	if (t->list) {
		o = json_object_new_object();
		frames = json_object_new_array();
		json_add(o, "tid", json_num((uint64_t)th->tid));
		json_add(o, "name", json_str(th->name));
		json_add(o, "frames", frames);
		json_object_array_add(t->list, o);
	} else {
		say_line(stdout, "thread %d, %s", (int)th->tid, th->name);
	}
	for (i = 0; i < th->nframes; i = last + 1) {
		for (last = i; is_ours(&th->frame[i]) && last + 1 < th->nframes &&
		     is_ours(&th->frame[last + 1]); last++)
			;
		if (is_ours(&th->frame[i]))
			say_ours(t, th, i, last, text, sizeof(text));
		else
			frame_text(&th->frame[i], text, sizeof(text));
		if (frames)
			json_object_array_add(
				frames,
				frame_json(&th->frame[last], is_ours(&th->frame[i]) ? text : NULL));
		else
			say_line(stdout, "  %s", text);
	}
}

/* ---- the child ---- */

static void refused(struct target *t, const struct thread *th, int error)
{
	t->failed = true;
	if (error == -EBUSY)
		complain("thread %d, %s, does not stop: it sleeps in the kernel for something that "
			 "cannot be interrupted (/proc/%d/task/%d/stack)", (int)th->tid, th->name,
			 (int)t->pid, (int)th->tid);
	else if (error == -EPERM)
		complain("thread %d, %s, cannot be looked at: it is traced already, or "
			 "/proc/sys/kernel/yama/ptrace_scope does not permit it (as root: yes)",
			 (int)th->tid, th->name);
	else if (error != -ESRCH)
		complain("thread %d, %s: %s", (int)th->tid, th->name, strerror(-error));
}

static int by_number(const void *a, const void *b)
{
	const struct thread *x = a, *y = b;

	return (x->tid > y->tid) - (x->tid < y->tid);
}

/* The threads, stopped; malloc. */
static struct thread *hold_all(struct target *t, size_t *n)
{
	struct thread *th = calloc(THREADS_MAX, sizeof(*th));
	char path[64];
	struct dirent *e;
	DIR *d;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)t->pid);
	d = opendir(path);
	*n = 0;
	while (th && d && (e = readdir(d)) && *n < THREADS_MAX) {
		th[*n].tid = atoi(e->d_name);
		if (th[*n].tid <= 0)
			continue;
		read_name(t, &th[*n]);
		read_sleep(t, &th[*n]);
		rc = hold(&th[*n]);
		if (rc)
			refused(t, &th[*n], rc);
		++*n;
	}
	if (d)
		closedir(d);
	qsort(th, *n, sizeof(*th), by_number);
	return th;
}

/* Nothing but what the process's own user may do. Who that is can be asked only now: a program that
 * is held executes no other one. */
static int become(const struct target *t)
{
	struct rlimit most = { MEMORY_MAX, MEMORY_MAX };
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d", (int)t->pid);
	if (setrlimit(RLIMIT_AS, &most) || stat(path, &st))
		return -errno;
	return apart_become(st.st_uid, st.st_gid);
}

static int look(void *arg)
{
	struct target *t = arg;
	struct thread *th;
	size_t n, i;
	int rc;

	t->list = t->r->json ? json_object_new_array() : NULL;
	th = hold_all(t, &n);
	t->space = unw_create_addr_space(&_UPT_accessors, 0);
	rc = !th || !t->space ? -ENOMEM : !read_maps(t) ? errno ? -errno : -ENOMEM : become(t);
	if (rc) {
		complain("stacks: %s", strerror(-rc));
		return EXIT_FAILED;
	}
	if (!t->list && t->p)
		say_line(stdout, "process %d, program %s", (int)t->pid, t->p->program);
	for (i = 0; i < n; i++) {
		if (!th[i].held)
			continue;
		walk(t, &th[i]);
		ptrace(PTRACE_DETACH, th[i].tid, NULL, NULL);
		print_thread(t, &th[i]);
	}
	if (t->list) {
		json_object *root = json_root();

		json_add(root, "pid", json_num((uint64_t)t->pid));
		json_add(root, "threads", t->list);
		json_print(t->r, root);
	}
	free(th);
	return t->failed || !n ? EXIT_FAILED : EXIT_OK;
}

/* ---- the command ---- */

static bool find_process(const struct request *r, const struct stat_list *l, struct target *t)
{
	char path[64];
	uint64_t pid;

	if (r->words.argc != 1) {
		complain("stacks: name a process: rdmastat stacks PID");
		return false;
	}
	if (!opt_number(r->words.argv[0], 1, INT_MAX, "stacks PID", &pid))
		return false;
	t->pid = (pid_t)pid;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (access(path, F_OK)) {
		complain("stacks: there is no process %d", (int)pid);
		return false;
	}
	for (size_t i = 0; i < l->n; i++)
		if (l->proc[i].pid == pid && stat_proc_here(&l->proc[i]))
			t->p = &l->proc[i];
	if (!t->p)
		complain("process %d has no counters: it is not under the library, or has had no "
			 "connection yet", (int)pid);
	return true;
}

int show_stacks(const struct request *r, const struct stat_list *l)
{
	struct target t = { .r = r };
	int rc;

	if (!find_process(r, l, &t))
		return EXIT_USAGE;
	rc = apart(look, &t, DEADLINE_S);
	if (rc >= 0)
		return rc;
	if (rc == APART_NONE)
		complain("stacks: no process can be started to look: %s", strerror(errno));
	else
		complain("stacks: given up after %d s, or ended by what the process has mapped "
			 "(signal %d)",
			 DEADLINE_S, -rc);
	return EXIT_FAILED;
}
