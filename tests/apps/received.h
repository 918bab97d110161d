/* received.h - what the kernel's own TCP has brought; what a ring brings is not in it. */
#ifndef TESTS_RECEIVED_H
#define TESTS_RECEIVED_H

#include <linux/tcp.h>
#include <stdint.h>

#include "both.h"

static uint64_t kernel_received(int fd)
{
	struct tcp_info ti = { 0 };
	socklen_t n = sizeof ti;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &n))
		die("TCP_INFO");
	return ti.tcpi_bytes_received;
}

#endif
