/*
 * rdmastat_ends.c - see rdmastat_ends.h. Sockets that are looked for are kept in memory, by network
 * namespace; of a namespace's table, which may be of any length, one line.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/rdmastat_ends.h"

#define SOCKETS_MAX (1u << 20)		/* lines of a table that are read */

struct wanted {
	ino_t ns;
	unsigned long inode;
	struct stat_conn *c;
	uint32_t pid;
};

struct sockets {
	struct wanted *row;
	size_t n, cap;
};

static int by_socket(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return (x->inode > y->inode) - (x->inode < y->inode);
}

/* 8 or 32 hexadecimal digits, words of 32 bits in the machine's order. */
static bool read_hex(const char *s, size_t words, uint8_t *out)
{
	size_t i;
	char buf[9] = "";
	char *end;

	for (i = 0; i < words; i++) {
		uint32_t v;

		memcpy(buf, s + 8 * i, 8);
		v = (uint32_t)strtoul(buf, &end, 16);
		if (*end)
			return false;
		memcpy(out + 4 * i, &v, 4);
	}
	return true;
}

/* All of the n rows, which are of one namespace and sorted, that are this socket. */
static void found(const struct wanted *row, size_t n, unsigned long inode,
		  const struct stat_conn *ends)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (row[mid].inode < inode)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < n && row[lo].inode == inode; lo++) {
		struct stat_conn *c = row[lo].c;

		c->family = ends->family;
		c->lport = ends->lport;
		c->pport = ends->pport;
		memcpy(c->laddr, ends->laddr, 16);
		memcpy(c->paddr, ends->paddr, 16);
	}
}

bool socket_table(uint32_t pid, const char *name, int family, socket_found each, void *arg)
{
	size_t words = family == AF_INET ? 1 : 4;
	char path[64], line[512], l[40], r[40];
	unsigned lport, pport, lines = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/net/%s", pid, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (lines++ < SOCKETS_MAX && fgets(line, sizeof(line), f)) {
		struct socket s = { .ends.family = (uint16_t)family };

		if (sscanf(line, " %*u: %32[0-9A-F]:%4X %32[0-9A-F]:%4X %X %*X:%X "
			   "%*X:%*X %*X %u %*u %lu", l, &lport, r, &pport, &s.state, &s.unread,
			   &s.uid, &s.inode) != 8 ||
		    strlen(l) != 8 * words || strlen(r) != 8 * words || !s.inode)
			continue;
		s.ends.lport = (uint16_t)lport;
		s.ends.pport = (uint16_t)pport;
		if (read_hex(l, words, s.ends.laddr) && read_hex(r, words, s.ends.paddr))
			each(arg, &s);
	}
	fclose(f);
	return true;
}

struct some { const struct wanted *row; size_t n; };

static void found_end(void *arg, const struct socket *s)
{
	const struct some *some = arg;

	found(some->row, some->n, s->inode, &s->ends);
}

/* Of a process that has gone meanwhile there is none: by the next one. */
static void read_any(const struct wanted *row, size_t n, const char *name, int family)
{
	struct some some = { row, n };

	for (size_t k = 0; k < n && k < 8; k++)
		if (socket_table(row[k].pid, name, family, found_end, &some))
			return;
}

unsigned long socket_inode(uint32_t pid, uint32_t fd)
{
	char path[64], to[64];
	unsigned long inode;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid, fd);
	n = readlink(path, to, sizeof(to) - 1);
	if (n <= 0)
		return 0;
	to[n] = '\0';
	return sscanf(to, "socket:[%lu]", &inode) == 1 ? inode : 0;
}

static void look_for(struct sockets *s, ino_t ns, uint32_t pid, struct stat_conn *c)
{
	unsigned long inode = socket_inode(pid, c->fd);

	if (!inode)
		return;
	if (s->n == s->cap) {
		size_t cap = s->cap + s->cap / 2 + 256;
		struct wanted *more = realloc(s->row, cap * sizeof(*more));

		if (!more)
			return;
		s->row = more;
		s->cap = cap;
	}
	s->row[s->n++] = (struct wanted){ ns, inode, c, pid };
}

static void look_for_all(struct sockets *s, struct stat_proc *p)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u/ns/net", p->pid);
	if (stat(path, &st))
		return;
	for (size_t k = 0; k < p->nconns; k++)
		if (p->conns[k].family == AF_UNSPEC)
			look_for(s, st.st_ino, p->pid, &p->conns[k]);
}

void ends_fill(struct stat_list *l)
{
	struct sockets s = { 0 };
	size_t i, n;

	for (i = 0; i < l->n; i++)
		if (l->proc[i].nconns && stat_proc_here(&l->proc[i]))
			look_for_all(&s, &l->proc[i]);
	if (s.n)
		qsort(s.row, s.n, sizeof(*s.row), by_socket);
	for (i = 0; i < s.n; i += n) {
		for (n = 1; i + n < s.n && s.row[i + n].ns == s.row[i].ns; n++)
			;
		read_any(&s.row[i], n, "tcp", AF_INET);
		read_any(&s.row[i], n, "tcp6", AF_INET6);
	}
	free(s.row);
}
