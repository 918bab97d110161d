/* program.c - a connection with both ends in one process; ends well when its bytes go past TCP. */
#include <linux/tcp.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "../both.h"

static uint64_t received(int fd)
{
	struct tcp_info ti = { 0 };
	socklen_t n = sizeof ti;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &n))
		die("TCP_INFO");
	return ti.tcpi_bytes_received;
}

int main(int argc, char **argv)
{
	time_t until = time(NULL) + 10;
	char out[100] = "bytes", in[100];
	uint64_t before;

	connect_both();
	do {
		before = received(b);
		memset(in, 0, sizeof in);
		if (send(a, out, sizeof out, 0) != sizeof out ||
		    recv(b, in, sizeof in, MSG_WAITALL) != sizeof in || memcmp(in, out, sizeof in))
			die("bytes");
	} while (argc > 1 && received(b) != before && time(NULL) < until);
	puts(argc > 1 && received(b) != before ? "never fast" : "well");
	return argc > 1 && !strcmp(argv[1], "fast") && received(b) != before;
}
