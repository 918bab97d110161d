/*
 * nicd.c - the process that is the simulated RDMA devices of a directory:
 *
 *   nicd [-r] [-t ENGINES] DIR [KNOB=VALUE | profile=NAME]...    until it is killed, or DIR is
 * gone; -r: realtime nicd DIR ctl COMMAND...                                 tells a running one,
 * see README.md
 *
 * Programs find it by DIR/ctl. It says "ready" on its output when they may.
 */
#include "nicd.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

struct nic_page *page;
struct node *nodes[NODES];
unsigned nodes_n;
struct client *clients;
static int page_fd, epoll_fd;

/* ---- engines ---- */

#define RX_BATCH 64
#define TX_BATCH 8

struct engine {
	pthread_t thread;
	unsigned index;
	_Alignas(64) _Atomic uint32_t in;	/* in a round */
	uint64_t idle_since;
};
static struct engine engines[NIC_ENGINES];
static unsigned engines_n = 1;
static _Atomic uint32_t stopped;

static void futex(_Atomic uint32_t *at, int op, uint32_t val, const struct timespec *t)
{
	syscall(SYS_futex, at, op, val, t, NULL, 0);
}

void engine_wake(struct engine *e)
{
	_Atomic uint32_t *a = &page->engine[e->index].asleep;

	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(a, memory_order_relaxed) && atomic_exchange(a, 0))
		futex(a, FUTEX_WAKE, 1, NULL);
}

void world_stop(void)
{
	atomic_store(&stopped, 1);
	for (unsigned i = 0; i < engines_n; i++)
		while (atomic_load(&engines[i].in))
			sched_yield();
}

