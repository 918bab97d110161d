/*
 * provider.c - libmlx5.so.1, libefa.so.1 and libhns.so.1 for programs that are linked with them
 * (perftest), by the symbols that those name; each library's map takes its own. Nothing of it is
 * there: each call says so.
 */
#include <errno.h>
#include <stddef.h>

#define NONE(name)                                              \
	__attribute__((visibility("default"))) void *name(void) \
	{                                                       \
		errno = EOPNOTSUPP;                             \
		return NULL;                                    \
	}
#define NO_NUMBER(name)                                       \
	__attribute__((visibility("default"))) int name(void) \
	{                                                     \
		return EOPNOTSUPP;                            \
	}
NONE(mlx5dv_create_mkey)
NONE(mlx5dv_create_qp)
NONE(mlx5dv_crypto_login)
NONE(mlx5dv_dek_create)
NONE(mlx5dv_dek_destroy)
NONE(mlx5dv_destroy_mkey)
NONE(mlx5dv_devx_general_cmd)
NONE(mlx5dv_open_device)
NONE(mlx5dv_qp_ex_from_ibv_qp_ex)
NONE(mlx5dv_reg_dmabuf_mr)
NO_NUMBER(mlx5dv_query_device)
NONE(efadv_create_qp_ex)
NONE(efadv_query_device)
NONE(hnsdv_create_qp)
