/*
 * rdmastat_dev.c - `rdmastat dev`: RDMA ports as /sys shows them, and what the library moved by
 * RDMA; `rdmastat mr`: memory that processes under the library have registered. The counter
 * files say how many queue pairs are on a port, but neither what went through it nor what was
 * registered: the ports' own counters and the kernel's sum of pinned pages of a process do.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/words.h"
#include "doctor/rdmastat_doctor.h"
#include "ground/rdmastat_json.h"
#include "ground/rdmastat_table.h"

#define UNKNOWN UINT64_MAX

static const char *human_or_dash(uint64_t v, char *buf, size_t len)
{
	if (v != UNKNOWN)
		return human(v, buf, len);
	snprintf(buf, len, "-");
	return buf;
}

static json_object *num_or_null(uint64_t v)
{
	return v == UNKNOWN ? NULL : json_num(v);
}

/* ---- dev ---- */

struct port {
	char device[64], port[16], state[32], layer[32], rate[64], net[32];
	uint64_t sent, received;	/* bytes, UNKNOWN */
	uint64_t links, streams;	/* of processes under the library, now */
};

static uint64_t counter(const struct doctor *d, const struct port *p, const char *name)
{
	char text[64];
	uint64_t v;
	bool over;
	size_t n;

	if (!fact(d, text, sizeof(text), "/sys/class/infiniband/%s/ports/%s/counters/%s", p->device,
		  p->port, name))
		return UNKNOWN;
	n = parse_digits(text, strlen(text), &v, &over);
	/* the drivers count words of 32 bits */
	return !n || over || v > UNKNOWN / 8 ? UNKNOWN : 4 * v;
}

/* "4: ACTIVE" without its number. */
static void short_state(char *s)
{
	char *colon = strstr(s, ": ");

	if (colon)
		memmove(s, colon + 2, strlen(colon + 2) + 1);
}

static void find_net(const struct doctor *d, struct port *p)
{
	char dir[256], **net;

	if (fact(d, p->net, sizeof(p->net), "/sys/class/infiniband/%s/ports/%s/gid_attrs/ndevs/0",
		 p->device, p->port) &&
	    p->net[0])
		return;
	snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/device/net", p->device);
	net = names_in(d, dir);
	snprintf(p->net, sizeof(p->net), "%s", net && net[0] ? net[0] : "-");
	names_free(net);
}

static bool read_port(const struct doctor *d, const char *device, const char *port, struct port *p)
{
	memset(p, 0, sizeof(*p));
	snprintf(p->device, sizeof(p->device), "%s", device);
	snprintf(p->port, sizeof(p->port), "%s", port);
	if (!fact(d, p->state, sizeof(p->state), "/sys/class/infiniband/%s/ports/%s/state",
		  p->device, p->port))
		return false;
	short_state(p->state);
	fact(d, p->rate, sizeof(p->rate), "/sys/class/infiniband/%s/ports/%s/rate", p->device,
	     p->port);
	fact(d, p->layer, sizeof(p->layer), "/sys/class/infiniband/%s/ports/%s/link_layer",
	     p->device, p->port);
	find_net(d, p);
	p->sent = counter(d, p, "port_xmit_data");
	p->received = counter(d, p, "port_rcv_data");
	return true;
}

static struct port *read_ports(const struct doctor *d, size_t *n)
{
	char **dev = names_in(d, "/sys/class/infiniband"), **port, dir[256];
	struct port *all = NULL, *more, one;
	size_t i, k;

	*n = 0;
	for (i = 0; dev && dev[i]; i++) {
		snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/ports", dev[i]);
		port = names_in(d, dir);
		for (k = 0; port && port[k]; k++) {
			if (!read_port(d, dev[i], port[k], &one) ||
			    !(more = realloc(all, (*n + 1) * sizeof(*all))))
				continue;
			all = more;
			all[(*n)++] = one;
		}
		names_free(port);
	}
	names_free(dev);
	return all;
}

