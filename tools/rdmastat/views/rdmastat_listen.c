/*
 * rdmastat_listen.c - `rdmastat listen`: the sockets at which processes under the library
 * listen. The library does not follow them; the kernel knows them: /proc/PID/net/tcp has the
 * sockets of a network namespace, /proc/PID/fd says whose they are. One namespace after the
 * other is in memory.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/rdmastat_ends.h"
#include "ground/rdmastat_json.h"
#include "ground/rdmastat_table.h"

#define LISTENS	 0x0a		/* include/net/tcp_states.h */
#define MOST	 2048		/* sockets that listen, of a namespace and in all */
#define FDS_MOST 65536		/* descriptors of a process that are looked at */
#define USERS	 1024		/* so much of a user is shown to root, who is not he: */
#define OF_USER	 256		/* sockets, and */
#define FDS_USER FDS_MOST	/* descriptors of all his processes that are looked at */

struct share { uid_t uid; size_t known, rows, fds; };

struct place {
	const struct stat_proc *p;
	uint32_t fd;
	struct socket s;
	uint64_t live, fast;		/* connections that were accepted there and are open */
};

struct places {
	struct place *row;		/* MOST */
	size_t n;
	struct socket *known;		/* MOST, of the namespace in hand */
	size_t nknown;
	struct share *user;		/* USERS */
	size_t nusers;
	bool more;
};

/* ---- columns ---- */

#define ROW const struct place *l = row
NUMBER(pid, l->p->pid)
NUMBER(uid, l->p->uid)
NUMBER(fd, l->fd)
NUMBER(waiting, l->s.unread)
NUMBER(live, l->live)
NUMBER(fast, l->fast)
TEXT(program, l->p->program)
TEXT(address, end_text(l->s.ends.family, l->s.ends.laddr, l->s.ends.lport, buf, len))
#undef ROW

static const struct column cols[] = {
	{ "pid", "PID", false, 0, 8, false, "process", .count = pid },
	{ "program", "PROGRAM", true, 2, 16, false, "its name", .text = program },
	{ "fd", "FD", false, 3, 0, false, "descriptor in it", .count = fd },
	{ "address", "ADDRESS", true, 0, 16, false, "where it listens", .text = address },
	{ "waiting", "WAITING", false, 1, 0, false, "connections that nobody has accepted yet",
	  .count = waiting },
	{ "live", "LIVE", false, 1, 0, false,
	  "connections that were accepted there, by whatever process, and are open",
	  .count = live },
	{ "fast", "FAST", false, 1, 0, false,
	  "of these, on a fast path now, in one direction at least", .count = fast },
	{ "uid", "UID", false, 4, 0, true, "user", .count = uid },
};
#define COLS (sizeof(cols) / sizeof(cols[0]))

/* ---- who listens where ---- */

/* What is left of that user's share; the last one's, where there are too many. */
static struct share *share_of(struct places *all, uid_t uid)
{
	size_t i = 0;

	while (i < all->nusers && all->user[i].uid != uid)
		i++;
	if (i == USERS)
		return &all->user[USERS - 1];
	if (i == all->nusers) {
		bool any = !geteuid() && uid;

		all->nusers++;
		all->user[i] = any ? (struct share){ uid, OF_USER, OF_USER, FDS_USER }
				   : (struct share){ uid, SIZE_MAX, SIZE_MAX, SIZE_MAX };
	}
	return &all->user[i];
}

static bool take(size_t *left) { return *left && (*left)--; }

static void keep_listening(void *arg, const struct socket *s)
{
	struct places *all = arg;

	if (s->state != LISTENS)
		return;
	if (all->nknown < MOST && take(&share_of(all, s->uid)->known))
		all->known[all->nknown++] = *s;
	else
		all->more = true;
}

static int by_inode(const void *a, const void *b)
{
	const struct socket *x = a, *y = b;

	return (x->inode > y->inode) - (x->inode < y->inode);
}

/* The namespace's, as this process has it. False: they may not be seen. */
static bool read_namespace(struct places *all, const struct stat_proc *p)
{
	all->nknown = 0;
	for (size_t i = 0; i < all->nusers; i++)
		if (all->user[i].known < OF_USER)
			all->user[i].known = OF_USER;
	if (!socket_table(p->pid, "tcp", AF_INET, keep_listening, all))
		return false;
	socket_table(p->pid, "tcp6", AF_INET6, keep_listening, all);
	if (all->nknown)
		qsort(all->known, all->nknown, sizeof(*all->known), by_inode);
	return true;
}