void world_go(void)
{
	atomic_store(&stopped, 0);
	futex(&stopped, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
	for (unsigned i = 0; i < engines_n; i++)
		engine_wake(&engines[i]);
}

static bool doorbells(struct node *n)
{
	bool any = false;

	for (struct client *c = n->clients; c; c = c->next_of_node) {
		uint64_t words, bits;

		if (!atomic_load_explicit(&c->db->summary, memory_order_relaxed))
			continue;
		for (words = atomic_exchange(&c->db->summary, 0); words; words &= words - 1) {
			unsigned w = (unsigned)__builtin_ctzll(words);

			for (bits = atomic_exchange(&c->db->bits[w], 0); bits; bits &= bits - 1) {
				struct qp *q = c->qp[w * 64 + (unsigned)__builtin_ctzll(bits)];

				any = true;
				if (q && q->state == IBV_QPS_ERR)
					qp_flush(q);
				else if (q)
					qp_ready(q);
			}
		}
	}
	return any;
}

static bool receive(struct node *n, uint64_t now)
{
	struct pkt *p;
	unsigned i;

	for (i = 0; i < RX_BATCH && (p = net_receive(n, now)); i++) {
		struct qp *q = qp_find(p->dst_qpn);

		if (q && q->node == n && q->attr.dest_qp_num == p->src_qpn &&
		    q->state >= IBV_QPS_RTR) {
			if (p->type <= P_ATOMIC_REQ)
				resp_packet(q, p, now);
			else
				req_answered(q, p, now);
		}
		pkt_free(p);
	}
	return i;
}

static bool answers(struct node *n, uint64_t now)
{
	bool any = n->responding;

	for (struct qp **at = &n->responding; *at;) {
		struct qp *q = *at;

		for (int i = 0; i < TX_BATCH && resp_send(q, now); i++)
			;
		if (q->answers) {
			at = &q->next_responding;
		} else {
			q->is_responding = false;
			*at = q->next_responding;
		}
	}
	return any;
}

static bool transmit(struct node *n, uint64_t now)
{
	struct qp *list = n->ready;
	bool any = list;

	n->ready = NULL;
	n->ready_end = &n->ready;
	for (struct qp *q; (q = list);) {
		bool more = true;

		list = q->next_ready;
		q->is_ready = false;
		for (int i = 0; i < TX_BATCH && more; i++)
			more = req_send(q, now);
		if (more)
			qp_ready(q);
	}
	return any;
}

static void timers(struct node *n, uint64_t now)
{
	n->timers_at = NEVER;
	for (struct qp **at = &n->timed; *at;) {
		struct qp *q = *at;

		if (q->timer <= now)
			req_timer(q, now);
		if (q->timer == NEVER) {
			q->is_timed = false;
			*at = q->next_timed;
			continue;
		}
		if (q->timer < n->timers_at)
			n->timers_at = q->timer;
		at = &q->next_timed;
	}
}

static bool node_round(struct node *n, uint64_t now)
{
	bool any;

	if (n->stalled_until > now)
		return false;
	any = doorbells(n);
	any |= receive(n, now);
	any |= answers(n, now);
	any |= transmit(n, now);
	if (n->timers_at <= now)
		timers(n, now);
	if (n->events)
		cq_events(n, now);
	return any;
}

static bool round_of(struct engine *e, uint64_t *next)
{
	uint64_t at, now;
	bool any = false;

	*next = NEVER;
	for (unsigned i = 0; i < nodes_n; i++) {
		struct node *n = nodes[i];

		if (n->engine != e)
			continue;
		now = now_ns();
		any |= node_round(n, now);
		if (n->stalled_until > now) {
			*next = n->stalled_until < *next ? n->stalled_until : *next;
			continue;
		}
		at = net_next(n);
		*next = at < *next ? at : *next;
		*next = n->timers_at < *next ? n->timers_at : *next;
		at = cq_events_next(n);
		*next = at < *next ? at : *next;
	}
	return any;
}

/* One round that must find nothing is made after it said that it sleeps. */
static void nap(struct engine *e, uint64_t next)
{
	_Atomic uint32_t *asleep = &page->engine[e->index].asleep;
	uint64_t now = now_ns(), ns = next == NEVER ? 1000000000u : next - now;
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	atomic_store(&e->in, 0);
	futex(asleep, FUTEX_WAIT, 1, &t);
	atomic_store(asleep, 0);
	e->idle_since = now_ns();
}

static void *engine_run(void *arg)
{
	struct engine *e = arg;
	uint64_t next, now;
	bool said = false;

	prctl(PR_SET_TIMERSLACK, 1);

	for (;;) {
		atomic_store(&e->in, 1);
		if (atomic_load(&stopped)) {
			atomic_store(&e->in, 0);
			futex(&stopped, FUTEX_WAIT_PRIVATE, 1, &(struct timespec){ 0, 1000000 });
			continue;
		}
		if (round_of(e, &next)) {
			said = false;
			atomic_store_explicit(&page->engine[e->index].asleep, 0,
					      memory_order_relaxed);
			e->idle_since = now_ns();
		} else if (said) {
			nap(e, next);
			said = false;
			continue;
		} else {
			now = now_ns();
			if (now - e->idle_since > (uint64_t)K.spin_us * 1000 &&
			    (next == NEVER || next > now + (uint64_t)K.spin_us * 1000 + 5000)) {
				atomic_store(&page->engine[e->index].asleep, 1);
				said = true;
			} else {
				atomic_store(&e->in, 0);
				sched_yield();
			}
		}
		atomic_store(&e->in, 0);
	}
	return NULL;
}

/* ---- knobs ---- */

static const struct { const char *name; size_t at; } knobs[] = {
#define KNOB(name, value, unit, doc) { #name, offsetof(struct nic_knobs, name) },
#include "knobs.def"
#undef KNOB
};

static const struct { const char *name, *words; } profiles[] = {
#define PROFILE(name, words) { #name, words },
#include "profiles.def"
#undef PROFILE
};

static int knob_one(char *word)
{
	char *value = strchr(word, '='), *end;
	long long v;

	if (!value)
		return EINVAL;
	*value++ = 0;
	for (unsigned i = 0; !strcmp(word, "profile") && i < sizeof profiles / sizeof *profiles;
	     i++)
		if (!strcmp(value, profiles[i].name))
			return knob_set(profiles[i].words, NULL, 0);
	v = strtoll(value, &end, 0);
	if (*end || end == value || v < 0)
		return EINVAL;
	if (!strcmp(word, "segment"))	/* what is under way counts in these */
		for (unsigned i = 0; i < nodes_n; i++)
			if (nodes[i]->nqp || v < 512 || v > 1 << 20)
				return EBUSY;
	for (unsigned i = 0; i < sizeof knobs / sizeof *knobs; i++)
		if (!strcmp(word, knobs[i].name)) {
			*(int64_t *)((char *)&K + knobs[i].at) = v;
			return 0;
		}
	return ENOENT;
}

int knob_set(const char *words, char *err, size_t n)
{
	char *copy = strdup(words), *save, *w;
	int r = 0;

	for (w = copy ? strtok_r(copy, " ", &save) : NULL; w && !r;
	     w = strtok_r(NULL, " ", &save)) {
		r = knob_one(w);
		if (r && err)
			snprintf(err, n, "%s: %s", w, strerror(r));
	}
	free(copy);
	return r;
}

/* ---- nodes, clients ---- */

struct node *node_named(const char *name)
{
	struct node *n;
	unsigned i;

	for (i = 0; i < nodes_n; i++)
		if (!strcmp(nodes[i]->name, name))
			return nodes[i];
	n = i < NODES ? calloc(1, sizeof *n) : NULL;
	if (!n)
		return NULL;
	snprintf(n->name, sizeof n->name, "%s", name);
	n->index = i;
	n->engine = &engines[i % engines_n];
	n->timers_at = NEVER;
	n->ready_end = &n->ready;
	n->in_end = &n->in;
	nodes[nodes_n++] = n;
	return n;
}

static void client_end(struct client *c)
{
	world_stop();
	for (struct client **at = &clients; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	for (struct client **at = c->node ? &c->node->clients : NULL; at && *at;
	     at = &(*at)->next_of_node)
		if (*at == c) {
			*at = c->next_of_node;
			break;
		}
	client_gone(c);
	world_go();
	close(c->fd);
	if (c->pidfd >= 0)
		close(c->pidfd);
	free(c);
}

static void watch(int fd, void *p)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){ EPOLLIN, { .ptr = p } });
}

