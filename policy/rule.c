/*
 * rule.c - address patterns, rules, and the decision for one stream. Owns the two kinds of
 * static policy (built-in, all TCP). Everything here reads immutable data: no locks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"
#include "stat.h"
#include "words.h"

static const uint8_t mapped_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* ---- static policies ---- */

#define CONF(name, type, dflt, min, max, unit, doc) .name = (dflt),
static const struct policy builtin = {
	.fixed = true, .mode_on = true,
	.tun = {
#include "conf.def"
	},
};

#define REASON(id, name, what, remedy) [REASON_##id] = { .fixed = true, .all_tcp = REASON_##id },
static const struct policy all_tcp[REASON_COUNT] = {
#include "reason.def"
};
#undef REASON
#undef CONF

const struct policy *policy_builtin(void)
{
	return &builtin;
}

const struct policy *policy_all_tcp(int reason)
{
	if (reason <= REASON_NONE || reason >= REASON_COUNT)
		reason = REASON_POLICY;
	return &all_tcp[reason];
}

bool policy_mode_on(const struct policy *p)
{
	return p->mode_on;
}

size_t policy_rules(const struct policy *p)
{
	return p->nrules;
}

const struct policy_tunables *policy_tunables(const struct policy *p)
{
	/* nothing is tuned where everything is TCP: the defaults, in one place */
	return p->all_tcp ? &builtin.tun : &p->tun;
}

/* ---- patterns: text to struct ---- */

struct pat_parser {
	const char *s;
	size_t len;
	size_t *at;
	char *msg;
	size_t msglen;
};

/* Marks the part of the word that starts at `at`, which a message can quote. */
static int pat_fail(struct pat_parser *pp, size_t at, const char *what, size_t from, size_t to,
		    const char *remedy)
{
	char q[200];

	*pp->at = at;
	fmt_string(pp->msg, pp->msglen, "%s %s; %s",
		   quote_word(pp->s + from, to - from, q, sizeof(q)), what, remedy);
	return -EINVAL;
}

static int parse_port(struct pat_parser *pp, size_t from, size_t to, uint16_t *ret)
{
	uint64_t v;
	bool over;
	size_t n = parse_digits(pp->s + from, to - from, &v, &over);

	if (!n || from + n != to || over || v < 1 || v > 65535)
		return pat_fail(pp, from, "is not a port", from, to,
				"write 1 to 65535, a range such as 8000-8099, or *");
	*ret = (uint16_t)v;
	return 0;
}

static int parse_ports(struct pat_parser *pp, size_t from, struct addr_pat *pat)
{
	const char *dash;
	size_t mid;
	int rc;

	if (pp->len - from == 1 && pp->s[from] == '*') {
		pat->port_lo = 0;
		pat->port_hi = 65535;
		return 0;
	}
	dash = memchr(pp->s + from, '-', pp->len - from);
	mid = dash ? (size_t)(dash - pp->s) : pp->len;
	rc = parse_port(pp, from, mid, &pat->port_lo);
	if (rc)
		return rc;
	pat->port_hi = pat->port_lo;
	if (!dash)
		return 0;
	rc = parse_port(pp, mid + 1, pp->len, &pat->port_hi);
	if (!rc && pat->port_hi < pat->port_lo)
		return pat_fail(pp, from, "runs backwards", from, pp->len,
				"write the lower port first");
	return rc;
}

/* True if a bit of addr beyond the first `len` is set. */
static bool bits_beyond(const uint8_t *addr, unsigned len, unsigned bytes)
{
	unsigned i;

	for (i = len / 8; i < bytes; i++) {
		uint8_t mask = i == len / 8 ? (uint8_t)(0xff >> (len % 8)) : 0xff;

		if (addr[i] & mask)
			return true;
	}
	return false;
}

static int parse_prefix(struct pat_parser *pp, size_t from, size_t to, struct addr_pat *pat)
{
	unsigned max = pat->family == AF_INET ? 32 : 128;
	uint64_t v;
	bool over;
	size_t n = parse_digits(pp->s + from, to - from, &v, &over);

	if (!n || from + n != to || over || v > max)
		return pat_fail(pp, from, "is not a prefix length", from, to,
				max == 32 ? "write 0 to 32" : "write 0 to 128");
	pat->len = (uint8_t)v;
	return 0;
}

/* A v4-mapped pattern is the IPv4 pattern that it stands for, since addresses are compared
 * unmapped. */
static int unmap_pattern(struct pat_parser *pp, size_t from, size_t to, struct addr_pat *pat)
{
	if (pat->family != AF_INET6 || memcmp(pat->addr, mapped_prefix, sizeof(mapped_prefix)))
		return 0;
	if (pat->len < 96)
		return pat_fail(pp, from, "cuts through the IPv4 part", from, to,
				"write an IPv4 address with its own prefix");
	memmove(pat->addr, pat->addr + 12, 4);
	memset(pat->addr + 4, 0, 12);
	pat->family = AF_INET;
	pat->len = (uint8_t)(pat->len - 96);
	return 0;
}

/* The address s[from..to) of `family` with the prefix length in s[pfrom..pto), absent if pfrom
 * == 0. */