static void look_at(struct places *all, const struct stat_proc *p)
{
	struct share *his = share_of(all, p->uid);
	unsigned seen = 0;
	char path[64];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%u/fd", p->pid);
	d = opendir(path);
	while (d && all->nknown && (e = readdir(d)) && seen++ < FDS_MOST && take(&his->fds)) {
		uint32_t fd = (uint32_t)strtoul(e->d_name, NULL, 10);
		struct socket key = { 0 }, *hit;

		if (e->d_name[0] != '.')
			key.inode = socket_inode(p->pid, fd);
		if (!key.inode)
			continue;
		hit = bsearch(&key, all->known, all->nknown, sizeof(key), by_inode);
		if (hit && all->n < MOST && take(&his->rows))
			all->row[all->n++] = (struct place){ .p = p, .fd = fd, .s = *hit };
		else if (hit)
			all->more = true;
	}
	if (d)
		closedir(d);
}

struct home { const struct stat_proc *p; ino_t ns; };

static int by_namespace(const void *a, const void *b)
{
	const struct home *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return (x->p > y->p) - (x->p < y->p);
}

static bool find_places(const struct stat_list *l, struct places *all)
{
	struct home *home = malloc((l->n + 1) * sizeof(*home));
	size_t n = 0, i;
	char path[64];
	struct stat st;
	bool known = false;

	for (i = 0; home && i < l->n; i++) {
		snprintf(path, sizeof(path), "/proc/%u/ns/net", l->proc[i].pid);
		if (stat_proc_here(&l->proc[i]) && !stat(path, &st))
			home[n++] = (struct home){ &l->proc[i], st.st_ino };
	}
	if (n)
		qsort(home, n, sizeof(*home), by_namespace);
	for (i = 0; i < n; i++) {
		if (!i || home[i].ns != home[i - 1].ns || !known)
			known = read_namespace(all, home[i].p);
		if (known)
			look_at(all, home[i].p);
	}
	free(home);
	return home != NULL;
}

/* ---- what came in there ---- */

static bool came_in(const struct place *l, const struct stat_conn *c)
{
	static const uint8_t any[16];
	const struct stat_conn *at = &l->s.ends;

	if (c->role != ROLE_SERVER || c->lport != at->lport)
		return false;
	if (!memcmp(at->laddr, any, 16))
		return at->family == AF_INET6 || c->family == AF_INET;
	return c->family == at->family && !memcmp(c->laddr, at->laddr, 16);
}

static void count_connections(const struct stat_list *l, struct place *to)
{
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; !l->proc[i].dead && k < l->proc[i].nconns; k++) {
			const struct stat_conn *c = &l->proc[i].conns[k];

			if (!came_in(to, c))
				continue;
			to->live++;
			to->fast += c->tx_path != PATH_TCP || c->rx_path != PATH_TCP;
		}
}

/* ---- the view ---- */

static int places_in_list(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? -1 : 1;
	return (x->fd > y->fd) - (x->fd < y->fd);
}

static void json_places(const struct request *r, const struct places *all)
{
	struct json_rows w = { stdout, r->watch, false, false };
	char buf[64];

	json_rows_begin(&w, "listeners");
	for (size_t i = 0; i < all->n; i++) {
		const struct place *l = &all->row[i];
		json_object *o = json_object_new_object();

		json_add(o, "pid", json_num(l->p->pid));
		json_add(o, "uid", json_num(l->p->uid));
		json_add(o, "program", json_str(l->p->program));
		json_add(o, "fd", json_num(l->fd));
		json_add(o, "address", json_str(address(l, buf, sizeof(buf))));
		json_add(o, "waiting", json_num(l->s.unread));
		json_add(o, "live", json_num(l->live));
		json_add(o, "fast", json_num(l->fast));
		json_rows_add(&w, o);
	}
	json_rows_end(&w);
	json_rows_done(&w);
}

static void print_places(const struct request *r, const struct places *all, const uint8_t *chosen,
			 size_t ncols)
{
	struct table *t = table_new(cols, chosen, ncols);

	for (size_t i = 0; i < all->n; i++)
		table_row(t, &all->row[i]);
	table_print(r, t, stdout);
	if (!all->n && r->width)	/* for a person; a program has its header line */
		print_wrapped(stdout, "", 0, "No process under the library listens.", r->width);
	table_free(t);
}

int show_listeners(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = cols, .tie = places_in_list };
	struct places all = { 0 };
	uint8_t chosen[TABLE_COLUMNS];
	size_t ncols, i;
	int rc;

	ncols = columns_choose(r, cols, COLS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, cols, COLS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	all.row = malloc(MOST * sizeof(*all.row));
	all.known = malloc(MOST * sizeof(*all.known));
	all.user = malloc(USERS * sizeof(*all.user));
	rc = all.row && all.known && all.user && find_places(l, &all) ? EXIT_OK : EXIT_FAILED;
	for (i = 0; i < all.n; i++)
		count_connections(l, &all.row[i]);
	rows_sort(all.row, all.n, sizeof(*all.row), &order);
	if (rc)
		complain("out of memory");
	else if (r->json)
		json_places(r, &all);
	else
		print_places(r, &all, chosen, ncols);
	if (all.more)
		complain("more than %d sockets listen, or %d of one user; -p PID shows those of "
			 "one process", MOST, OF_USER);
	free(all.row);
	free(all.known);
	free(all.user);
	return rc;
}
