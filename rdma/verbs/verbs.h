/*
 * verbs.h - libibverbs and librdmacm as a table of function pointers.
 *
 * Neither library is linked: a program that never leaves its host does not load them. verbs_load()
 * opens both at first need. Unit tests put functions of their own into `verbs` instead.
 * The fast calls (poll, post, notify) are inline in <infiniband/verbs.h> and go through the
 * device's own table; they have rows here so that a test can stand in for a device.
 *
 * Thread-safety: verbs_load() is called by one thread (the library's background thread); the table
 * is read-only afterwards. Functions return what the library's manual pages say.
 */
#ifndef RDMASHIM_VERBS_H
#define RDMASHIM_VERBS_H

#include <stdbool.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#undef ibv_reg_mr	/* macros that pick a variant; the plain symbols serve us */
#undef ibv_query_port

/* VERB(library, return type, name, (parameters)) */
#define VERBS_TABLE(VERB) \
	VERB(ibverbs, struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *)) \
	VERB(ibverbs, int, ibv_dealloc_pd, (struct ibv_pd *)) \
	VERB(ibverbs, struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int)) \
	VERB(ibverbs, int, ibv_dereg_mr, (struct ibv_mr *)) \
	VERB(ibverbs, struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *)) \
	VERB(ibverbs, int, ibv_destroy_comp_channel, (struct ibv_comp_channel *)) \
	VERB(ibverbs, struct ibv_cq *, ibv_create_cq, (struct ibv_context *, int, void *, \
		struct ibv_comp_channel *, int)) \
	VERB(ibverbs, int, ibv_destroy_cq, (struct ibv_cq *)) \
	VERB(ibverbs, int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, \
		void **)) \
	VERB(ibverbs, void, ibv_ack_cq_events, (struct ibv_cq *, unsigned)) \
	VERB(ibverbs, int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
	VERB(ibverbs, int, ibv_query_device, (struct ibv_context *, struct ibv_device_attr *)) \
	VERB(ibverbs, int, ibv_query_port, (struct ibv_context *, uint8_t, \
		struct ibv_port_attr *)) \
	VERB(ibverbs, int, ibv_query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int, \
		struct ibv_qp_init_attr *)) \
	VERB(ibverbs, const char *, ibv_get_device_name, (struct ibv_device *)) \
	VERB(rdmacm, struct rdma_event_channel *, rdma_create_event_channel, (void)) \
	VERB(rdmacm, void, rdma_destroy_event_channel, (struct rdma_event_channel *)) \
	VERB(rdmacm, int, rdma_create_id, (struct rdma_event_channel *, struct rdma_cm_id **, \
		void *, enum rdma_port_space)) \
	VERB(rdmacm, int, rdma_destroy_id, (struct rdma_cm_id *)) \
	VERB(rdmacm, int, rdma_bind_addr, (struct rdma_cm_id *, struct sockaddr *)) \
	VERB(rdmacm, int, rdma_set_option, (struct rdma_cm_id *, int, int, void *, size_t)) \
	VERB(rdmacm, int, rdma_listen, (struct rdma_cm_id *, int)) \
	VERB(rdmacm, uint16_t, rdma_get_src_port, (struct rdma_cm_id *)) \
	VERB(rdmacm, int, rdma_resolve_addr, (struct rdma_cm_id *, struct sockaddr *, \
		struct sockaddr *, int)) \
	VERB(rdmacm, int, rdma_resolve_route, (struct rdma_cm_id *, int)) \
	VERB(rdmacm, int, rdma_create_qp, (struct rdma_cm_id *, struct ibv_pd *, \
		struct ibv_qp_init_attr *)) \
	VERB(rdmacm, void, rdma_destroy_qp, (struct rdma_cm_id *)) \
	VERB(rdmacm, int, rdma_connect, (struct rdma_cm_id *, struct rdma_conn_param *)) \
	VERB(rdmacm, int, rdma_accept, (struct rdma_cm_id *, struct rdma_conn_param *)) \
	VERB(rdmacm, int, rdma_reject, (struct rdma_cm_id *, const void *, uint8_t)) \
	VERB(rdmacm, int, rdma_disconnect, (struct rdma_cm_id *)) \
	VERB(rdmacm, int, rdma_get_cm_event, \
		(struct rdma_event_channel *, struct rdma_cm_event **)) \
	VERB(rdmacm, int, rdma_ack_cm_event, (struct rdma_cm_event *)) \
	VERB(rdmacm, const char *, rdma_event_str, (enum rdma_cm_event_type))

struct verbs {
#define VERB(lib, ret, name, params) ret (*name) params;
	VERBS_TABLE(VERB)
#undef VERB
	/* NULL before rdma-core 34 */
	struct ibv_mr *(*ibv_reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int);
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
};
extern struct verbs verbs;

/* Opens the libraries once. 0, or -ENOENT: one of them, or a symbol, is not there; -ENOTSUP:
 * after a fork the parent's queues might not be the device's any more. */
int verbs_load(void);
bool verbs_loaded(void);
bool verbs_forks_apart(void);	/* registered memory is not there in a child */

#endif