static int parse_addr(struct pat_parser *pp, size_t from, size_t to, size_t pfrom, size_t pto,
		      int family, struct addr_pat *pat)
{
	char tmp[INET6_ADDRSTRLEN];
	int rc;

	if (to - from >= sizeof(tmp) || memchr(pp->s + from, '\0', to - from))
		goto bad;
	memcpy(tmp, pp->s + from, to - from);
	tmp[to - from] = '\0';
	if (inet_pton(family, tmp, pat->addr) != 1)
		goto bad;
	pat->family = (uint8_t)family;
	pat->len = family == AF_INET ? 32 : 128;
	if (pfrom) {
		rc = parse_prefix(pp, pfrom, pto, pat);
		if (rc)
			return rc;
	}
	rc = unmap_pattern(pp, from, to, pat);
	if (!rc && bits_beyond(pat->addr, pat->len, pat->family == AF_INET ? 4 : 16))
		return pat_fail(pp, from, "has bits set beyond its prefix length", from, to,
				"clear them or write a longer prefix");
	return rc;
bad:
	return pat_fail(pp, from,
			family == AF_INET ? "is not an IPv4 address" : "is not an IPv6 address",
			from, to, "write it in numbers (names are not looked up) or *");
}

static int parse_v6(struct pat_parser *pp, struct addr_pat *pat)
{
	const char *s = pp->s, *close = memchr(s, ']', pp->len), *slash;
	size_t end, after, pfrom = 0, pto = 0, to;
	int rc;

	if (!close)
		return pat_fail(pp, 0, "has no closing ]", 0, pp->len, "write [address]:port");
	end = to = (size_t)(close - s);
	after = end + 1;
	slash = memchr(s, '/', end);
	if (slash) {				/* [addr/len]:port */
		to = (size_t)(slash - s);
		pfrom = to + 1;
		pto = end;
	} else if (after < pp->len && s[after] == '/') {	/* [addr]/len:port */
		const char *colon = memchr(s + after, ':', pp->len - after);

		pfrom = after + 1;
		after = colon ? (size_t)(colon - s) : pp->len;
		pto = after;
	}
	rc = parse_addr(pp, 1, to, pfrom, pto, AF_INET6, pat);
	if (rc)
		return rc;
	if (after >= pp->len || s[after] != ':')
		return pat_fail(pp, after, "has no port", 0, pp->len,
				"write [address]:port, or [address]:* for every port");
	return parse_ports(pp, after + 1, pat);
}

static int parse_v4(struct pat_parser *pp, struct addr_pat *pat)
{
	const char *s = pp->s, *colon = memchr(s, ':', pp->len), *slash;
	size_t end, to, pfrom = 0;
	int rc;

	if (!colon)
		return pat_fail(pp, pp->len, "has no port", 0, pp->len,
				"write address:port, or address:* for every port");
	end = to = (size_t)(colon - s);
	if (memchr(colon + 1, ':', pp->len - end - 1))
		return pat_fail(pp, 0, "has more than one colon", 0, pp->len,
				"write an IPv6 address in brackets, [address]:port");
	if (!(end == 1 && s[0] == '*')) {
		slash = memchr(s, '/', end);
		if (slash) {
			to = (size_t)(slash - s);
			pfrom = to + 1;
		}
		rc = parse_addr(pp, 0, to, pfrom, end, AF_INET, pat);
		if (rc)
			return rc;
	}
	return parse_ports(pp, end + 1, pat);
}

int addr_pat_parse(const char *s, size_t len, struct addr_pat *ret, size_t *at, char *msg,
		   size_t msglen)
{
	struct pat_parser pp = { s, len, at, msg, msglen };

	memset(ret, 0, sizeof(*ret));
	return len && s[0] == '[' ? parse_v6(&pp, ret) : parse_v4(&pp, ret);
}

/* ---- decisions ---- */

/* One end as compared: unmapped. family 0 if it is not known, which only *:* matches. */
struct end {
	uint8_t family;
	uint16_t port;
	uint8_t addr[16];
};

static void end_from_sockaddr(const struct sockaddr *sa, struct end *e)
{
	memset(e, 0, sizeof(*e));
	if (sa && sa->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, sa, sizeof(in));
		e->family = AF_INET;
		e->port = ntohs(in.sin_port);
		memcpy(e->addr, &in.sin_addr, 4);
	} else if (sa && sa->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, sa, sizeof(in6));
		e->port = ntohs(in6.sin6_port);
		if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
			e->family = AF_INET;
			memcpy(e->addr, in6.sin6_addr.s6_addr + 12, 4);
		} else {
			e->family = AF_INET6;
			memcpy(e->addr, &in6.sin6_addr, 16);
		}
	}
}

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole))
		return false;
	return !rest || !((a[whole] ^ b[whole]) >> (8 - rest));
}

static bool pat_match(const struct addr_pat *pat, const struct end *e)
{
	if (!e->family)
		return !pat->family && pat->port_lo == 0 && pat->port_hi == 65535;
	if (e->port < pat->port_lo || e->port > pat->port_hi)
		return false;
	return !pat->family ||
	       (pat->family == e->family && prefix_equal(pat->addr, e->addr, pat->len));
}

