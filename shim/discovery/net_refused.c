/*
 * net_refused.c - hosts that refused, or did not answer, at the discovery port, and are not called
 * again for a while.
 *
 * Background thread only, no locks.
 */
#include "discovery/discovery_net.h"

#include "base/shim.h"
#include "base/sys.h"
#include "discovery/identity.h"

#define REFUSED_MAX 16

static struct refused {
	struct sockaddr_storage host;
	uint64_t until_us;
	enum reason why;
} refused[REFUSED_MAX];

bool net_host_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	struct sockaddr_storage x = *a, y = *b;

	sockaddr_no_port(&x);
	sockaddr_no_port(&y);
	return sockaddr_same((void *)&x, (void *)&y);
}

void net_refused(const struct sockaddr_storage *host, enum reason why)
{
	struct refused *at = &refused[0];

	for (int i = 0; i < REFUSED_MAX; i++) {
		if (refused[i].until_us && net_host_same(&refused[i].host, host)) {
			at = &refused[i];
			break;
		}
		if (refused[i].until_us < at->until_us)
			at = &refused[i];
	}
	*at = (struct refused){ *host, now_us() + shim_tunables()->rdma_retry, why };
}

enum reason net_refused_why(const struct sockaddr_storage *host)
{
	uint64_t now = now_us();

	for (int i = 0; i < REFUSED_MAX; i++)
		if (refused[i].until_us > now && net_host_same(&refused[i].host, host))
			return refused[i].why;
	return REASON_NONE;
}