static void client_new(int listening)
{
	struct client *c;
	struct ucred u = { 0 };
	int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	c = calloc(1, sizeof *c);
	if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &(socklen_t){ sizeof u })) {
		free(c);
		close(fd);
		return;
	}
	c->fd = fd;
	c->pid = u.pid;
	c->pidfd = (int)syscall(SYS_pidfd_open, u.pid, 0);	/* children may hold the socket */
	c->next = clients;
	clients = c;
	watch(fd, c);
	if (c->pidfd >= 0)
		watch(c->pidfd, (void *)((uintptr_t)c | 1));
}

static int op_hello(struct call *call)
{
	struct client *c = call->c;
	char name[32];
	int fd;

	snprintf(name, sizeof name, "%.31s", (const char *)call->req->data);
	c->node = c->node ? NULL : node_named(name);
	fd = memfd_create("nic-db", MFD_CLOEXEC);
	if (!c->node || fd < 0 || ftruncate(fd, sizeof *c->db))
		return EINVAL;
	c->db = mmap(NULL, sizeof *c->db, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (c->db == MAP_FAILED)
		return ENOMEM;
	c->next_of_node = c->node->clients;
	c->node->clients = c;
	call->out[call->nout++] = fcntl(page_fd, F_DUPFD_CLOEXEC, 0);
	call->out[call->nout++] = fd;
	call->rep->h = c->node->engine->index;
	return 0;
}

#include "nicd_commands.h"

/* ---- control sockets ---- */

static void reply(struct call *call)
{
	char control[CMSG_SPACE(NIC_FDS * sizeof(int))] = { 0 };
	struct iovec v = { call->rep, sizeof *call->rep };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct cmsghdr *h;

	if (call->nout) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE((size_t)call->nout * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN((size_t)call->nout * sizeof(int));
		memcpy(CMSG_DATA(h), call->out, (size_t)call->nout * sizeof(int));
	}
	sendmsg(call->c->fd, &m, MSG_NOSIGNAL);
}

static void take_fds(struct call *call, struct msghdr *m)
{
	struct cmsghdr *h = CMSG_FIRSTHDR(m);

	if (!h || h->cmsg_type != SCM_RIGHTS)
		return;
	call->nfds = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(call->fds, CMSG_DATA(h), (size_t)call->nfds * sizeof(int));
}

static void perform(struct call *call)
{
	char text[NIC_DATA];

	world_stop();
	switch (call->req->op) {
	case OP_HELLO: call->rep->err = op_hello(call); break;
	case OP_CTL:
		snprintf(text, sizeof text, "%.511s", (const char *)call->req->data);
		call->rep->err = command(text, (char *)call->rep->data, NIC_DATA);
		break;
	default: call->rep->err = obj_call(call);
	}
	world_go();
}

static void client_ready(struct client *c)
{
	char control[CMSG_SPACE(NIC_FDS * sizeof(int))];
	struct nic_req req;
	struct nic_rep rep = { 0 };
	struct iovec v = { &req, sizeof req };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof control };
	struct call call = { .c = c, .req = &req, .rep = &rep };

	if (recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC) != sizeof req) {
		client_end(c);
		return;
	}
	take_fds(&call, &m);
	perform(&call);
	reply(&call);
	for (int i = 0; i < call.nfds; i++)
		close(call.fds[i]);
	for (int i = 0; i < call.nout; i++)
		close(call.out[i]);
}

static void serve(int listening, const char *dir)
{
	struct epoll_event e[64];
	struct timespec t;
	struct stat st;

	while (!stat(dir, &st)) {
		uint64_t now = now_ns(), next, at;
		int n;

		world_stop();
		next = cm_timers(now);
		at = script_run(now);
		world_go();
		next = at < next ? at : next;
		next = next == NEVER || next > now + 1000000000u ? 1000000000u
		       : next > now				 ? next - now
								 : 0;
		t = (struct timespec){ (time_t)(next / 1000000000u), (long)(next % 1000000000u) };
		n = epoll_pwait2(epoll_fd, e, 1, &t, NULL); /* one: it may end another that is in
							       the list */
		for (int i = 0; i < n; i++) {
			if (!e[i].data.ptr)
				client_new(listening);
			else if ((uintptr_t)e[i].data.ptr & 1)
				client_end((struct client *)((uintptr_t)e[i].data.ptr &
							     ~(uintptr_t)1));
			else
				client_ready(e[i].data.ptr);
		}
	}
}

