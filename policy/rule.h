/*
 * rule.h - inside of struct policy, for conf.c (which fills it) and rule.c (which asks it). Not
 * for others.
 */
#ifndef RDMASHIM_RULE_H
#define RDMASHIM_RULE_H

#include "conf.h"
#include "renamed.h"

/* One end of a connection as a rule names it. family 0: any address of either family. */
struct addr_pat {
	uint8_t family, len;		/* len: prefix bits */
	uint8_t addr[16];		/* IPv4 in the first 4 bytes */
	uint16_t port_lo, port_hi;	/* host order; 0 and 65535 for any */
};

#define NETWORKS_MAX 64
#define USERS_MAX    64
#define GO_MAX       64

struct rule {
	const char *program;		/* glob inside the text of its file */
	size_t program_len;
	uint32_t paths;			/* bit per enum path_kind */
	bool client, server;		/* roles it applies to */
	uint32_t at;			/* POLICY_AT */
	struct addr_pat srv, cli;	/* the end that accepted, the end that connected */
};

/* A file of the policy: the first, or one that it or another includes. */
struct policy_text {
	char path[POLICY_PATH];
	char *text;			/* own copy, with a NUL behind it */
	unsigned parent;		/* who includes it, 0 for the first */
	uint64_t id[2];			/* device and inode; 0: none */
};

struct policy {
	bool fixed;			/* static storage, never freed */
	bool mode_on;
	int all_tcp;			/* enum reason, or 0: the rules decide */
	struct policy_tunables tun;
	struct policy_text *file;
	unsigned nfiles;
	unsigned skipped;		/* see policy_skipped() */
	char skipped_one[POLICY_PATH];
	/* POLICY_AT of the (first) line, 0 = not set */
	uint32_t mode_at, key_at, nets_at, via_at, dir_at, across_at, users_at;
	bool nets_apart, via_apart, users_apart;	/* further ones stand in another file */
	uint32_t set_at[CONF_KEYS];	/* the same of the tunables */
	struct rule *rules;
	size_t nrules, rules_cap;
	char key_file[256];		/* "" = none */
	char dir[256];			/* discovery_dir, "" = none */
	char across_dir[256];		/* cross_ns_dir, the same */
	struct addr_pat net[NETWORKS_MAX];	/* hosts that are trusted by their address */
	size_t nnets;
	struct addr_pat via[NETWORKS_MAX];	/* networks of our own addresses that RDMA goes
						 * by, the best first */
	size_t nvia;
	uid_t user[USERS_MAX];		/* peer_users */
	size_t nusers;
	bool any_user;
	struct go_rule {		/* go: the first whose program matches decides */
		const char *program;	/* as in struct rule */
		size_t program_len;
		bool on;
		uint32_t at;
	} go[GO_MAX];
	size_t ngo;
	const struct old_name *old[OLD_NAMES];	/* old names that it has */
	uint32_t old_at[OLD_NAMES];	/* POLICY_AT of each */
	unsigned nold;
};

/*
 * Reads "addr[/len]:port[-port]" out of s[0..len). Returns 0, or -EINVAL with the offset of the
 * wrong part in *at and a message in msg.
 */
int addr_pat_parse(const char *s, size_t len, struct addr_pat *ret, size_t *at, char *msg,
		   size_t msglen);
/* addr: 4 or 16 bytes by family; a v4-mapped one is the IPv4 one. An unknown end matches
 * nothing. */
bool addr_pat_match(const struct addr_pat *pat, int family, const uint8_t *addr, uint16_t port);

#endif
