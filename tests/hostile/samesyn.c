/*
 * samesyn.c - the proof between hosts alone: is the SYN that the server got the one that the client
 * sent (identity_our_syn()), and do the client's packets leave the host (identity_leaves_host())?
 *
 *	samesyn server ADDRESS PORT		tells each connection the timestamp of its SYN
 *	samesyn client ADDRESS PORT TIMES	prints how often either is said, and how often both
 *
 * LINK: shim/discovery/identity.c shim/base/sock.c shim/base/procs.c shim/base/fdtab.c
 * LINK: shim/base/lock.c shim/base/event.c shim/base/proof.c shim/base/procfs.c policy/words.c
 * LINK: policy/procstat.c policy/trust.c policy/raw.c
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../shim/base/shim.h"
#include "../../shim/discovery/identity.h"

static int broken(const char *what)
{
	perror(what);
	return 1;
}

static int server(const struct sockaddr_in *at)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;
	uint32_t stamp;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	identity_save_syn(l);
	if (l < 0 || bind(l, (const void *)at, sizeof *at) || listen(l, 64))
		return broken("listen");
	while ((fd = accept(l, NULL, NULL)) >= 0) {
		if (identity_syn(fd, &stamp) || send(fd, &stamp, sizeof stamp, MSG_NOSIGNAL) < 0)
			fputs("no SYN\n", stderr);
		close(fd);
	}
	return broken("accept");
}

static int client(const struct sockaddr_in *at, int times)
{
	int ours = 0, leaves = 0, both = 0;

	for (int i = 0; i < times; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		struct sockaddr_storage local;
		socklen_t len = sizeof local;
		uint64_t since = now_us(), until;
		uint32_t stamp;
		bool is, out;

		if (fd < 0 || connect(fd, (const void *)at, sizeof *at))
			return broken("connect");
		until = now_us();
		if (recv(fd, &stamp, sizeof stamp, MSG_WAITALL) != sizeof stamp)
			return broken("recv");
		getsockname(fd, (void *)&local, &len);
		is = identity_our_syn(fd, stamp, since, until);
		out = !identity_leaves_host(fd, (void *)&local, (const void *)at);
		ours += is;
		leaves += out;
		both += is && out;
		close(fd);
	}
	printf("ours %d, leaves %d, taken for one %d\n", ours, leaves, both);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (argc < 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[3]));
	if (!strcmp(argv[1], "server"))
		return server(&at);
	return argc == 5 ? client(&at, atoi(argv[4])) : 2;
}
