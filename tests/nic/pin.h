/*
 * pin.h - private memory as a card has it: pages that stay its own whatever becomes of the mapping.
 * A program registers the memory as a buffer of an io_uring of its own (io_uring_register(2)),
 * which pins it; nicd takes that ring over (pidfd_getfd(2)) and copies by READ_FIXED and
 * WRITE_FIXED, from and to a memfd. So a registration that has gone stale reads and writes the old
 * pages, as on a card.
 */
#ifndef NIC_PIN_H
#define NIC_PIN_H

#include <linux/io_uring.h>
#include <stdint.h>

#define PIN_MOST (1ull << 30)	/* a buffer's limit */

/* What a program says of a ring that it has made. */
struct nic_pin {
	uint32_t fd;		/* its number there, plus 1; 0: there is none */
	struct io_uring_params params;
};

#endif