bool addr_pat_match(const struct addr_pat *pat, int family, const uint8_t *addr, uint16_t port)
{
	struct end e = { .family = (uint8_t)family, .port = port };

	if (family == AF_INET6 && !memcmp(addr, mapped_prefix, sizeof(mapped_prefix))) {
		e.family = AF_INET;
		addr += sizeof(mapped_prefix);
	}
	if (e.family != AF_INET && e.family != AF_INET6)
		return false;
	memcpy(e.addr, addr, e.family == AF_INET ? 4 : 16);
	return pat_match(pat, &e);
}

/* A stream whose role is not known is matched in both readings. */
static bool rule_match(const struct rule *r, const char *program, enum stream_role role,
		       const struct end *local, const struct end *peer)
{
	if (r->client && role != ROLE_SERVER && pat_match(&r->srv, peer) &&
	    pat_match(&r->cli, local))
		goto ends;
	if (r->server && role != ROLE_CLIENT && pat_match(&r->srv, local) &&
	    pat_match(&r->cli, peer))
		goto ends;
	return false;
ends:
	return glob_match(r->program, r->program_len, program);
}

const char *policy_key_file(const struct policy *p)
{
	return p->key_file;
}

unsigned policy_skipped(const struct policy *p, const char **one)
{
	*one = p->skipped_one;
	return p->skipped;
}

const char *policy_old_name(const struct policy *p, unsigned i, uint32_t *at, char *buf, size_t len)
{
	const struct old_name *n;
	const char *of;

	if (i >= p->nold)
		return NULL;
	n = p->old[i];
	of = strcmp(n->of, "key") ? "device " : "";
	*at = p->old_at[i];
	fmt_string(buf, len, "%s%s is called %s%s now; the old name is still understood",
		   of, n->old, of, n->now);
	return buf;
}

const char *policy_discovery_dir(const struct policy *p)
{
	return p->dir;
}

const char *policy_cross_ns_dir(const struct policy *p)
{
	return p->across_dir;
}

bool policy_takes_from(const struct policy *p, uid_t uid)
{
	size_t i;

	for (i = 0; i < p->nusers && p->user[i] != uid; i++)
		;
	return p->any_user || i < p->nusers;
}

bool policy_go(const struct policy *p, const char *program)
{
	for (size_t i = 0; !p->all_tcp && i < p->ngo; i++)
		if (glob_match(p->go[i].program, p->go[i].program_len, program))
			return p->go[i].on;
	return false;
}

static size_t first_match(const struct addr_pat *list, size_t n, const struct sockaddr *a)
{
	struct end e;
	size_t i;

	end_from_sockaddr(a, &e);
	for (i = 0; i < n && !pat_match(&list[i], &e); i++)
		;
	return i;
}

bool policy_trusts(const struct policy *p, const struct sockaddr *host)
{
	return first_match(p->net, p->nnets, host) < p->nnets;
}

int policy_via(const struct policy *p, const struct sockaddr *own)
{
	size_t i = first_match(p->via, p->nvia, own);

	return i < p->nvia ? (int)i : -1;
}

bool policy_has_via(const struct policy *p) { return p->nvia > 0; }

const char *policy_at_path(const struct policy *p, uint32_t at)
{
	return policy_at_file(at) < p->nfiles ? p->file[policy_at_file(at)].path : "";
}

static void decided_at(const struct policy *p, uint32_t at, struct policy_decision *ret)
{
	const char *path = policy_at_path(p, at), *slash = strrchr(path, '/');

	ret->at = at;
	ret->line = policy_at_line(at);
	fmt_string(ret->file, sizeof(ret->file), "%s", slash ? slash + 1 : path);
}

void policy_decide(const struct policy *p, const char *program, enum stream_role role,
		   const struct sockaddr *local, const struct sockaddr *peer,
		   struct policy_decision *ret)
{
	struct end l, r;
	size_t i;

	memset(ret, 0, sizeof(*ret));
	ret->paths = 1u << PATH_TCP;
	if (p->all_tcp) {
		ret->reason = p->all_tcp;
		return;
	}
	if (!p->mode_on) {
		ret->reason = REASON_MODE_OFF;
		decided_at(p, p->mode_at, ret);
		return;
	}
	end_from_sockaddr(local, &l);
	end_from_sockaddr(peer, &r);
	for (i = 0; i < p->nrules; i++) {
		if (!rule_match(&p->rules[i], program ? program : "", role, &l, &r))
			continue;
		ret->paths |= p->rules[i].paths;
		decided_at(p, p->rules[i].at, ret);
		if (ret->paths == 1u << PATH_TCP)
			ret->reason = REASON_POLICY;
		return;
	}
	ret->paths |= PATHS_UNASKED;
}

void policy_free(struct policy *p)
{
	unsigned i;

	if (!p || p->fixed)
		return;
	for (i = 0; p->file && i < p->nfiles; i++)
		free(p->file[i].text);
	free(p->file);
	free(p->rules);
	free(p);
}
