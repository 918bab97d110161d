/*
 * stream_count.c - the bytes of streams that stay on TCP for good. Counting must not add anything
 * to their calls. So the kernel, which knows what they moved (TCP_INFO), is asked when the stream
 * is closed or the process ends.
 *
 * Locks: the caller's.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>

#include "base/shim.h"
#include "base/sock.h"
#include "base/sys.h"
#include "conn/stream_life.h"
#include "conn/stream_slab.h"

enum { CLOSE_WAIT = 8, LAST_ACK = 9, CLOSING = 11 };	/* include/net/tcp_states.h */

/* Others may use it as well, and the kernel's count has their bytes, too. */
static bool others_use(const struct stream *s)
{
	switch (atomic_load_explicit(&stream_row(s)->reason, memory_order_relaxed)) {
	case REASON_SHARED: case REASON_PASSED: case REASON_EXEC:
		return true;
	default:
		return false;
	}
}

static void at_least(_Atomic uint64_t *count, uint64_t n)
{
	if (n > atomic_load_explicit(count, memory_order_relaxed))
		atomic_store_explicit(count, n, memory_order_relaxed);
}

void stream_count_tcp_only(struct stream *s)
{
	struct tcp_info i = { .tcpi_state = 0 };
	int fd = atomic_load(&s->fd);
	bool fin;

	if (!stream_tcp_only(s) || fd < 0 || !atomic_load(&s->connected) || others_use(s) ||
	    !socket_tcp_info(fd, &i))
		return;
	/* counts as a byte received */
	fin = i.tcpi_state == CLOSE_WAIT || i.tcpi_state == LAST_ACK || i.tcpi_state == CLOSING;
	if (i.tcpi_bytes_sent >= i.tcpi_bytes_retrans)
		at_least(&stream_row(s)->tx_bytes[PATH_TCP],
			 i.tcpi_bytes_sent - i.tcpi_bytes_retrans + i.tcpi_notsent_bytes);
	if (i.tcpi_bytes_received >= fin)
		at_least(&stream_row(s)->rx_bytes[PATH_TCP], i.tcpi_bytes_received - fin);
}

void streams_count_tcp_only(void)
{
	for (uint32_t i = 0; i < streams_top(); i++) {
		struct stream *s = stream_at(i);

		if (atomic_load(&s->mode) == MODE_TCP_ONLY && !atomic_load(&s->dead))
			stream_count_tcp_only(s);
	}
}
