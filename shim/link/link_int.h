/*
 * link_int.h - between link.c, which makes and ends links, and link_ctl.c, which sends and receives
 * their records.
 */
#ifndef RDMASHIM_LINK_INT_H
#define RDMASHIM_LINK_INT_H

#include "link/link.h"

static inline bool link_is_up(struct link *l)
{
	return atomic_load_explicit(&l->state, memory_order_acquire) == LINK_UP;
}

/* ---- link_ctl.c ---- */
uint32_t link_outq_size(const struct link *l);	/* records that l->outq has room for */
void link_send_bell(struct link *l, int idx);	/* or later, after link_flush(). Takes out_lock */

#endif