#define ROW const struct port *p = row
TEXT(device, p->device)
TEXT(port, p->port)
TEXT(state, p->state)
TEXT(layer, p->layer)
TEXT(rate, p->rate)
TEXT(net, p->net)
TEXT(sent, human_or_dash(p->sent, buf, len))
TEXT(received, human_or_dash(p->received, buf, len))
NUMBER(rate_number, whole(1000 * strtod(p->rate, NULL)))
NUMBER(sent_number, p->sent + 1)	/* not known: last */
NUMBER(received_number, p->received + 1)
NUMBER(links, p->links)
NUMBER(streams, p->streams)
TINT(state_tint, strcmp(p->state, "ACTIVE") ? TINT_BAD : TINT_GOOD)
#undef ROW

static const struct column dev_cols[] = {
	{ "device", "DEVICE", true, 0, 0, false, "RDMA device", .text = device },
	{ "port", "PORT", false, 2, 0, false, "its port", .text = port },
	{ "state", "STATE", true, 0, 0, false, "ACTIVE is what a path needs",
	  .text = state, .tint = state_tint },
	{ "layer", "LAYER", true, 4, 0, false, "InfiniBand or Ethernet", .text = layer },
	{ "rate", "RATE", true, 3, 0, false, "of the port", .text = rate, .count = rate_number },
	{ "net", "NET", true, 1, 0, false, "network device whose addresses it serves",
	  .text = net },
	{ "sent", "SENT", false, 1, 7, false,
	  "bytes sent through the port by anybody; - if the driver does not count",
	  .text = sent, .count = sent_number },
	{ "received", "RECEIVED", false, 1, 8, false, "bytes received",
	  .text = received, .count = received_number },
	{ "links", "LINKS", false, 3, 0, false,
	  "queue pairs of processes under the library that are up on it, see rdmastat qp",
	  .bytes = links },
	{ "streams", "STREAMS", false, 3, 0, false, "connections that are on these",
	  .bytes = streams },
};
#define DEVS (sizeof(dev_cols) / sizeof(dev_cols[0]))

static int ports_by_name(const void *a, const void *b)
{
	const struct port *x = a, *y = b;
	int d = strcmp(x->device, y->device);

	return d ? d : strcmp(x->port, y->port);
}

/* What runs by RDMA under the library. */
struct rdma_sum {
	uint64_t conns, processes, bytes, links, lost;
};

static void rdma_of(const struct stat_proc *p, struct rdma_sum *s)
{
	uint64_t bytes = sat_add(p->tx_bytes[PATH_RDMA], p->rx_bytes[PATH_RDMA]), conns = 0;

	for (size_t k = 0; k < p->nconns; k++)
		conns += p->conns[k].tx_path == PATH_RDMA || p->conns[k].rx_path == PATH_RDMA;
	s->conns += conns;
	s->processes += conns || bytes;
	s->bytes = sat_add(s->bytes, bytes);
	s->links = sat_add(s->links, p->counter[STAT_net_links]);
	s->lost = sat_add(s->lost, p->counter[STAT_paths_lost]);
}

static void count_links(const struct stat_list *l, struct port *p)
{
	char port[8];

	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; !l->proc[i].dead && k < l->proc[i].nqps; k++) {
			const struct stat_qp *q = &l->proc[i].qps[k];

			snprintf(port, sizeof(port), "%u", q->port);
			if (q->phase != STAT_LINK_UP || strcmp(q->device, p->device) ||
			    strcmp(port, p->port))
				continue;
			p->links++;
			p->streams += q->streams;
		}
}

static void json_devices(const struct request *r, const struct port *p, size_t n,
			 const struct rdma_sum *s)
{
	json_object *root = json_root(), *a = json_object_new_array(), *o;

	for (size_t i = 0; i < n; i++) {
		o = json_object_new_object();
		json_add(o, "device", json_str(p[i].device));
		json_add(o, "port", json_str(p[i].port));
		json_add(o, "state", json_str(p[i].state));
		json_add(o, "link_layer", json_str(p[i].layer));
		json_add(o, "rate", json_str(p[i].rate));
		json_add(o, "net", strcmp(p[i].net, "-") ? json_str(p[i].net) : NULL);
		json_add(o, "sent_bytes", num_or_null(p[i].sent));
		json_add(o, "received_bytes", num_or_null(p[i].received));
		json_add(o, "links", json_num(p[i].links));
		json_add(o, "streams", json_num(p[i].streams));
		json_object_array_add(a, o);
	}
	json_add(root, "devices", a);
	o = json_object_new_object();
	json_add(o, "processes", json_num(s->processes));
	json_add(o, "connections", json_num(s->conns));
	json_add(o, "bytes", json_num(s->bytes));
	json_add(o, "links", json_num(s->links));
	json_add(o, "paths_lost", json_num(s->lost));
	json_add(root, "rdma", o);
	json_print(r, root);
}

