/*
 * rdmastat_peer.c - `rdmastat doctor PEER`: the way to another host, or to a port of this one:
 * name, route, policy, connection, and what is known of the library at the other end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "policy/words.h"
#include "shim/discovery/net_msg.h"
#include "doctor/rdmastat_doctor.h"

#define CONNECT_MS 3000

struct peer {
	char host[256], port[16], text[80];
	struct sockaddr_storage addr, local;
	socklen_t len;
	bool here;
};

/* HOST, HOST:PORT, ADDRESS, [ADDRESS]:PORT */
static bool split(struct doctor *d, const char *word, struct peer *p)
{
	const char *colon = strrchr(word, ':'), *close = strchr(word, ']');
	size_t len = strlen(word);
	uint64_t n;

	if (colon && (close ? colon > close : strchr(word, ':') == colon)) {
		if (!opt_number(colon + 1, 1, 65535, "doctor PEER", &n)) {
			verdict(d, V_FAIL, "peer", "write HOST, HOST:PORT or [ADDRESS]:PORT",
				"%.100s is not a peer", word);
			return false;
		}
		snprintf(p->port, sizeof(p->port), "%llu", (unsigned long long)n);
		len = (size_t)(colon - word);
	}
	if (word[0] == '[' && len >= 2 && word[len - 1] == ']') {
		word++;
		len -= 2;
	}
	snprintf(p->host, sizeof(p->host), "%.*s", (int)(len < 255 ? len : 255), word);
	return true;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	if (!b || a->ss_family != b->sa_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

bool address_here(const struct sockaddr_storage *a)
{
	struct ifaddrs *list = NULL, *i;
	bool here = a->ss_family == AF_INET
			    ? ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127
			    : IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);

	if (!getifaddrs(&list))
		for (i = list; i; i = i->ifa_next)
			here = here || same_host(a, i->ifa_addr);
	freeifaddrs(list);
	return here;
}

/* A connected UDP socket sends nothing, but has a route. */
static bool route(struct doctor *d, struct peer *p)
{
	int fd = socket(p->addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(p->local);
	char ip[64] = "?";
	bool ok = fd >= 0 && !connect(fd, (struct sockaddr *)&p->addr, p->len) &&
		  !getsockname(fd, (struct sockaddr *)&p->local, &len);

	if (!ok) {
		verdict(d, V_FAIL, "peer route", "ip route get ADDRESS", "no way to %s: %s",
			p->text, strerror(errno));
	} else {
		getnameinfo((struct sockaddr *)&p->local, len, ip, sizeof(ip), NULL, 0,
			    NI_NUMERICHOST);
		p->here = address_here(&p->addr);
		verdict(d, V_OK, "peer route", "", "from %s%s", ip,
			p->here ? "; it is this host" : "");
	}
	if (fd >= 0)
		close(fd);
	return ok;
}

/* A connection to the port, or -1 and *ret. */
static int open_port(const struct peer *p, unsigned port, int *ret)
{
	struct sockaddr_storage to = p->addr;
	struct pollfd pf = { .events = POLLOUT };
	socklen_t len = sizeof(int);
	int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;

	if (to.ss_family == AF_INET)
		((struct sockaddr_in *)&to)->sin_port = htons((uint16_t)port);
	else
		((struct sockaddr_in6 *)&to)->sin6_port = htons((uint16_t)port);
	if (fd < 0 || (connect(fd, (struct sockaddr *)&to, p->len) && errno != EINPROGRESS)) {
		err = errno;
	} else {
		pf.fd = fd;
		if (poll(&pf, 1, CONNECT_MS) != 1)
			err = ETIMEDOUT;
		else
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	}
	*ret = err;
	if (err && fd >= 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool try_port(const struct peer *p, unsigned port, int *ret)
{
	int fd = open_port(p, port, ret);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void take(struct peer *p, const struct addrinfo *ai)
{
	memcpy(&p->addr, ai->ai_addr, ai->ai_addrlen);
	p->len = ai->ai_addrlen;
}

/* Of several addresses the first that takes a connection, as programs do; or the first. */
static void choose(struct peer *p, const struct addrinfo *ai)
{
	int err;

	if (p->port[0] && ai->ai_next)
		for (const struct addrinfo *a = ai; a; a = a->ai_next) {
			take(p, a);
			if (try_port(p, (unsigned)atoi(p->port), &err))
				return;
		}
	take(p, ai);
}

static bool resolve(struct doctor *d, struct peer *p)
{
	struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *ai = NULL;
	char ip[64] = "?";
	int rc = getaddrinfo(p->host, p->port[0] ? p->port : "9", &want, &ai);

	if (rc) {
		verdict(d, V_FAIL, "peer name",
			"look at the spelling, /etc/hosts and the name server", "%s: %s", p->host,
			gai_strerror(rc));
		return false;
	}
	choose(p, ai);
	freeaddrinfo(ai);
	getnameinfo((struct sockaddr *)&p->addr, p->len, ip, sizeof(ip), NULL, 0, NI_NUMERICHOST);
	snprintf(p->text, sizeof(p->text), "%s", ip);
	verdict(d, V_OK, "peer name", "", "%s is %s", p->host, ip);
	return true;
}

static bool connect_to(struct doctor *d, struct peer *p)
{
	int err;

	try_port(p, (unsigned)atoi(p->port), &err);
	if (err)
		verdict(d, V_FAIL, "peer port",
			err == ECONNREFUSED ? "start the server there"
					    : "look at firewalls and routes on the way",
			"port %s of %s: %s", p->port, p->text, strerror(err));
	else
		verdict(d, V_OK, "peer port", "", "port %s of %s accepts connections", p->port,
			p->text);
	return !err;
}

static void ask_policy(struct doctor *d, const struct peer *p)
{
	struct policy_decision dec;
	char place[320], names[80] = "";
	int n = 0;

	policy_decide(d->policy, "*", ROLE_CLIENT, NULL, (const struct sockaddr *)&p->addr, &dec);
	for (int i = PATH_TCP + 1; i < PATH_KINDS; i++)
		if (dec.paths & 1u << i && n < (int)sizeof(names) - 20)
			n += snprintf(names + n, sizeof(names) - n, " %.16s",
				      path_name((enum path_kind)i));
	if (dec.reason)
		verdict(d, V_WARN, "peer policy", "rdmastat policy explain names the line",
			"%s leaves this peer on TCP",
			place_text(d->policy, policy_path(false), dec.at, place, sizeof(place)));
	else
		verdict(d, V_OK, "peer policy", "", "permits%s to this peer", names);
}

/* ---- who listens on the port here, and is it under the library? ---- */

/* Inodes of the sockets that listen on the port, in this network namespace. */
static size_t listening_inodes(const char *table, unsigned port, unsigned long *inode, size_t n,
			       size_t max)
{
	unsigned lport, state;
	unsigned long ino;
	char line[512];
	FILE *f = fopen(table, "re");

	while (f && n < max && fgets(line, sizeof(line), f))
		if (sscanf(line,
			   " %*u: %*[0-9A-F]:%4X %*[0-9A-F]:%*4X %X %*X:%*X %*X:%*X %*X %*u %*u "
			   "%lu",
			   &lport, &state, &ino) == 3 &&
		    lport == port && state == 10 /* TCP_LISTEN */ && ino)
			inode[n++] = ino;
	if (f)
		fclose(f);
	return n;
}

static bool holds_socket(const struct doctor *d, const char *pid, const unsigned long *inode,
			 size_t n)
{
	char dir[64], path[PATH_MAX], to[64];
	char **fd;
	size_t i, k;
	bool found = false;
	unsigned long ino;

	snprintf(dir, sizeof(dir), "/proc/%.16s/fd", pid);
	fd = names_in(d, dir);
	for (i = 0; fd && fd[i] && !found; i++) {
		ssize_t len;

		snprintf(path, sizeof(path), "%s/%.16s", dir, fd[i]);
		len = readlink(path, to, sizeof(to) - 1);
		to[len > 0 ? len : 0] = '\0';
		for (k = 0; k < n && sscanf(to, "socket:[%lu]", &ino) == 1; k++)
			found |= ino == inode[k];
	}
	names_free(fd);
	return found;
}

static bool has_library(const char *pid)
{
	char path[64], line[PATH_MAX + 128];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.16s/maps", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "librdmashim") != NULL;
	if (f)
		fclose(f);
	return found;
}

/* False if nobody was found: it is another user's, or in a container. */
static bool judge_listener(struct doctor *d, const struct peer *p)
{
	unsigned port = (unsigned)strtoul(p->port, NULL, 10);
	char **pid = names_in(d, "/proc"), name[64], mend[100];
	unsigned long inode[64];
	bool found = false;
	size_t n, i;

	n = listening_inodes("/proc/net/tcp", port, inode, 0, 64);
	n = listening_inodes("/proc/net/tcp6", port, inode, n, 64);
	for (i = 0; n && pid && pid[i] && !found; i++) {
		if (pid[i][0] < '1' || pid[i][0] > '9' || !holds_socket(d, pid[i], inode, n))
			continue;
		found = true;
		fact(d, name, sizeof(name), "/proc/%s/comm", pid[i]);
		snprintf(mend, sizeof(mend),
			 "start it with rdmarun, or with LD_PRELOAD=librdmashim.so");
		if (has_library(pid[i]))
			verdict(d, V_OK, "peer library", "",
				"%s (%s) listens on port %u, under the library", name, pid[i],
				port);
		else
			verdict(d, V_FAIL, "peer library", mend,
				"%s (%s) listens on port %u without the library: its connections "
				"stay on TCP (reason peer-no-shim)",
				name, pid[i], port);
	}
	names_free(pid);
	return found;
}

static void find_listener(struct doctor *d, const struct peer *p)
{
	struct stat_list l = { 0 };
	char names[128] = "";
	size_t i;

	if (!d->root[0] && p->port[0] && judge_listener(d, p))
		return;
	if (!statfile_list(false, 0, NULL, &l))
		for (i = 0; i < l.n && strlen(names) < 90; i++)
			snprintf(names + strlen(names), sizeof(names) - strlen(names),
				 "%s%.16s (%u)", i ? ", " : "", l.proc[i].program, l.proc[i].pid);
	if (!l.n)
		verdict(d, V_WARN, "peer library", "start the server with rdmarun",
			"no process of this host that this user may see is under the library");
	else
		verdict(d, V_OK, "peer library", "", "under the library here: %s%s", names,
			p->port[0] ? "; ss -tlnp names who listens" : "");
	stat_list_clear(&l);
}

/* Calls for a connection that nobody there has: ours to the port itself. The library says no to
 * that, in its own words. */
static void speak(struct doctor *d, const struct peer *p, unsigned port, int fd)
{
	static const char other[] =
		"something else listens there: change discovery_port at both hosts, or stop it";
	struct net_msg m = { .order = NET_ORDER, .version = NET_VERSION, .type = NET_CALL,
			     .pid = (uint32_t)getpid(),
			     .mode = policy_key_file(d->policy)[0] ? NET_BY_KEY : NET_BY_ADDRESS,
			     .tuple = { .family = AF_INET, .pport = (uint16_t)port } };
	struct pollfd pf = { .fd = fd, .events = POLLIN };
	size_t got = 0;
	ssize_t n = 1;

	memcpy(m.magic, NET_MAGIC, sizeof(m.magic));
	if (send(fd, &m, sizeof(m), MSG_NOSIGNAL) != sizeof(m)) {
		verdict(d, V_FAIL, "peer discovery", other, "port %u of %s takes no call: %s", port,
			p->text, strerror(errno));
		return;
	}
	while (got < sizeof(m) && n > 0 && poll(&pf, 1, CONNECT_MS) == 1) {
		n = recv(fd, (char *)&m + got, sizeof(m) - got, 0);
		got += n > 0 ? (size_t)n : 0;
	}
	if (got < sizeof(m) || memcmp(m.magic, NET_MAGIC, sizeof(m.magic)) ||
	    (m.type != NET_REFUSED && m.type != NET_ANSWER))
		verdict(d, V_FAIL, "peer discovery", other,
			"who listens on port %u of %s does not speak rdmashim's protocol", port,
			p->text);
	else if (m.order == NET_ORDER && m.version != NET_VERSION && m.type == NET_REFUSED &&
		 m.mode == REASON_NONE)
		verdict(d, V_WARN, "peer discovery", "install the same version at both hosts",
			"port %u of %s: who has it speaks version %u, this is %d, and finds others "
			"of this version there", port, p->text, m.version, NET_VERSION);
	else if (m.order != NET_ORDER || m.version != NET_VERSION)
		verdict(d, V_FAIL, "peer discovery", "install the same version at both hosts",
			"port %u of %s: the library there speaks version %u, this is %d", port,
			p->text, m.version, NET_VERSION);
	else
		verdict(d, V_OK, "peer discovery", "",
			"port %u of %s: the library is there, and speaks this version", port,
			p->text);
}

/* Another host: is there a way to prove who we are, and does its discovery answer? Bytes by RDMA
 * only a program can move. */
static void check_remote(struct doctor *d, const struct peer *p)
{
	unsigned port = (unsigned)policy_tunables(d->policy)->discovery_port;
	int err, fd = -1;

	if (!port)
		verdict(d, V_WARN, "peer discovery",
			"set discovery_port and key_file at both hosts",
			"discovery_port is not set: connections there stay on TCP (reason remote)");
	else if (!policy_key_file(d->policy)[0] &&
		 !policy_trusts(d->policy, (const struct sockaddr *)&p->addr))
		verdict(d, V_FAIL, "peer discovery",
			"set key_file, or add its network to rdma_networks", "%s is not trusted",
			p->text);
	else if ((fd = open_port(p, port, &err)) < 0)
		verdict(d, V_FAIL, "peer discovery",
			"start a program with an RDMA rule there; let the port through firewalls",
			"port %u of %s: %s", port, p->text, strerror(err));
	else
		speak(d, p, port, fd);
	if (fd >= 0)
		close(fd);
}

void check_peer(struct doctor *d, const char *word)
{
	struct peer p = { 0 };

	if (!split(d, word, &p) || !resolve(d, &p) || !route(d, &p))
		return;
	if (p.port[0] && !connect_to(d, &p))
		return;
	if (!p.port[0])
		verdict(d, V_NONE, "peer port", "rdmastat doctor HOST:PORT tries a connection too",
			"no port was named");
	ask_policy(d, &p);
	if (p.here)
		find_listener(d, &p);
	else
		check_remote(d, &p);
}
