/*
 * statfile.c - see statfile.h. One thread, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arch/newer.h"
#include "policy/stat_int.h"
#include "policy/words.h"
#include "ground/statfile_dir.h"
#include "ground/statfile_in.h"

#define BYTES_MAX (1ull << 60)		/* nothing has moved more: larger is garbage */
#define ROWS_AT_ONCE 256		/* so many are in memory while they are read */

/* ---- one file ---- */

int pread_all(int fd, void *buf, size_t len, off_t off)
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
	size_t n = strnlen(src, len - 1);

	memcpy(dst, src, n);
	make_printable(dst, n, '?', ASCII_ONLY);
	dst[n] = '\0';
}

int open_in(int dir, const char *name, int flags)
{
	struct open_how how = { .flags = (uint64_t)flags,
				.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS |
					RESOLVE_BENEATH };
	long fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));

	/* Before Linux 5.6, or forbidden: then no other /dev/shm is looked into either. */
	return fd < 0 && (errno == ENOSYS || errno == EPERM) ? openat(dir, name, flags) : (int)fd;
}

int check_file(int fd, uid_t owner, off_t *size)
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
static off_t calls_at(const struct stat_header *h)
{
	return (off_t)(sizeof(*h) + h->rows * sizeof(struct stat_row));
}
static off_t sites_at(const struct stat_header *h)
{
	return calls_at(h) + (off_t)sizeof(struct stat_calls);
}
static off_t histories_at(const struct stat_header *h)
{
	return sites_at(h) + (off_t)(STAT_SITES * sizeof(struct stat_call_site));
}
static off_t moves_at(const struct stat_header *h)
{
	return histories_at(h) + (off_t)(h->rows * sizeof(struct stat_history));
}
static off_t links_at(const struct stat_header *h)
{
	return moves_at(h) +
	       (off_t)(sizeof(struct stat_move_calls) + h->rows * sizeof(struct stat_moves));
}

bool statfile_ended(const char *name)
{
	const char *n = name + strlen(STAT_ENDED);

	return !strncmp(name, STAT_ENDED, strlen(STAT_ENDED)) &&
	       strspn(n, "0123456789") == strlen(n) && *n && strlen(n) <= 3;
}

