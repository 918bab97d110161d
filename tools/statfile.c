/*
 * statfile.c - see statfile.h. One thread, no locks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "statfile.h"

#define SHM_DIR "/dev/shm"
#define DIR_PREFIX "rdmashim."
#define RUN_PREFIX "run."		/* subdirectories of rdmarun --stat, by its pid */
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define BYTES_MAX (1ull << 60)		/* nothing has moved more: larger is garbage */

/* ---- one file ---- */

/* Reads exactly len bytes at off. */
static int pread_all(int fd, void *buf, size_t len, off_t off)
{
	size_t used = 0;
	ssize_t n;

	while (used < len) {
		n = pread(fd, (char *)buf + used, len - used, off + (off_t)used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EBADMSG;
		used += (size_t)n;
	}
	return 0;
}

/* Names come from another process: nothing in them may steer the terminal. */
static void copy_printable(char *dst, const char *src, size_t len)
{
	size_t i;

	for (i = 0; i < len - 1 && src[i]; i++)
		dst[i] = src[i] >= 0x20 && src[i] < 0x7f ? src[i] : '?';
	dst[i] = '\0';
}

static int check_file(int fd, uid_t owner, off_t *size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if (st.st_uid != owner || (st.st_mode & 077))
		return -EPERM;
	if (st.st_nlink > 1)		/* one file is one process, whatever its names */
		return -EBADMSG;
	*size = st.st_size;
	return 0;
}

/* Where the parts are. h->rows was checked, or is about to be. */
static off_t calls_at(const struct stat_header *h) { return (off_t)(sizeof(*h) + h->rows * sizeof(struct stat_row)); }
static off_t sites_at(const struct stat_header *h) { return calls_at(h) + (off_t)sizeof(struct stat_calls); }
static off_t histories_at(const struct stat_header *h) { return sites_at(h) + (off_t)(STAT_SITES * sizeof(struct stat_site)); }
static off_t moves_at(const struct stat_header *h) { return histories_at(h) + (off_t)(h->rows * sizeof(struct stat_history)); }
static off_t links_at(const struct stat_header *h)
{
	return moves_at(h) + (off_t)(sizeof(struct stat_move_calls) + h->rows * sizeof(struct stat_moves));
}

static int check_header(const struct stat_header *h, const char *name, off_t size)
{
	char pid[16];

	if (h->magic != STAT_MAGIC)
		return -EBADMSG;
	if (h->version != STAT_VERSION || h->header_size != sizeof(*h) || h->row_size != sizeof(struct stat_row))
		return -EPROTO;
	snprintf(pid, sizeof(pid), "%u", h->pid);
	if (!h->pid || h->pid > INT_MAX || strcmp(pid, name))
		return -EBADMSG;
	if (h->rows > STAT_ROWS || h->rows_used > h->rows ||
	    (uint64_t)size < (uint64_t)links_at(h) + sizeof(struct stat_links))
		return -EBADMSG;
	return 0;
}

static bool take_bytes(uint64_t *to, const _Atomic uint64_t *from)
{
	int i;

	for (i = 0; i < PATH_KINDS; i++) {
		uint64_t v = atomic_load_explicit(&from[i], memory_order_relaxed);

		if (v > BYTES_MAX)
			return false;
		to[i] = sat_add(to[i], v);
	}
	return true;
}

/* A count that went below zero for a moment, or never was one, is shown as none. */
static void take_counts(uint64_t *to, const _Atomic uint64_t *from, int n)
{
	while (n--) {
		uint64_t v = atomic_load_explicit(&from[n], memory_order_relaxed);

		to[n] = v > BYTES_MAX ? 0 : v;
	}
}

static int take_header(const struct stat_header *h, uid_t owner, struct stat_proc *ret)
{
	ret->pid = h->pid;
	ret->uid = owner;		/* what the kernel says, not what the file says */
	ret->start_time = h->start_time;
	ret->pid_ns = h->pid_ns;
	ret->mode_on = h->mode_on != 0;
	copy_printable(ret->program, h->program, sizeof(ret->program));
	copy_printable(ret->policy_file, h->policy_file, sizeof(ret->policy_file));
	take_counts(ret->counter, h->counter, STAT_COUNTERS);
	take_counts(ret->reasons, h->reasons, REASON_COUNT);
	return take_bytes(ret->tx_bytes, h->bytes_tx) && take_bytes(ret->rx_bytes, h->bytes_rx) ? 0 : -EBADMSG;
}

/* False if a field has a value that no writer of this version puts there. */
static bool take_row(const struct stat_row *r, struct stat_conn *c)
{
	memset(c, 0, sizeof(*c));
	if ((r->family != AF_UNSPEC && r->family != AF_INET && r->family != AF_INET6) || r->role > ROLE_ANY || r->reason >= REASON_COUNT ||
	    r->tx_path >= PATH_KINDS || r->rx_path >= PATH_KINDS)
		return false;
	c->fd = r->fd;
	c->family = r->family;
	c->lport = r->lport;
	c->pport = r->pport;
	memcpy(c->laddr, r->laddr, sizeof(c->laddr));
	memcpy(c->paddr, r->paddr, sizeof(c->paddr));
	c->role = (enum stream_role)r->role;
	c->reason = (enum reason)r->reason;
	c->tx_path = (enum path_kind)r->tx_path;
	c->rx_path = (enum path_kind)r->rx_path;
	c->tx_state = r->tx_state;
	c->rx_state = r->rx_state;
	c->rule_at = r->rule_at;
	c->cuts = r->cuts;
	c->rewinds = r->rewinds;
	return take_bytes(c->tx_bytes, r->tx_bytes) && take_bytes(c->rx_bytes, r->rx_bytes);
}

/* Reads n rows three times; row[i] is the second reading, and before[i] == after[i] != 0 if it was one live connection
 * all along. (Twice is too few: the first reading of a row may itself be of two connections.) */
static int read_rows(int fd, struct stat_row *row, size_t n, uint32_t *before, uint32_t *after)
{
	int pass, rc;
	size_t i;

	for (pass = 0; pass < 3; pass++) {
		uint32_t *gen = pass == 0 ? before : after;
		struct stat_row *to = pass == 2 ? row + n : row;

		rc = pread_all(fd, to, n * sizeof(*to), sizeof(struct stat_header));
		if (rc)
			return rc;
		for (i = 0; i < n; i++)
			gen[i] = to[i].state == 2 ? to[i].gen : 0;
	}
	return 0;
}

static int take_rows(int fd, size_t n, struct stat_proc *ret)
{
	struct stat_row *row = malloc((2 * n + 1) * sizeof(*row));
	uint32_t *gen = malloc((2 * n + 1) * sizeof(*gen));
	int rc = -ENOMEM, k;
	size_t i;

	ret->conns = malloc((n + 1) * sizeof(*ret->conns));
	if (!row || !gen || !ret->conns)
		goto out;
	rc = read_rows(fd, row, n, gen, gen + n);
	for (i = 0; i < n && !rc; i++) {
		struct stat_conn *c = &ret->conns[ret->nconns];

		if (!gen[i] || gen[i] != gen[n + i] || !take_row(&row[i], c))
			continue;
		c->row = (uint32_t)i;
		c->gen = gen[i];
		ret->nconns++;
		for (k = 0; k < PATH_KINDS; k++) {
			ret->tx_bytes[k] = sat_add(ret->tx_bytes[k], c->tx_bytes[k]);
			ret->rx_bytes[k] = sat_add(ret->rx_bytes[k], c->rx_bytes[k]);
		}
	}
out:
	free(row);
	free(gen);
	return rc;
}

static int take_calls(int fd, off_t at, struct stat_proc *ret)
{
	struct stat_calls *c = malloc(sizeof(*c));
	int rc = c ? pread_all(fd, c, sizeof(*c), at) : -ENOMEM;

	for (int i = 0; i < STAT_CALLS && !rc; i++) {
		copy_printable(ret->call[i], c->name[i], STAT_CALL_NAME);
		for (int b = 0; b < STAT_CALL_BLOCKS; b++)
			for (int k = 0; k < 2; k++)
				ret->calls[i][k] = sat_add(ret->calls[i][k], c->block[b].n[i][k]);
	}
	free(c);
	return rc;
}

/* The calls that move bytes, by connection; those of closed ones are among the others already. */
static int take_moves(int fd, off_t at, uint32_t rows, struct stat_proc *ret)
{
	struct stat_moves *m = malloc((rows + 1) * sizeof(*m));
	struct stat_move_calls names;
	int rc = m ? pread_all(fd, &names, sizeof(names), at) : -ENOMEM;

	if (!rc)
		rc = pread_all(fd, m, rows * sizeof(*m), at + (off_t)sizeof(names));
	for (uint32_t i = 0; i < rows && !rc; i++)
		for (int k = 0; k < 2; k++)
			for (int n = 0; n < STAT_MOVES; n++)
				if (m[i].n[k][n] && names.call[n] && names.call[n] <= STAT_CALLS)
					ret->calls[names.call[n] - 1][k] = sat_add(ret->calls[names.call[n] - 1][k], m[i].n[k][n]);
	free(m);
	return rc;
}

static void take_site(const struct stat_site *s, struct stat_copies *c)
{
	c->rx = s->rx != 0;
	c->lane = s->lane;
	c->lo = s->lo;
	c->hi = s->hi;
	take_counts(&c->copies, &s->copies, 1);
	take_counts(&c->bytes, &s->bytes, 1);
	take_counts(&c->taken, &s->taken, 1);
	take_counts(c->why, s->why, REASON_COUNT);
	copy_printable(c->where, s->where, sizeof(c->where));
}

static int take_sites(int fd, off_t at, struct stat_proc *ret)
{
	struct stat_site *s = malloc(STAT_SITES * sizeof(*s));
	int rc;

	ret->sites = calloc(STAT_SITES, sizeof(*ret->sites));
	rc = s && ret->sites ? pread_all(fd, s, STAT_SITES * sizeof(*s), at) : -ENOMEM;
	for (int i = 0; i < STAT_SITES && !rc; i++)
		if (s[i].state == 2)
			take_site(&s[i], &ret->sites[ret->nsites++]);
	free(s);
	return rc;
}

/* False if a field has a value that no writer of this version puts there. */
static bool take_link(const struct stat_link *l, struct stat_qp *q)
{
	memset(q, 0, sizeof(*q));
	if (l->phase >= STAT_LINK_PHASES || l->kind >= STAT_LINK_KINDS || (l->family != AF_UNSPEC && l->family != AF_INET && l->family != AF_INET6) ||
	    l->mtu > 4096)
		return false;
	q->phase = (enum stat_link_phase)l->phase;
	q->kind = (enum stat_link_kind)l->kind;
	q->port = l->port;
	q->family = l->family;
	q->lport = l->lport;
	q->pport = l->pport;
	q->qpn = l->qpn;
	q->peer_qpn = l->peer_qpn;
	q->mtu = l->mtu;
	q->streams = l->streams;
	q->rtt = l->rtt;
	memcpy(q->laddr, l->laddr, sizeof(q->laddr));
	memcpy(q->paddr, l->paddr, sizeof(q->paddr));
	memcpy(q->lgid, l->lgid, sizeof(q->lgid));
	memcpy(q->pgid, l->pgid, sizeof(q->pgid));
	copy_printable(q->device, l->device, sizeof(q->device));
	return true;
}

/* Three readings, of which the second counts, as in read_rows(). */
static int take_links(int fd, off_t at, struct stat_proc *ret)
{
	struct stat_link *l[3] = { NULL };
	uint32_t used;
	int rc = pread_all(fd, &used, sizeof(used), at + (off_t)offsetof(struct stat_links, used));

	if (rc || !used)
		return rc;
	if (used > STAT_LINKS)
		return -EBADMSG;
	l[0] = malloc(3 * used * sizeof(*l[0]));
	ret->qps = malloc(used * sizeof(*ret->qps));
	if (!l[0] || !ret->qps)
		rc = -ENOMEM;
	for (int i = 0; i < 3 && !rc; i++) {
		l[i] = l[0] + (size_t)i * used;
		rc = pread_all(fd, l[i], used * sizeof(*l[i]), at + (off_t)offsetof(struct stat_links, link));
	}
	for (uint32_t i = 0; i < used && !rc; i++)
		if (l[0][i].state == 2 && l[2][i].state == 2 && l[0][i].gen == l[2][i].gen && take_link(&l[1][i], &ret->qps[ret->nqps]))
			ret->nqps++;
	free(l[0]);
	return rc;
}

int statfile_read_parts(int dir, const char *name, uid_t owner, unsigned parts, struct stat_proc *ret)
{
	struct stat_header h;
	int fd, rc;
	off_t size = 0;

	memset(ret, 0, sizeof(*ret));
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	rc = check_file(fd, owner, &size);
	if (!rc)
		rc = pread_all(fd, &h, sizeof(h), 0);
	if (!rc)
		rc = check_header(&h, name, size);
	if (!rc)
		rc = take_header(&h, owner, ret);
	if (!rc)
		rc = take_rows(fd, h.rows_used, ret);
	if (!rc && parts & STATFILE_CALLS)
		rc = take_calls(fd, calls_at(&h), ret);
	if (!rc && parts & STATFILE_CALLS)
		rc = take_moves(fd, moves_at(&h), h.rows_used, ret);
	if (!rc && parts & STATFILE_SITES)
		rc = take_sites(fd, sites_at(&h), ret);
	if (!rc && parts & STATFILE_QPS)
		rc = take_links(fd, links_at(&h), ret);
	close(fd);
	if (rc)
		stat_proc_clear(ret);
	return rc;
}

int statfile_read(int dir, const char *name, uid_t owner, struct stat_proc *ret)
{
	return statfile_read_parts(dir, name, owner, STATFILE_ALL, ret);
}

void stat_proc_clear(struct stat_proc *p)
{
	free(p->conns);
	free(p->file);
	free(p->sites);
	free(p->qps);
	memset(p, 0, sizeof(*p));
}

/* ---- one connection's history ---- */

/* Of an event only what two readings agree on, and only if it is in its place and of this connection. */
static bool take_event(const struct stat_event *a, const struct stat_event *b, uint32_t gen, uint32_t n, struct stat_moment *ret)
{
	uint64_t what = a->what;
	unsigned kind = what & 0xff, reason = what >> 8 & 0xff;

	if (what != b->what || a->when != b->when || a->arg != b->arg || what != STAT_EVENT_WHAT(gen, n, reason, kind) || !kind ||
	    kind >= EVENT_COUNT || reason >= REASON_COUNT)
		return false;
	*ret = (struct stat_moment){ a->when, (enum stat_event_kind)kind, (enum reason)reason, a->arg };
	return true;
}

static void take_history(const struct stat_history *a, const struct stat_history *b, uint32_t gen, struct stat_past *ret)
{
	uint32_t next = a->next, n = 0;

	ret->left_out = next > STAT_EVENTS ? next - STAT_EVENTS : 0;
	for (; n < next; n++) {
		if (n == STAT_EVENTS_FIRST && ret->left_out)
			n += (uint32_t)ret->left_out;
		if (take_event(&a->event[stat_event_place(n)], &b->event[stat_event_place(n)], gen, n, &ret->at[ret->n]))
			ret->n++;
	}
}

static int read_history(int fd, const struct stat_proc *p, const struct stat_conn *c, struct stat_past *ret)
{
	struct stat_history hist[2];
	struct stat_header h;
	struct stat_row row;
	off_t at, size = 0;
	int rc, i;

	rc = check_file(fd, p->uid, &size);
	if (!rc)
		rc = pread_all(fd, &h, sizeof(h), 0);
	if (!rc)
		rc = check_header(&h, strrchr(p->file, '/') + 1, size);
	if (!rc && (h.start_time != p->start_time || c->row >= h.rows))
		rc = -ENOENT;
	at = histories_at(&h) + (off_t)(c->row * sizeof(*hist));
	for (i = 0; i < 2 && !rc; i++)
		rc = pread_all(fd, &hist[i], sizeof(*hist), at);
	if (!rc)
		rc = pread_all(fd, &row, sizeof(row), (off_t)(sizeof(h) + c->row * sizeof(row)));
	if (!rc && (row.state != 2 || row.gen != c->gen))
		rc = -ENOENT;
	if (!rc)
		take_history(&hist[0], &hist[1], c->gen, ret);
	return rc;
}

/* What its user may have put in the file's place meanwhile is opened with his rights. */
static int open_again(const struct stat_proc *p)
{
	const char *name = strrchr(p->file, '/') + 1;
	char path[PATH_MAX];
	int dir, fd;

	snprintf(path, sizeof(path), "%.*s", (int)(name - p->file), p->file);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	fd = -EPERM;
	if (user_rights(p->uid)) {
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		fd = fd < 0 ? -errno : fd;
		own_rights();
	}
	close(dir);
	return fd;
}

int statfile_history(const struct stat_proc *p, const struct stat_conn *c, struct stat_past *ret)
{
	int fd, rc;

	memset(ret, 0, sizeof(*ret));
	if (!p->file)
		return -ENOENT;
	fd = open_again(p);
	if (fd < 0)
		return fd == -ELOOP ? -EBADMSG : fd;
	rc = read_history(fd, p, c, ret);
	close(fd);
	return rc;
}

/* ---- is it alive ---- */

/* Start time out of /proc/<pid>/stat; -ESRCH if there is none or only a zombie. */
static int start_time_of(uint32_t pid, uint64_t *ret)
{
	char path[32], buf[1024], state;
	unsigned long long v;
	const char *s;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return -ESRCH;
	buf[n] = '\0';
	s = strrchr(buf, ')');
	if (!s || sscanf(s, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &state, &v) != 2)
		return -EBADMSG;
	if (state == 'Z' || state == 'X')
		return -ESRCH;
	*ret = v;
	return 0;
}

bool stat_proc_here(const struct stat_proc *p)
{
	struct stat st, ns;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u", p->pid);
	/* root's file: of a program that has become another user meanwhile, perhaps */
	return !p->dead && !stat(path, &st) && (st.st_uid == p->uid || !p->uid) && (!p->pid_ns || (!stat("/proc/self/ns/pid", &ns) && ns.st_ino == p->pid_ns));
}

bool stat_proc_gone(const struct stat_proc *p)
{
	struct stat st;
	uint64_t start = 0;
	int rc;

	/* a process of another pid namespace has another number here */
	if (p->pid_ns && (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino != p->pid_ns))
		return false;
	if (access("/proc/self/stat", R_OK))
		return false;		/* no /proc, no verdict */
	rc = start_time_of(p->pid, &start);
	return rc == -ESRCH || (!rc && p->start_time && start != p->start_time);
}

/* ---- directories ---- */

struct scan {
	struct stat_list *list;
	bool dead;
	pid_t pid;
	unsigned parts;
	void (*on_bad)(const char *path, int error);
	bool keep;			/* files of dead processes stay: somebody still wants to count them */
	bool nested;			/* in a subdirectory: no deeper */
};

static void report(struct scan *s, const char *dir, const char *name, int error)
{
	char path[PATH_MAX + 256];

	s->list->bad++;
	if (!s->on_bad)
		return;
	snprintf(path, sizeof(path), "%s%s%s", dir, name ? "/" : "", name ? name : "");
	s->on_bad(path, error);
}

static bool all_digits(const char *s, size_t max)
{
	size_t n = strspn(s, "0123456789");

	return n && n <= max && !s[n];
}

static int append(struct stat_list *l, const struct stat_proc *p)
{
	struct stat_proc *more;
	size_t cap;

	if (l->n == l->cap) {
		cap = l->cap ? 2 * l->cap : 16;
		more = realloc(l->proc, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->proc = more;
		l->cap = cap;
	}
	l->proc[l->n++] = *p;
	return 0;
}

/* Removes the file of a dead process, unless a new process has put its own there meanwhile. */
static void remove_dead(int dir, const char *name, uid_t owner, const struct stat_proc *p)
{
	struct stat_proc now;

	if (statfile_read_parts(dir, name, owner, 0, &now))
		return;
	if (now.start_time == p->start_time)
		unlinkat(dir, name, 0);
	stat_proc_clear(&now);
}

/* A file that cannot be read, of another version for example, but was left by a process that is gone: out of the way. True: it was. */
static bool remove_foreign(int dir, const char *name, uid_t owner)
{
	struct stat_proc p = { 0 };
	struct stat_header h;
	off_t size = 0;
	char pid[16];
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool ours = fd >= 0 && !check_file(fd, owner, &size) && !pread_all(fd, &h, offsetof(struct stat_header, program), 0) && h.magic == STAT_MAGIC;

	if (fd >= 0)
		close(fd);
	if (!ours)
		return false;
	snprintf(pid, sizeof(pid), "%u", h.pid);
	p.pid = h.pid;
	p.start_time = h.start_time;
	p.pid_ns = h.pid_ns;
	return !strcmp(pid, name) && stat_proc_gone(&p) && !unlinkat(dir, name, 0);
}

/* Its process is just making it: nothing is in it yet. That takes a moment; a file that stays so is damaged. */
static bool being_made(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct timespec now;
	struct stat st;
	uint64_t magic = 0;
	bool empty;

	clock_gettime(CLOCK_REALTIME, &now);
	empty = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && now.tv_sec - st.st_mtime < 5 && (!st.st_size || !pread_all(fd, &magic, sizeof(magic), 0)) && !magic;
	if (fd >= 0)
		close(fd);
	return empty;
}

static int scan_file(struct scan *s, int dir, const char *path, const char *name, uid_t owner)
{
	struct stat_proc p;
	int rc;

	if (!all_digits(name, 10) || (s->pid && (unsigned long)s->pid != strtoul(name, NULL, 10)))
		return 0;
	rc = statfile_read_parts(dir, name, owner, s->parts, &p);
	if (rc == -ENOMEM)
		return rc;
	if (rc) {
		if (rc != -ENOENT && !(rc == -EBADMSG && being_made(dir, name)) && (s->keep || !remove_foreign(dir, name, owner)))
			report(s, path, name, rc);
		return 0;
	}
	p.dead = stat_proc_gone(&p);
	if (p.dead && !s->keep)
		remove_dead(dir, name, owner, &p);
	if (p.dead && !s->dead) {
		stat_proc_clear(&p);
		return 0;
	}
	if (asprintf(&p.file, "%s/%s", path, name) < 0)
		p.file = NULL;		/* only its histories are lost */
	rc = append(s->list, &p);
	if (rc)
		stat_proc_clear(&p);
	return rc;
}

static int scan_opened(struct scan *s, int fd, const char *path, uid_t owner);

/* A subdirectory of rdmarun --stat. While that runs, it wants to count its dead; afterwards the directory goes with the last of them. */
static int scan_run(struct scan *s, int dir, const char *path, const char *name, uid_t owner)
{
	char sub[PATH_MAX + 256];
	struct scan inner = *s;
	pid_t pid;
	int rc;

	if (s->nested || !all_digits(name + strlen(RUN_PREFIX), 10))
		return 0;
	pid = (pid_t)strtoul(name + strlen(RUN_PREFIX), NULL, 10);
	inner.nested = true;
	inner.keep = pid > 0 && (!kill(pid, 0) || errno == EPERM);
	snprintf(sub, sizeof(sub), "%s/%s", path, name);
	rc = scan_opened(&inner, openat(dir, name, DIR_FLAGS), sub, owner);
	if (!inner.keep)
		unlinkat(dir, name, AT_REMOVEDIR);
	return rc;
}

static int scan_names(struct scan *s, int fd, const char *path, uid_t owner)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while (!rc && (e = readdir(d)))
		rc = strncmp(e->d_name, RUN_PREFIX, strlen(RUN_PREFIX)) ? scan_file(s, dirfd(d), path, e->d_name, owner)
									: scan_run(s, dirfd(d), path, e->d_name, owner);
	closedir(d);
	return rc;
}

/* fd: of the directory, or -1 with errno. owner -1: whoever the directory belongs to, if that is us or we are root. */
static int scan_opened(struct scan *s, int fd, const char *path, uid_t owner)
{
	struct stat st;
	int rc = 0;

	if (fd < 0 || fstat(fd, &st) < 0) {
		if (errno != ENOENT)	/* no directory: no process yet */
			report(s, path, NULL, -errno);
		if (fd >= 0)
			close(fd);
		return 0;
	}
	if (owner == (uid_t)-1)
		owner = geteuid() == 0 ? st.st_uid : geteuid();
	if (st.st_uid != owner || (st.st_mode & 077))
		rc = -EPERM;
	else if (!s->nested && !user_rights(owner))
		rc = -EACCES;
	if (rc) {
		report(s, path, NULL, rc);
		close(fd);
		return 0;
	}
	rc = scan_names(s, fd, path, owner);
	if (!s->nested)
		own_rights();
	return rc;
}

static int scan_dir(struct scan *s, const char *path, uid_t owner)
{
	return scan_opened(s, open(path, DIR_FLAGS), path, owner);
}

/* Where users count to whose name in /dev/shm somebody else has made. */
static int scan_second_places(struct scan *s)
{
	DIR *d = opendir("/run/user");
	char path[PATH_MAX];
	struct dirent *e;
	int rc = 0;

	if (stat_dir_nth(1, 0, path, sizeof(path)))
		rc = scan_dir(s, path, 0);
	while (d && !rc && (e = readdir(d))) {
		uid_t uid = (uid_t)strtoul(e->d_name, NULL, 10);

		if (all_digits(e->d_name, 10) && uid && stat_dir_nth(1, uid, path, sizeof(path)))
			rc = scan_dir(s, path, uid);
	}
	if (d)
		closedir(d);
	return rc;
}

static int scan_all_users(struct scan *s)
{
	DIR *d = opendir(SHM_DIR);
	char path[PATH_MAX];
	struct dirent *e;
	int rc = 0;

	if (!d)
		return scan_second_places(s);
	while (!rc && (e = readdir(d))) {
		const char *name = e->d_name + strlen(DIR_PREFIX);
		uid_t uid;

		if (strncmp(e->d_name, DIR_PREFIX, strlen(DIR_PREFIX)) || !all_digits(name, 10))
			continue;
		uid = (uid_t)strtoul(name, NULL, 10);
		snprintf(path, sizeof(path), SHM_DIR "/" DIR_PREFIX "%u", uid);
		/* one directory for each user, not those of 007 and 4294967303 too */
		if (uid != (uid_t)-1 && !strcmp(path + strlen(SHM_DIR) + 1, e->d_name))
			rc = scan_dir(s, path, uid);
	}
	closedir(d);
	return rc ? rc : scan_second_places(s);
}

static int scan_own(struct scan *s)
{
	char dir[PATH_MAX];
	int rc = 0;

	for (unsigned n = 0; !rc && stat_dir_nth(n, geteuid(), dir, sizeof(dir)); n++)
		rc = scan_dir(s, dir, geteuid());
	return rc;
}

static int by_pid(const void *a, const void *b)
{
	const struct stat_proc *p = a, *q = b;

	return p->pid != q->pid ? (p->pid < q->pid ? -1 : 1) : (p->uid > q->uid) - (p->uid < q->uid);
}

int statfile_list_parts(bool dead, pid_t pid, unsigned parts, void (*on_bad)(const char *path, int error), struct stat_list *ret)
{
	struct scan s = { ret, dead, pid, parts, on_bad, false, false };
	const char *env = secure_getenv("RDMASHIM_STAT_DIR");
	char dir[PATH_MAX];
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	stat_dir(geteuid(), dir, sizeof(dir));
	if (env && *env)
		rc = scan_dir(&s, dir, (uid_t)-1);
	else if (geteuid() == 0)
		rc = scan_all_users(&s);
	else
		rc = scan_own(&s);
	if (rc)
		stat_list_clear(ret);
	else if (ret->n)
		qsort(ret->proc, ret->n, sizeof(*ret->proc), by_pid);
	return rc;
}

int statfile_list(bool dead, pid_t pid, void (*on_bad)(const char *path, int error), struct stat_list *ret)
{
	return statfile_list_parts(dead, pid, STATFILE_ALL, on_bad, ret);
}

void stat_list_clear(struct stat_list *l)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		stat_proc_clear(&l->proc[i]);
	free(l->proc);
	memset(l, 0, sizeof(*l));
}
