/*
 * provider.c - libmlx5.so.1 and libefa.so.1 for programs that are linked with them (perftest), by
 * the symbols that those name. Nothing of it is there: each call says so.
 */
#include <errno.h>
#include <stddef.h>

#define NONE(name)                                              \
	__attribute__((visibility("default"))) void *name(void) \
	{                                                       \
		errno = EOPNOTSUPP;                             \
		return NULL;                                    \
	}
#ifdef MLX5
NONE(mlx5dv_create_mkey)
NONE(mlx5dv_create_qp)
NONE(mlx5dv_crypto_login)
NONE(mlx5dv_dek_create)
NONE(mlx5dv_dek_destroy)
NONE(mlx5dv_destroy_mkey)
NONE(mlx5dv_devx_general_cmd)
NONE(mlx5dv_open_device)
NONE(mlx5dv_qp_ex_from_ibv_qp_ex)
#else
NONE(efadv_create_qp_ex)
NONE(efadv_query_device)
#endif
