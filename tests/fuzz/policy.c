/*
 * policy.c - any text as a policy file; what is accepted must answer for every kind of address.
 * Behind a form feed the text goes on as another file, /etc/b, then /etc/c and so on, for
 * includes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../policy/conf.h"
#include "../../policy/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define FILES 8

struct input {
	const char *text[FILES];
	size_t len[FILES];
	int n;
};

static void decide(const struct policy *p, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(0x0a000001) };
	struct sockaddr_in6 b = { .sin6_family = AF_INET6, .sin6_port = htons(port),
				  .sin6_addr.s6_addr = { 0x20, 1, 0xd, 0xb8 } };
	struct policy_decision d;

	policy_decide(p, "redis-server", ROLE_SERVER, (struct sockaddr *)&a, (struct sockaddr *)&a,
		      &d);
	if (!(d.paths & 1u << PATH_TCP) || memchr(d.file, 0, sizeof d.file) == NULL ||
	    !d.line != !*d.file)
		abort();
	policy_decide(p, "a", ROLE_CLIENT, (struct sockaddr *)&b, (struct sockaddr *)&b, &d);
	policy_trusts(p, (struct sockaddr *)&a);
	policy_trusts(p, (struct sockaddr *)&b);
}

static long read_file(const struct policy_source *src, const char *path, size_t max, char **ret,
		      uint64_t id[2], struct trust *t)
{
	const struct input *in = src->arg;
	int i = strlen(path) == 6 && !strncmp(path, "/etc/", 5) ? path[5] - 'a' : -1;
	size_t len;

	(void)t;
	if (i < 0 || i >= in->n)
		return strlen(path) > 6 ? -EACCES : -ENOENT;
	len = in->len[i] < max ? in->len[i] : max;
	*ret = malloc(len + 1);
	memcpy(*ret, in->text[i], len);
	id[0] = 1;
	id[1] = i == FILES - 1 ? 1 : (uint64_t)i + 1;	/* the last is the first by another name */
	return (long)len;
}

static int list_names(const struct policy_source *src, const char *dir, const char *pattern,
		      char (*name)[POLICY_NAME], size_t max, char skipped[POLICY_NAME],
		      struct trust *t)
{
	const struct input *in = src->arg;
	int n = 0;

	(void)t;
	skipped[0] = '\0';
	if (strcmp(dir, "/etc/"))
		return -ENOENT;
	for (char c[2] = "a"; c[0] < 'a' + in->n; c[0]++)
		if (glob_match(pattern, strlen(pattern), c)) {
			if ((size_t)n == max)
				return -E2BIG;
			strcpy(name[n++], c);
		}
	return n;
}

static void split(const char *s, size_t n, struct input *in)
{
	const char *end = s + n, *cut;

	for (;; s = cut + 1) {
		cut = in->n < FILES - 1 ? memchr(s, '\f', (size_t)(end - s)) : NULL;
		in->text[in->n] = s;
		in->len[in->n++] = (size_t)((cut ? cut : end) - s);
		if (!cut)
			return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct policy *p = NULL;
	struct policy_error err = { .line = 0 };
	struct input in = { .n = 0 };
	struct policy_source src = { read_file, list_names, &in };
	struct policy_deps deps;
	int rc;

	if (!n)		/* memchr of nothing at nowhere */
		return 0;
	split((const char *)data, n, &in);
	rc = policy_parse_from(&src, "/etc/a", &deps, &p, &err);
	if (rc) {
		if (!memchr(err.msg, 0, sizeof err.msg) || !*err.msg ||
		    !memchr(err.file, 0, sizeof err.file))
			abort();	/* a refusal says why */
		return 0;
	}
	decide(p, 6379);
	decide(p, 65535);
	policy_free(p);
	return 0;
}
