/* rest.c - calls of libibverbs that give words for numbers, and those that this device has not got:
 * datagrams, multicast, imports. */
#include "lib.h"

#include <stdio.h>
#include <string.h>

#define WORD(words, i) \
	((size_t)(i) < sizeof words / sizeof *words && words[i] ? words[i] : "unknown")

NIC_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status s)
{
	static const char *const words[] = {
		"success",
		"local length error",
		"local QP operation error",
		"local EE context operation error",
		"local protection error",
		"Work Request Flushed Error",
		"memory management operation error",
		"bad response error",
		"local access error",
		"remote invalid request error",
		"remote access error",
		"remote operation error",
		"transport retry counter exceeded",
		"RNR retry counter exceeded",
		"local RDD violation error",
		"remote invalid RD request",
		"aborted error",
		"invalid EE context number",
		"invalid EE context state",
		"fatal error",
		"response timeout error",
		"general error",
	};

	return WORD(words, s);
}

NIC_EXPORT const char *ibv_node_type_str(enum ibv_node_type t)
{
	return t == IBV_NODE_RNIC ? "iWARP NIC" : "InfiniBand channel adapter";
}

NIC_EXPORT const char *ibv_port_state_str(enum ibv_port_state s)
{
	static const char *const words[] = {
		"no state change (NOP)", "PORT_DOWN",	     "PORT_INIT", "PORT_ARMED",
		"PORT_ACTIVE",		 "PORT_ACTIVE_DEFER"
	};

	return WORD(words, s);
}

NIC_EXPORT const char *ibv_event_type_str(enum ibv_event_type e)
{
	static const char *const words[] = {
		"CQ error",
		"local work queue catastrophic error",
		"invalid request local work queue error",
		"local access violation work queue error",
		"communication established",
		"send queue drained",
		"path migrated",
		"path migration request error",
		"local catastrophic error",
		"port active",
		"port error",
		"LID change",
		"P_Key table change",
		"SM change",
		"SRQ catastrophic error",
		"SRQ limit reached",
		"last WQE reached",
		"client reregistration",
		"GID table change",
		"WQ fatal",
	};

	return WORD(words, e);
}

static int unsupported(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

static void *none(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

#define NO_POINTER(type, name, params) NIC_EXPORT type *name params { return none(); }
#define NO_INT(name, params) NIC_EXPORT int name params { return unsupported(); }

#pragma GCC diagnostic ignored "-Wunused-parameter"
NO_POINTER(struct ibv_ah, ibv_create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *a))
NO_POINTER(struct ibv_ah, ibv_create_ah_from_wc,
	   (struct ibv_pd * pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port))
NO_INT(ibv_init_ah_from_wc, (struct ibv_context * c, uint8_t port, struct ibv_wc *wc,
			     struct ibv_grh *grh, struct ibv_ah_attr *a))
NO_INT(ibv_destroy_ah, (struct ibv_ah *ah))
NO_INT(ibv_attach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid))
NO_INT(ibv_detach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid))
NO_INT(ibv_query_srq, (struct ibv_srq *srq, struct ibv_srq_attr *a))
NO_INT(ibv_resolve_eth_l2_from_gid,
       (struct ibv_context * c, struct ibv_ah_attr *a, uint8_t mac[6], uint16_t *vid))
NO_INT(ibv_set_ece, (struct ibv_qp *qp, struct ibv_ece *ece))
NO_INT(ibv_query_ece, (struct ibv_qp *qp, struct ibv_ece *ece))
NO_POINTER(struct ibv_context, ibv_import_device, (int fd))
NO_POINTER(struct ibv_pd, ibv_import_pd, (struct ibv_context *c, uint32_t h))
NO_POINTER(struct ibv_mr, ibv_import_mr, (struct ibv_pd *pd, uint32_t h))
NIC_EXPORT void ibv_unimport_pd(struct ibv_pd *pd) { }
NIC_EXPORT void ibv_unimport_mr(struct ibv_mr *mr) { }
NIC_EXPORT int ibv_dontfork_range(void *p, size_t n) { return 0; }
NIC_EXPORT int ibv_dofork_range(void *p, size_t n) { return 0; }
NIC_EXPORT const char *ibv_get_sysfs_path(void) { return "/nonexistent/simulated"; }
NIC_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t n)
{
	return -1;
}
NIC_EXPORT int ibv_rate_to_mult(enum ibv_rate r) { return -1; }
NIC_EXPORT enum ibv_rate mult_to_ibv_rate(int mult) { return IBV_RATE_MAX; }
NIC_EXPORT int ibv_rate_to_mbps(enum ibv_rate r) { return -1; }
NIC_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps) { return IBV_RATE_MAX; }
