/*
 * net_proof.c - the messages of the discovery port (net_msg.h): how they are filled in and judged,
 * whom the policy trusts, and the macs that prove the key. discovery_net.c calls this file, which
 * does not call it.
 *
 * Background thread only, no locks.
 */
#include "discovery/net_call.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>

#include "base/fdtab.h"
#include "base/procfs.h"
#include "base/shim.h"
#include "base/sys.h"
#include "discovery/discovery_net.h"
#include "discovery/netkey.h"
#include "link/link.h"
#include "policy/log.h"

_Static_assert(NETKEY_MAC == NET_MAC, "netkey.h and net_msg.h");

/* What a mac is over. */
struct proof {
	char label[16];
	struct ctl_tuple tuple;
	uint8_t nonce[2][NET_NONCE], boot[2][16];	/* client's, server's */
	uint32_t pid[2], mode, version;
};

void net_boot_id(uint8_t id[16])
{
	static uint8_t known[16];
	static bool have;
	char text[40] = "";
	int fd, n = 0;

	if (!have) {
		fd = !proc_is_ours() ? -EPERM :
		     fd_moment_sys(SYS_openat, AT_FDCWD, "/proc/sys/kernel/random/boot_id",
				   O_RDONLY | O_CLOEXEC, 0);
		if (fd >= 0) {
			sys(SYS_read, fd, text, sizeof text - 1);
			fd_internal_close(fd);
		}
		for (const char *p = text; *p && n < 32; p++) {
			int v = *p >= '0' && *p <= '9'	 ? *p - '0'
				: *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
							 : -1;

			if (v < 0)
				continue;
			known[n / 2] = (uint8_t)(known[n / 2] << 4 | v);
			n++;
		}
		have = true;
	}
	memcpy(id, known, 16);
}

/* False: nothing random is to be had, and with a nonce that is known nobody proves anything. */
bool net_fill(struct net_msg *m, enum net_type type)
{
	*m = (struct net_msg){ .order = NET_ORDER, .version = NET_VERSION, .type = (uint16_t)type,
			       .pid = (uint32_t)sys(SYS_getpid) };
	memcpy(m->magic, "rdmashim", 8);
	net_boot_id(m->boot);
	if (sys(SYS_getrandom, m->nonce, NET_NONCE, 0) == NET_NONCE)
		return true;
	log_line(2, "the kernel gives no random bytes: nothing is proven to other hosts");
	return false;
}

bool net_well_formed(const struct net_msg *m)
{
	return !memcmp(m->magic, "rdmashim", 8) && m->order == NET_ORDER &&
	       m->version == NET_VERSION &&
	       (m->tuple.family == AF_INET || m->tuple.family == AF_INET6);
}

/* Its first NET_HEAD bytes are the same in all versions; they are all that has come, perhaps. */
bool net_other_version(const struct net_msg *m)
{
	return !memcmp(m->magic, "rdmashim", 8) && m->order == NET_ORDER &&
	       m->version != NET_VERSION;
}

bool net_say(int fd, const void *m, size_t n)
{
	return sys(SYS_sendto, fd, m, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == (long)n;
}

void net_refuse(int fd, enum reason why)
{
	struct net_msg m;

	net_fill(&m, NET_REFUSED);	/* proves nothing: with whatever nonce */
	m.tuple.family = AF_INET;
	m.mode = why;
	net_say(fd, &m, sizeof m);
}

/* The policy's way of trusting `host`. enum net_mode, or -errno with the reason in *why. */
int net_trust(const struct sockaddr_storage *host, enum reason *why)
{
	const struct policy *p = atomic_load(&shim_policy);
	int r = netkey_check(policy_key_file(p));

	if (!r)
		return NET_BY_KEY;
	*why = r == -ENOENT ? REASON_NO_VERBS : REASON_NO_TRUST;
	if (r == -ENOKEY && policy_trusts(p, (void *)host))
		return NET_BY_ADDRESS;
	return r;
}

/* False: it takes the key, and there is none any more. Nobody believes the zeros that are there
 * then. */
bool net_make_mac(const struct call *c, bool by_server, uint8_t mac[NETKEY_MAC])
{
	bool server = c->state >= S_CALL;
	const struct net_msg *cli = server ? &c->theirs : &c->mine,
			     *srv = server ? &c->mine : &c->theirs;
	struct proof p = { .tuple = cli->tuple, .pid = { cli->pid, srv->pid }, .mode = cli->mode,
			   .version = NET_VERSION };

	memset(mac, 0, NETKEY_MAC);
	if (cli->mode != NET_BY_KEY)
		return true;
	memcpy(p.label, by_server ? "rdmashim server" : "rdmashim client", 16);
	memcpy(p.nonce[0], cli->nonce, NET_NONCE);
	memcpy(p.nonce[1], srv->nonce, NET_NONCE);
	memcpy(p.boot[0], cli->boot, 16);
	memcpy(p.boot[1], srv->boot, 16);
	return netkey_mac(policy_key_file(atomic_load(&shim_policy)), &p, sizeof p, mac);
}

bool net_mac_right(const struct call *c, bool by_server, const uint8_t mac[NETKEY_MAC])
{
	uint8_t want[NETKEY_MAC];

	return net_make_mac(c, by_server, want) &&
	       (c->mine.mode != NET_BY_KEY || netkey_same(want, mac));
}

int net_possible(struct stream *s)
{
	enum reason why = net_refused_why(&s->addr.peer);
	int r;

	if (!shim_tunables()->discovery_port)
		return REASON_REMOTE;
	if (why)
		return (int)why;
	if (net_trust(&s->addr.peer, &why) < 0)
		return (int)why;
	r = stream_sought(s)->available((void *)&s->addr.local);
	return r;
}
