/* program.c - a connection with both ends in one process; ends well when its bytes go past TCP. */
#include <string.h>
#include <time.h>

#include "../received.h"

int main(int argc, char **argv)
{
	time_t until = time(NULL) + 10;
	char out[100] = "bytes", in[100];
	uint64_t before;

	connect_both();
	do {
		before = kernel_received(b);
		memset(in, 0, sizeof in);
		if (send(a, out, sizeof out, 0) != sizeof out ||
		    recv(b, in, sizeof in, MSG_WAITALL) != sizeof in || memcmp(in, out, sizeof in))
			die("bytes");
	} while (argc > 1 && kernel_received(b) != before && time(NULL) < until);
	puts(argc > 1 && kernel_received(b) != before ? "never fast" : "well");
	return argc > 1 && !strcmp(argv[1], "fast") && kernel_received(b) != before;
}
