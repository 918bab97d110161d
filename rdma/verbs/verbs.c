/*
 * verbs.c - see verbs.h. No locks: loading is the background thread's, the table is constant
 * after it.
 *
 * The handles are never closed: providers have threads, exit handlers and mappings of their own.
 */
#include "rdma/verbs/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

struct verbs verbs;

static int state;	/* 0 not tried, 1 loaded, -errno */
static bool apart;

static int inline_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, n, wc);
}
static int inline_req_notify_cq(struct ibv_cq *cq, int solicited)
{
	return ibv_req_notify_cq(cq, solicited);
}

static int inline_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return ibv_post_send(qp, wr, bad);
}

static int inline_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ibv_post_recv(qp, wr, bad);
}

static const struct { const char *name; size_t at; bool cm; } rows[] = {
#define VERB(lib, ret, name, params) { #name, offsetof(struct verbs, name), \
	sizeof(#lib) == sizeof("rdmacm") },
	VERBS_TABLE(VERB)
#undef VERB
};

/* A driver has its queues in plain memory. Where the kernel does not copy a device's pages for the
 * child, whoever writes first after a fork gets other pages than the device has; libibverbs keeps
 * them out of children if it is told to before the program registers memory. What it answers is
 * ibv_fork_status, which headers before rdma-core 35 lack. */
enum fork_status { FORK_DISABLED, FORK_ENABLED, FORK_UNNEEDED };

static bool fork_safe(int (*init)(void), enum fork_status (*is)(void))
{
	enum fork_status s = is ? is() : FORK_DISABLED;

	apart = s != FORK_UNNEEDED;
	return s != FORK_DISABLED || (init && !init());
}

static int load(void)
{
	void *ib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL), *cm;

	if (!ib)
		return -ENOENT;
	cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!cm)
		return -ENOENT;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		void *f = dlsym(rows[i].cm ? cm : ib, rows[i].name);

		if (!f)
			return -ENOENT;
		*(void **)((char *)&verbs + rows[i].at) = f;
	}
	*(void **)&verbs.ibv_reg_dmabuf_mr = dlsym(ib, "ibv_reg_dmabuf_mr");
	if (!fork_safe(dlsym(ib, "ibv_fork_init"), dlsym(ib, "ibv_is_fork_initialized")))
		return -ENOTSUP;
	verbs.poll_cq = inline_poll_cq;
	verbs.req_notify_cq = inline_req_notify_cq;
	verbs.post_send = inline_post_send;
	verbs.post_recv = inline_post_recv;
	return 1;
}

int verbs_load(void)
{
	if (!state)
		state = load();
	return state < 0 ? state : 0;
}

bool verbs_loaded(void) { return state > 0; }
bool verbs_forks_apart(void) { return apart; }
