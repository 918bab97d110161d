/*
 * policy.c - any text as a policy file; what is accepted must answer for every kind of address.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "../../policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void decide(const struct policy *p, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x0a000001) };
	struct sockaddr_in6 b = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr.s6_addr = { 0x20, 1, 0xd, 0xb8 } };
	struct policy_decision d;

	policy_decide(p, "redis-server", ROLE_SERVER, (struct sockaddr *)&a, (struct sockaddr *)&a, &d);
	if (!(d.paths & 1u << PATH_TCP) || memchr(d.file, 0, sizeof d.file) == NULL)
		abort();
	policy_decide(p, "a", ROLE_CLIENT, (struct sockaddr *)&b, (struct sockaddr *)&b, &d);
	policy_trusts(p, (struct sockaddr *)&a);
	policy_trusts(p, (struct sockaddr *)&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct policy *p = NULL;
	struct policy_error err = { .line = 0 };
	int rc = policy_parse((const char *)data, n, "/etc/fuzz.conf", &p, &err);

	if (rc) {
		if (!memchr(err.msg, 0, sizeof err.msg) || !*err.msg)
			abort();	/* a refusal says why */
		return 0;
	}
	decide(p, 6379);
	decide(p, 65535);
	policy_free(p);
	return 0;
}