static int check_header(const struct stat_header *h, const char *name, off_t size)
{
	char pid[16];

	if (h->magic != STAT_MAGIC)
		return -EBADMSG;
	if (h->version != STAT_VERSION || h->header_size != sizeof(*h) ||
	    h->row_size != sizeof(struct stat_row))
		return -EPROTO;
	snprintf(pid, sizeof(pid), "%u", h->pid);
	if (statfile_ended(name) ? h->pid : !h->pid || h->pid > INT_MAX || strcmp(pid, name))
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

/* Of a file of another version: who wrote it. */
static void take_stranger(const struct stat_header *h, uid_t owner, struct stat_proc *ret)
{
	ret->pid = h->pid;
	ret->uid = owner;
	ret->version = h->version;
	copy_printable(ret->program, h->program, sizeof(ret->program));
	if (h->version >= STAT_BUILD_SINCE)
		copy_printable(ret->build, h->build, sizeof(ret->build));
}

static int take_header(const struct stat_header *h, uid_t owner, struct stat_proc *ret)
{
	ret->pid = h->pid;
	ret->uid = owner;		/* what the kernel says, not what the file says */
	ret->start_time = h->pid ? h->start_time : 0;
	ret->folded = h->pid ? 0 : h->start_time > BYTES_MAX ? 0 : h->start_time;
	ret->pid_ns = h->pid_ns;
	ret->mode = h->mode < STAT_MODES ? (enum stat_mode)h->mode : STAT_MODE_OFF;
	ret->version = h->version;
	copy_printable(ret->build, h->build, sizeof(ret->build));
	copy_printable(ret->program, h->program, sizeof(ret->program));
	copy_printable(ret->policy_file, h->policy_file, sizeof(ret->policy_file));
	copy_printable(ret->go, h->go, sizeof(ret->go));
	take_counts(ret->counter, h->counter, STAT_COUNTERS);
	take_counts(ret->reasons, h->reasons, REASON_COUNT);
	take_counts(&ret->rings_held, &h->rings_held, 1);
	take_counts(&ret->ring_bytes, &h->ring_bytes, 1);
	take_counts(&ret->ring_budget, &h->ring_budget, 1);
	return take_bytes(ret->tx_bytes, h->bytes_tx) && take_bytes(ret->rx_bytes, h->bytes_rx)
		       ? 0
		       : -EBADMSG;
}

static int take_errors(const struct stat_header *h, struct stat_proc *ret)
{
	ret->link_errors = calloc(REASON_COUNT, sizeof(*ret->link_errors));
	if (ret->link_errors)
		take_counts(ret->link_errors, h->link_errors, REASON_COUNT);
	return ret->link_errors ? 0 : -ENOMEM;
}

/* False if a field has a value that no writer of this version puts there. */
static bool take_row(const struct stat_row *r, struct stat_conn *c)
{
	memset(c, 0, sizeof(*c));
	if ((r->family != AF_UNSPEC && r->family != AF_INET && r->family != AF_INET6) ||
	    r->role > ROLE_ANY || r->reason >= REASON_COUNT || r->tx_path >= PATH_KINDS ||
	    r->rx_path >= PATH_KINDS)
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
	c->fulls = r->fulls;
	c->overflows = r->overflows;
	c->ring = r->ring;
	c->link = r->link;
	c->tx_base = r->tx_base;
	c->rx_base = r->rx_base;
	c->rtt = c->unread = c->to_read = UINT64_MAX;
	return take_bytes(c->tx_bytes, r->tx_bytes) && take_bytes(c->rx_bytes, r->rx_bytes);
}

/*
 * Reads n rows from `first` on three times; row[i] is the second reading, and before[i] ==
 * after[i] != 0 if it was one live connection all along. (Twice is too few: the first reading of a
 * row may itself be of two connections.)
 */
static int read_rows(int fd, struct stat_row *row, size_t first, size_t n, uint32_t *before,
		     uint32_t *after)
{
	int pass, rc;
	size_t i;

	for (pass = 0; pass < 3; pass++) {
		uint32_t *gen = pass == 0 ? before : after;
		struct stat_row *to = pass == 2 ? row + n : row;

		rc = pread_all(fd, to, n * sizeof(*to),
			       (off_t)(sizeof(struct stat_header) + first * sizeof(*to)));
		if (rc)
			return rc;
		for (i = 0; i < n; i++)
			gen[i] = to[i].state == 2 ? to[i].gen : 0;
	}
	return 0;
}

/* A live connection: its bytes count; it is kept if there is room. */
static int add_conn(const struct stat_conn *c, size_t *cap, struct stat_room *room,
		    struct stat_proc *ret)
{
	for (int k = 0; k < PATH_KINDS; k++) {
		ret->tx_bytes[k] = sat_add(ret->tx_bytes[k], c->tx_bytes[k]);
		ret->rx_bytes[k] = sat_add(ret->rx_bytes[k], c->rx_bytes[k]);
	}
	ret->counter[STAT_ring_full] = sat_add(ret->counter[STAT_ring_full], c->fulls);
	if (ret->nconns >= room->conns) {
		ret->more_conns++;
		return 0;
	}
	if (ret->nconns == *cap) {
		struct stat_conn *more = realloc(ret->conns, (*cap += *cap + 8) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		ret->conns = more;
	}
	ret->conns[ret->nconns++] = *c;
	return 0;
}

static int take_rows(int fd, size_t n, struct stat_room *room, struct stat_proc *ret)
{
	struct stat_row *row = malloc(2 * ROWS_AT_ONCE * sizeof(*row));
	uint32_t gen[2][ROWS_AT_ONCE];
	struct stat_conn c;
	size_t at, some, cap = 0;
	int rc = row ? 0 : -ENOMEM;

	for (at = 0; at < n && !rc; at += some) {
		some = n - at < ROWS_AT_ONCE ? n - at : ROWS_AT_ONCE;
		rc = read_rows(fd, row, at, some, gen[0], gen[1]);
		for (size_t i = 0; i < some && !rc; i++) {
			if (!gen[0][i] || gen[0][i] != gen[1][i] || !take_row(&row[i], &c))
				continue;
			c.row = (uint32_t)(at + i);
			c.gen = gen[0][i];
			rc = add_conn(&c, &cap, room, ret);
		}
	}
	free(row);
	return rc;
}

static int take_calls(int fd, off_t at, struct stat_proc *ret)
{
	struct stat_calls *c = malloc(sizeof(*c));
	int rc;

	ret->call = calloc(STAT_CALLS, sizeof(*ret->call));
	ret->calls = calloc(STAT_CALLS, sizeof(*ret->calls));
	rc = c && ret->call && ret->calls ? pread_all(fd, c, sizeof(*c), at) : -ENOMEM;

	for (int i = 0; i < STAT_CALLS && !rc; i++) {
		copy_printable(ret->call[i], c->name[i], STAT_CALL_NAME);
		for (int b = 0; b < STAT_CALL_BLOCKS; b++)
			for (int k = 0; k < 2; k++)
				ret->calls[i][k] = sat_add(ret->calls[i][k], c->block[b].n[i][k]);
	}
	free(c);
	return rc;
}

static void add_moves(const struct stat_moves *m, const struct stat_move_calls *names,
		      struct stat_proc *ret)
{
	for (int k = 0; k < 2; k++)
		for (int n = 0; n < STAT_MOVES; n++) {
			unsigned call = names->call[n];
			uint64_t *sum;

			if (!m->n[k][n] || !call || call > STAT_CALLS)
				continue;
			sum = &ret->calls[call - 1][k];
			*sum = sat_add(*sum, m->n[k][n]);
		}
}

/* The calls that move bytes, by connection; those of closed ones are among the others already. */
static int take_moves(int fd, off_t at, uint32_t rows, struct stat_proc *ret)
{
	struct stat_moves *m = malloc(ROWS_AT_ONCE * sizeof(*m));
	struct stat_move_calls names;
	uint32_t first, some;
	int rc = m ? pread_all(fd, &names, sizeof(names), at) : -ENOMEM;

	at += (off_t)sizeof(names);
	for (first = 0; first < rows && !rc; first += some) {
		some = rows - first < ROWS_AT_ONCE ? rows - first : ROWS_AT_ONCE;
		rc = pread_all(fd, m, some * sizeof(*m), at + (off_t)(first * sizeof(*m)));
		for (uint32_t i = 0; i < some && !rc; i++)
			add_moves(&m[i], &names, ret);
	}
	free(m);
	return rc;
}

/* To what is needed. */
static void shrink(void **p, size_t len)
{
	void *less = realloc(*p, len + 1);

	if (less)
		*p = less;
}

static void take_site(const struct stat_call_site *s, struct stat_copies *c)
{
	c->rx = s->rx != 0;
	c->gpu_path = s->gpu_path;
	c->lo = s->lo;
	c->hi = s->hi;
	take_counts(&c->copies, &s->copies, 1);
	take_counts(&c->bytes, &s->bytes, 1);
	take_counts(&c->taken, &s->taken, 1);
	take_counts(c->why, s->why, REASON_COUNT);
	copy_printable(c->where, s->where, sizeof(c->where));
}

static int take_sites(int fd, off_t at, struct stat_room *room, struct stat_proc *ret)
{
	struct stat_call_site *s = malloc(STAT_SITES * sizeof(*s));
	int rc;

	ret->sites = calloc(STAT_SITES, sizeof(*ret->sites));
	rc = s && ret->sites ? pread_all(fd, s, STAT_SITES * sizeof(*s), at) : -ENOMEM;
	for (int i = 0; i < STAT_SITES && !rc; i++)
		if (s[i].state == 2 && ret->ncall_sites < room->sites)
			take_site(&s[i], &ret->sites[ret->ncall_sites++]);
		else
			ret->more_others += s[i].state == 2;
	free(s);
	shrink((void **)&ret->sites, ret->ncall_sites * sizeof(*ret->sites));
	return rc;
}

/* False if a field has a value that no writer of this version puts there. */
static bool take_link(const struct stat_link *l, struct stat_qp *q)
{
	memset(q, 0, sizeof(*q));
	if (l->phase >= STAT_LINK_PHASES || l->kind >= STAT_LINK_KINDS ||
	    (l->family != AF_UNSPEC && l->family != AF_INET && l->family != AF_INET6) ||
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

/* Three readings of n links from `first` on, of which the second counts, as in read_rows(). */
static int read_links(int fd, struct stat_link *l, off_t at, size_t first, size_t n)
{
	off_t from = at + (off_t)(offsetof(struct stat_links, link) + first * sizeof(*l));
	int rc = 0;

	for (size_t i = 0; i < 3 && !rc; i++)
		rc = pread_all(fd, l + i * n, n * sizeof(*l), from);
	return rc;
}

/* A link, if it was one and the same at all three readings, which lie n apart. */
static int add_link(const struct stat_link *l, size_t n, uint32_t number, size_t *cap,
		    struct stat_room *room, struct stat_proc *ret)
{
	struct stat_qp q;

	if (l[0].state != 2 || l[2 * n].state != 2 || l[0].gen != l[2 * n].gen ||
	    !take_link(&l[n], &q))
		return 0;
	if (ret->nqps >= room->qps) {
		ret->more_others++;
		return 0;
	}
	if (ret->nqps == *cap) {
		struct stat_qp *more = realloc(ret->qps, (*cap += *cap / 2 + 8) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		ret->qps = more;
	}
	q.number = number;
	ret->qps[ret->nqps++] = q;
	return 0;
}

/* In chunks: who writes the file says how many there are. */
static int take_links(int fd, off_t at, struct stat_room *room, struct stat_proc *ret)
{
	struct stat_link *l;
	size_t cap = 0, first, some;
	uint32_t used;
	int rc = pread_all(fd, &used, sizeof(used), at + (off_t)offsetof(struct stat_links, used));

	if (rc || !used)
		return rc;
	if (used > STAT_LINKS)
		return -EBADMSG;
	l = malloc(3 * ROWS_AT_ONCE * sizeof(*l));
	if (!l)
		return -ENOMEM;
	for (first = 0; first < used && !rc; first += some) {
		some = used - first < ROWS_AT_ONCE ? used - first : ROWS_AT_ONCE;
		rc = read_links(fd, l, at, first, some);
		for (size_t i = 0; i < some && !rc; i++)
			rc = add_link(&l[i], some, (uint32_t)(first + i + 1), &cap, room, ret);
	}
	free(l);
	if (ret->qps)
		shrink((void **)&ret->qps, ret->nqps * sizeof(*ret->qps));
	return rc;
}

int statfile_read_room(int fd, const char *name, uid_t owner, unsigned parts,
		       struct stat_room *room, struct stat_proc *ret)
{
	struct stat_header h;
	int rc;
	off_t size = 0;

	memset(ret, 0, sizeof(*ret));
	if (fd < 0)
		return fd == -ELOOP ? -EBADMSG : fd;
	rc = check_file(fd, owner, &size);
	if (!rc)
		rc = pread_all(fd, &h, sizeof(h), 0);
	if (!rc)
		rc = check_header(&h, name, size);
	if (!rc)
		rc = take_header(&h, owner, ret);
	if (!rc)
		rc = take_rows(fd, room->procs ? h.rows_used : 0, room, ret);
	if (!room->procs)
		parts = 0;
	if (!rc && parts & STATFILE_CALLS)
		rc = take_calls(fd, calls_at(&h), ret);
	if (!rc && parts & STATFILE_CALLS)
		rc = take_moves(fd, moves_at(&h), h.rows_used, ret);
	if (!rc && parts & STATFILE_ERRORS)
		rc = take_errors(&h, ret);
	if (!rc && parts & STATFILE_SITES)
		rc = take_sites(fd, sites_at(&h), room, ret);
	if (!rc && parts & STATFILE_QPS)
		rc = take_links(fd, links_at(&h), room, ret);
	close(fd);
	if (rc)
		stat_proc_clear(ret);
	if (rc == -EPROTO)
		take_stranger(&h, owner, ret);
	return rc;
}

int statfile_read(int dir, const char *name, uid_t owner, struct stat_proc *ret)
{
	struct stat_room room = STAT_ROOM_ANY;
	int fd = open_in(dir, name, STAT_FILE_FLAGS);

	return statfile_read_room(fd < 0 ? -errno : fd, name, owner, STATFILE_ALL, &room, ret);
}

void stat_proc_clear(struct stat_proc *p)
{
	free(p->conns);
	free(p->file);
	free(p->sites);
	free(p->qps);
	free(p->link_errors);
	free(p->call);
	free(p->calls);
	memset(p, 0, sizeof(*p));
}

/* ---- one connection's history ---- */

/* Of an event only what two readings agree on, and only if it is in its place and of this
 * connection. */
static bool take_event(const struct stat_event *a, const struct stat_event *b, uint32_t gen,
		       uint32_t n, struct stat_moment *ret)
{
	uint64_t what = a->what;
	unsigned kind = what & 0xff, reason = what >> 8 & 0xff;

	if (what != b->what || a->when != b->when || a->arg != b->arg ||
	    what != STAT_EVENT_WHAT(gen, n, reason, kind) || !kind || kind >= EVENT_COUNT ||
	    reason >= REASON_COUNT)
		return false;
	*ret = (struct stat_moment){ a->when, (enum stat_event_kind)kind, (enum reason)reason,
				     a->arg };
	return true;
}

static void take_history(const struct stat_history *a, const struct stat_history *b, uint32_t gen,
			 struct stat_past *ret)
{
	uint32_t next = a->next, n = 0;

	ret->left_out = next > STAT_EVENTS ? next - STAT_EVENTS : 0;
	for (; n < next; n++) {
		if (n == STAT_EVENTS_FIRST && ret->left_out)
			n += (uint32_t)ret->left_out;
		if (take_event(&a->event[stat_event_place(n)], &b->event[stat_event_place(n)], gen,
			       n, &ret->at[ret->n]))
			ret->n++;
	}
}

static int read_history(int fd, const struct stat_proc *p, const struct stat_conn *c,
			struct stat_past *ret)
{
	struct stat_history hist[2];
	struct stat_header h = { 0 };
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
	struct user_dir d;
	char path[PATH_MAX];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%.*s", (int)(name - p->file), p->file);
	fd = user_dir_open(&d, AT_FDCWD, path, !geteuid() && p->uid, &st);
	if (fd < 0)
		return fd;
	fd = user_dir_become(&d, p->uid) ? user_dir_file(&d, name, STAT_FILE_FLAGS) : -EPERM;
	user_dir_close(&d);
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