int show_devices(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = dev_cols, .tie = ports_by_name };
	struct doctor d = { .root = r->root ? r->root : "" };
	uint8_t chosen[TABLE_COLUMNS];
	struct rdma_sum sum = { 0 };
	char text[256], h[16];
	struct table *t;
	struct port *p;
	size_t n, ncols;
	int rc;

	ncols = columns_choose(r, dev_cols, DEVS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, dev_cols, DEVS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	p = read_ports(&d, &n);
	for (size_t i = 0; i < n; i++)
		count_links(l, &p[i]);
	rows_sort(p, n, sizeof(*p), &order);
	for (size_t i = 0; i < l->n; i++)
		rdma_of(&l->proc[i], &sum);
	if (r->json) {
		json_devices(r, p, n, &sum);
		free(p);
		return EXIT_OK;
	}
	if (n) {
		t = table_new(dev_cols, chosen, ncols);
		for (size_t i = 0; i < n; i++)
			table_row(t, &p[i]);
		table_print(r, t, stdout);
		table_free(t);
		putchar('\n');
	} else {
		print_wrapped(stdout, "", 0,
			      "No RDMA device here: connections to other hosts stay on TCP. "
			      "rdmastat doctor says what is missing.",
			      r->width);
	}
	snprintf(text, sizeof(text),
		 "By RDMA under the library: %s bytes in %llu process%s, %llu connection%s now, "
		 "%llu link%s made, %llu path%s lost.",
		 human(sum.bytes, h, sizeof(h)), (unsigned long long)sum.processes,
		 sum.processes == 1 ? "" : "es", (unsigned long long)sum.conns, plural(sum.conns),
		 (unsigned long long)sum.links, plural(sum.links), (unsigned long long)sum.lost,
		 plural(sum.lost));
	print_wrapped(stdout, "", 0, text, r->width);
	free(p);
	return EXIT_OK;
}

/* ---- mr ---- */

struct memory {
	const struct stat_proc *p;
	uint64_t pinned, locked, limit;	/* bytes; UNKNOWN; a limit of that: none */
	struct rdma_sum rdma;
};

/* The number behind `key` in a line of /proc/PID/FILE, times `unit`; UNKNOWN if there is none. */
static uint64_t proc_number(const struct doctor *d, uint32_t pid, const char *file, const char *key,
			    uint64_t unit)
{
	char path[PATH_MAX], line[256], word[64];
	uint64_t v = UNKNOWN, n;
	bool over;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/%u/%s", d->root, pid, file);
	f = fopen(path, "re");
	while (f && v == UNKNOWN && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)) &&
		    sscanf(line + strlen(key), " %63s", word) == 1 &&
		    parse_digits(word, strlen(word), &n, &over) && !over && n < UNKNOWN / unit)
			v = n * unit;
	if (f)
		fclose(f);
	return v;
}

static void read_memory(const struct doctor *d, const struct stat_proc *p, struct memory *m)
{
	*m = (struct memory){ .p = p, .pinned = UNKNOWN, .locked = UNKNOWN, .limit = UNKNOWN };
	if (!d->root[0] && !stat_proc_here(p))
		return;
	m->pinned = proc_number(d, p->pid, "status", "VmPin:", 1024);
	m->locked = proc_number(d, p->pid, "status", "VmLck:", 1024);
	m->limit = proc_number(d, p->pid, "limits", "Max locked memory", 1);
	rdma_of(p, &m->rdma);
}