/* ---- start ---- */

static int address(struct sockaddr_un *u, const char *dir)
{
	*u = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return snprintf(u->sun_path, sizeof u->sun_path, "%s/ctl", dir) < (int)sizeof u->sun_path
		       ? 0
		       : -1;
}

static int control(const char *dir, char **words, int n)
{
	struct nic_req req = { .op = OP_CTL };
	struct nic_rep rep = { .err = EPIPE };
	struct sockaddr_un u;
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	size_t len = 0;

	for (int i = 0; i < n && len < NIC_DATA; i++)
		len += (size_t)snprintf((char *)req.data + len, NIC_DATA - len, "%s%s",
					i ? " " : "", words[i]);
	if (address(&u, dir) || connect(s, (void *)&u, sizeof u) ||
	    write(s, &req, sizeof req) < 0 || read(s, &rep, sizeof rep) < 0) {
		perror(dir);
		return 1;
	}
	if (rep.data[0])
		puts((char *)rep.data);
	if (rep.err)
		fprintf(stderr, "nicd: %s\n", strerror(rep.err));
	return rep.err != 0;
}

static uint64_t calibrate(void)
{
#ifdef __x86_64__
	struct timespec a, b;
	uint64_t x, y, ns;

	clock_gettime(CLOCK_MONOTONIC, &a);
	x = __builtin_ia32_rdtsc();
	usleep(20000);
	clock_gettime(CLOCK_MONOTONIC, &b);
	y = __builtin_ia32_rdtsc();
	ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec -
	     (uint64_t)a.tv_nsec;
	return y > x ? (uint64_t)(((unsigned __int128)ns << 32) / (y - x)) : 0;
#else
	return 0;
#endif
}

static void make_page(void)
{
	static const struct nic_knobs defaults = {
#define KNOB(name, value, unit, doc) .name = value,
#include "knobs.def"
#undef KNOB
	};

	page_fd = memfd_create("nic-page", MFD_CLOEXEC);
	if (page_fd < 0 || ftruncate(page_fd, sizeof *page))
		exit(1);
	page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (page == MAP_FAILED)
		exit(1);
	page->knobs = defaults;
	page->tsc_mult = calibrate();
}

/* Realtime: on a machine that does other things the cards go first. Who may not has them as they
 * are. */
static void start_engines(bool realtime)
{
	struct sched_param p = { .sched_priority = 1 };

	for (unsigned i = 0; i < engines_n; i++) {
		engines[i].index = i;
		if (pthread_create(&engines[i].thread, NULL, engine_run, &engines[i]))
			exit(1);
		if (realtime)
			pthread_setschedparam(engines[i].thread, SCHED_RR, &p);
	}
}

int main(int argc, char **argv)
{
	char err[256] = "", *dir;
	struct sockaddr_un u;
	bool realtime = false;
	int s, i;

	signal(SIGPIPE, SIG_IGN);
	for (int o; (o = getopt(argc, argv, "+rt:")) != -1;) {
		realtime |= o == 'r';
		engines_n = o == 't' ? (unsigned)atoi(optarg) : o == 'r' ? engines_n : 0;
	}
	i = optind;
	if (i >= argc || !engines_n || engines_n > NIC_ENGINES) {
		fprintf(stderr, "usage: nicd [-r] [-t ENGINES] DIR [KNOB=VALUE]... | nicd DIR ctl "
				"COMMAND...\n");
		return 2;
	}
	dir = argv[i++];
	if (i < argc && !strcmp(argv[i], "ctl"))
		return control(dir, argv + i + 1, argc - i - 1);
	make_page();
	for (; i < argc; i++)
		if (knob_set(argv[i], err, sizeof err)) {
			fprintf(stderr, "nicd: %s\n", err);
			return 2;
		}
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (address(&u, dir) || (mkdir(dir, 0755) && errno != EEXIST) ||
	    (unlink(u.sun_path) && errno != ENOENT) || bind(s, (void *)&u, sizeof u) ||
	    listen(s, 1024)) {
		perror(dir);
		return 1;
	}
	chmod(u.sun_path, 0777);
	watch(s, NULL);
	start_engines(realtime);
	puts("ready");
	fflush(stdout);
	serve(s, dir);
	return 0;
}
