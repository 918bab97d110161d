/*
 * rdmastat_now.c - see rdmastat_now.h.
 */
#include "ground/rdmastat_ends.h"
#include "ground/rdmastat_now.h"

#define MOST (1ull << 40)	/* no ring has more room */

/* Both ends count from the same byte on. They were read one after the other: what was sent and read
 * in between would be less than nothing. */
static uint64_t between(const struct stat_conn *from, const struct stat_conn *to)
{
	enum path_kind p = from->tx_path;
	uint64_t n = from->tx_base + from->tx_bytes[p] - to->rx_base - to->rx_bytes[p];

	return n < MOST ? n : (int64_t)n < 0 ? 0 : UINT64_MAX;
}

static void look(const struct stat_proc *p, const struct pairs *ps, struct stat_conn *c)
{
	struct conn_ref far = { 0 };

	for (size_t i = 0; c->link && i < p->nqps; i++)
		if (p->qps[i].number == c->link)
			c->rtt = p->qps[i].rtt ? p->qps[i].rtt : UINT64_MAX;
	if (!pairs_find(ps, c, &far))
		return;
	if (c->tx_path != PATH_TCP && far.c->rx_path == c->tx_path)
		c->unread = between(c, far.c);
	if (c->rx_path != PATH_TCP && far.c->tx_path == c->rx_path)
		c->to_read = between(far.c, c);
}

void conns_now(struct stat_list *l, const struct pairs *ps)
{
	kernel_now(l);
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->proc[i].nconns; k++)
			look(&l->proc[i], ps, &l->proc[i].conns[k]);
}

double ring_fill(const struct stat_conn *c)
{
	if (c->tx_path == PATH_TCP || !c->ring || c->unread == UINT64_MAX)
		return -1;
	return c->unread >= c->ring ? 1 : (double)c->unread / c->ring;
}

const char *bytes_known(uint64_t v, char *buf, size_t len)
{
	return v == UINT64_MAX ? "-" : human(v, buf, len);
}

const char *time_known(uint64_t ns, char *buf, size_t len)
{
	if (ns == UINT64_MAX)
		return "-";
	if (ns < 1000000)
		snprintf(buf, len, "%.1fus", (double)ns / 1e3);
	else
		snprintf(buf, len, "%.1fms", (double)ns / 1e6);
	return buf;
}
