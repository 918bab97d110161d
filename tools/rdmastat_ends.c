/*
 * rdmastat_ends.c - see rdmastat_ends.h. A table of the sockets of one network namespace at a time is kept in memory; the
 * processes are visited by namespace in the order of the list.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rdmastat_ends.h"

#define SOCKETS_MAX (1u << 20)

struct sock_row {
	unsigned long inode;
	int family;
	uint16_t lport, pport;
	uint8_t laddr[16], paddr[16];
};

struct sockets {
	ino_t ns;			/* 0: empty */
	struct sock_row *row;
	size_t n, cap;
};

static int by_inode(const void *a, const void *b)
{
	const struct sock_row *x = a, *y = b;

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

static void read_table(struct sockets *s, uint32_t pid, const char *name, int family)
{
	size_t words = family == AF_INET ? 1 : 4;
	char path[64], line[512], l[40], r[40];
	unsigned lport, pport;
	unsigned long inode;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/net/%s", pid, name);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		struct sock_row *row;

		if (sscanf(line, " %*u: %32[0-9A-F]:%4X %32[0-9A-F]:%4X %*X %*X:%*X %*X:%*X %*X %*u %*u %lu", l, &lport, r, &pport, &inode) != 5 ||
		    strlen(l) != 8 * words || strlen(r) != 8 * words || !inode || s->n == SOCKETS_MAX)
			continue;
		if (s->n == s->cap) {
			size_t cap = s->cap ? 2 * s->cap : 256;
			struct sock_row *more = realloc(s->row, cap * sizeof(*more));

			if (!more)
				break;
			s->row = more;
			s->cap = cap;
		}
		row = &s->row[s->n];
		*row = (struct sock_row){ .inode = inode, .family = family, .lport = (uint16_t)lport, .pport = (uint16_t)pport };
		if (read_hex(l, words, row->laddr) && read_hex(r, words, row->paddr))
			s->n++;
	}
	fclose(f);
}

/* Makes s the table of the process's namespace. False if it may not be seen. */
static bool load(struct sockets *s, uint32_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u/ns/net", pid);
	if (stat(path, &st))
		return false;
	if (s->ns == st.st_ino)
		return true;
	s->n = 0;
	s->ns = st.st_ino;
	read_table(s, pid, "tcp", AF_INET);
	read_table(s, pid, "tcp6", AF_INET6);
	if (s->n)
		qsort(s->row, s->n, sizeof(*s->row), by_inode);
	return true;
}

static void fill(const struct sockets *s, uint32_t pid, struct stat_conn *c)
{
	struct sock_row key = { 0 }, *row;
	char path[64], to[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid, c->fd);
	n = readlink(path, to, sizeof(to) - 1);
	if (n <= 0)
		return;
	to[n] = '\0';
	if (sscanf(to, "socket:[%lu]", &key.inode) != 1 || !s->n)
		return;
	row = bsearch(&key, s->row, s->n, sizeof(*s->row), by_inode);
	if (!row)
		return;
	c->family = row->family;
	c->lport = row->lport;
	c->pport = row->pport;
	memcpy(c->laddr, row->laddr, 16);
	memcpy(c->paddr, row->paddr, 16);
}

void ends_fill(struct stat_list *l)
{
	struct sockets s = { 0 };
	size_t i, k;

	for (i = 0; i < l->n; i++) {
		struct stat_proc *p = &l->proc[i];
		bool loaded = false, seen = stat_proc_here(p);

		for (k = 0; seen && k < p->nconns; k++) {
			if (p->conns[k].family != AF_UNSPEC)
				continue;
			if (!loaded && !load(&s, p->pid))
				break;
			loaded = true;
			fill(&s, p->pid, &p->conns[k]);
		}
	}
	free(s.row);
}