#define ROW const struct memory *m = row
NUMBER(pid, m->p->pid)
NUMBER(pinned_number, m->pinned + 1)	/* not known: last */
NUMBER(locked_number, m->locked + 1)
NUMBER(limit_number, m->limit)
NUMBER(conns, m->rdma.conns)
NUMBER(rdma, m->rdma.bytes)
NUMBER(made, m->rdma.links)
TEXT(program, m->p->program)
TEXT(pinned, human_or_dash(m->pinned, buf, len))
TEXT(locked, human_or_dash(m->locked, buf, len))
TEXT(limit, m->limit == UNKNOWN ? "unlimited" : human(m->limit, buf, len))

static const struct column mr_cols[] = {
	{ "pid", "PID", false, 0, 8, false, "process", .count = pid },
	{ "program", "PROGRAM", true, 2, 16, false, "its name", .text = program },
	{ "pinned", "PINNED", false, 0, 7, false,
	  "bytes registered with RDMA devices, by anybody in the process",
	  .text = pinned, .count = pinned_number },
	{ "locked", "LOCKED", false, 3, 7, false, "bytes locked otherwise (mlock)",
	  .text = locked, .count = locked_number },
	{ "limit", "LIMIT", false, 1, 9, false, "how much one may register; unlimited is best",
	  .text = limit, .count = limit_number },
	{ "conns", "CONNS", false, 3, 6, false, "connections by RDMA now", .count = conns },
	{ "rdma", "RDMA", false, 3, 7, false, "bytes by RDMA", .bytes = rdma },
	{ "links", "LINKS", false, 4, 6, false, "links with processes of other hosts, made so far",
	  .count = made },
};
#define MRS (sizeof(mr_cols) / sizeof(mr_cols[0]))

static int memory_by_pid(const void *a, const void *b)
{
	const struct memory *x = a, *y = b;

	return (x->p->pid > y->p->pid) - (x->p->pid < y->p->pid);
}

static void json_memory(const struct request *r, const struct memory *m, size_t n)
{
	struct json_rows w = { stdout, r->watch, false, false };

	json_rows_begin(&w, "memory");
	for (size_t i = 0; i < n; i++) {
		json_object *o = json_object_new_object();

		json_add(o, "pid", json_num(m[i].p->pid));
		json_add(o, "program", json_str(m[i].p->program));
		json_add(o, "pinned_bytes", num_or_null(m[i].pinned));
		json_add(o, "locked_bytes", num_or_null(m[i].locked));
		json_add(o, "limit_bytes", num_or_null(m[i].limit));
		json_add(o, "connections", json_num(m[i].rdma.conns));
		json_add(o, "rdma_bytes", json_num(m[i].rdma.bytes));
		json_add(o, "links", json_num(m[i].rdma.links));
		json_rows_add(&w, o);
	}
	json_rows_end(&w);
	json_rows_done(&w);
}

int show_memory(const struct request *r, const struct stat_list *l)
{
	struct row_order order = { .cols = mr_cols, .tie = memory_by_pid };
	struct doctor d = { .root = r->root ? r->root : "" };
	uint8_t chosen[TABLE_COLUMNS];
	struct memory *m;
	struct table *t;
	size_t n = 0, ncols;
	int rc;

	ncols = columns_choose(r, mr_cols, MRS, chosen, &rc);
	if (!ncols)
		return rc;
	order.col = columns_sort(r, mr_cols, MRS, &order.reverse);
	if (order.col == -2)
		return EXIT_USAGE;
	m = malloc((l->n + 1) * sizeof(*m));
	if (!m) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < l->n; i++)
		if (!l->proc[i].dead)
			read_memory(&d, &l->proc[i], &m[n++]);
	rows_sort(m, n, sizeof(*m), &order);
	if (r->json) {
		json_memory(r, m, n);
	} else if (!n) {
		print_wrapped(stdout, "", 0, "No process under the library.", r->width);
	} else {
		t = table_new(mr_cols, chosen, ncols);
		for (size_t i = 0; i < n; i++)
			table_row(t, &m[i]);
		table_print(r, t, stdout);
		table_free(t);
	}
	free(m);
	return EXIT_OK;
}
