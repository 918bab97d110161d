/*
 * rdmastat_why_policy.c - for `rdmastat why`: what the policy file of a process says of its
 * connections now, and what would change where they are.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/conf.h"
#include "policy/words.h"
#include "views/rdmastat_why.h"

#define READ_MS 2000
#define POLICY_ROOM (2u << 20)	/* for a policy of another user; most take some KiB */

/* ---- what the policy says ---- */

static void not_read(struct subject *s, const char *why)
{
	s->unreadable = s->not_read = true;
	snprintf(s->err.file, sizeof(s->err.file), "%s", s->p->policy_file);
	snprintf(s->err.msg, sizeof(s->err.msg), "%s", why);
}

/* The name is out of a user's counter file: it and what it includes are opened with his rights, by
 * the rule for all policies (policy/trust.h), so nothing but files. */
static int load_policy(struct subject *s)
{
	const char *path = s->p->policy_file;
	int rc = -EPERM;

	memset(&s->err, 0, sizeof(s->err));
	if (!path[0])
		return 0;
	if (s->p->away) {	/* and root of a container may name what is root's here */
		not_read(s, "it is in another mount namespace");
		return rc;
	}
	if (user_rights(s->p->uid)) {
		rc = policy_load(path, &s->pol, &s->err);
		own_rights();
	} else {
		not_read(s, "its user's rights cannot be taken");
	}
	s->unreadable = rc && !(rc == -ENOENT && !strcmp(path, "/etc/rdmashim.conf"));
	return rc;
}

/* As load_policy(), with no more than POLICY_ROOM bytes. */
static void load_within_room(struct subject *s)
{
	struct rlimit old, less;
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	int rc;

	if (f && fscanf(f, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	if (!pages || getrlimit(RLIMIT_DATA, &old)) {
		not_read(s, "how much memory it takes cannot be bounded");
		return;
	}
	less = old;
	less.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + POLICY_ROOM;
	if (less.rlim_cur < old.rlim_cur)
		setrlimit(RLIMIT_DATA, &less);
	rc = load_policy(s);
	setrlimit(RLIMIT_DATA, &old);
	if (rc == -ENOMEM)
		not_read(s, "it is larger than what root reads for another user");
}

/* NULL if the child has said that it has read the policy, and was told to go on; else why not. */
static const char *child_fails(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char c = 0;

	if (poll(&p, 1, READ_MS) != 1)
		return "reading it takes too long";
	if (read(fd, &c, 1) != 1 || send(fd, &c, 1, MSG_NOSIGNAL) != 1)
		return "reading it failed";
	return NULL;
}

static int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

/*
 * Behind a user's path may be a file system that never answers: root has it read by a child, which
 * shows the rest, too, and does not wait for it. PARENT: it has, *rc. CHILD: it is to end behind
 * what it shows. ALONE: there is none, any more.
 */
enum whose read_policy(struct subject *s, int *rc)
{
	const char *why;
	int fd[2];
	pid_t pid;
	char c = 0;

	if (geteuid() || !s->p->uid || !s->p->policy_file[0]) {
		load_policy(s);
		return ALONE;
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)	/* one that was given up, if it could end */
		;
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd)) {
		not_read(s, strerror(errno));
		return ALONE;
	}
	pid = fork();
	if (!pid) {
		close(fd[0]);
		load_within_room(s);
		if (write(fd[1], &c, 1) != 1 || read(fd[1], &c, 1) != 1)
			_exit(EXIT_FAILED);
		close(fd[1]);
		return CHILD;
	}
	close(fd[1]);
	why = pid < 0 ? "no process can be started to read it" : child_fails(fd[0]);
	close(fd[0]);
	if (!why) {
		*rc = wait_for(pid);
		return PARENT;
	}
	not_read(s, why);
	if (pid > 0)
		kill(pid, SIGKILL);
	return ALONE;
}

static void to_sockaddr(int family, const uint8_t *addr, uint16_t port,
			struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)ret;

		in->sin_port = htons(port);
		memcpy(&in->sin_addr, addr, 4);
	} else if (family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

		in6->sin6_port = htons(port);
		memcpy(&in6->sin6_addr, addr, 16);
	}
}

void decide(struct subject *s)
{
	const struct policy *p = s->pol ? s->pol : policy_builtin();
	struct sockaddr_storage local, peer;

	if (s->unreadable) {
		s->now = (struct policy_decision){ .paths = 1u << PATH_TCP,
						   .reason = REASON_BAD_POLICY };
		return;
	}
	to_sockaddr(s->c->family, s->c->laddr, s->c->lport, &local);
	to_sockaddr(s->c->family, s->c->paddr, s->c->pport, &peer);
	policy_decide(p, s->p->program, s->c->role, (struct sockaddr *)&local,
		      (struct sockaddr *)&peer, &s->now);
	s->recorded_differs = s->c->rule_at && s->c->rule_at != s->now.at;
}

/* ---- advice ---- */

static uint64_t all_bytes(const struct stat_conn *c)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < PATH_KINDS; i++)
		sum = sat_add(sum, sat_add(c->tx_bytes[i], c->rx_bytes[i]));
	return sum;
}

static void advise_peer(struct subject *s)
{
	char l[64], r[64];

	if (s->other.c) {
		snprintf(s->advice, sizeof(s->advice),
			 "the other end is %u:%u (%s), under the library now; it may not have been "
			 "when this connection asked. "
			 "Connections that are made from now on will find it, and so may this one "
			 "when it has moved much more. See also: rdmastat why %u:%u",
			 s->other.p->pid, s->other.c->fd, s->other.p->program, s->other.p->pid,
			 s->other.c->fd);
		return;
	}
	snprintf(s->advice, sizeof(s->advice),
		 "start the program at the other end with the library too (rdmarun PROGRAM). Who "
		 "it is: ss -tnp 'src %s and dst %s'",
		 end_text(s->c->family, s->c->paddr, s->c->pport, r, sizeof(r)),
		 end_text(s->c->family, s->c->laddr, s->c->lport, l, sizeof(l)));
}

/* Its latest event is no reason: earned, asked, or looking for the other end. The row says
 * `not-earned` until that has an end. */
bool under_way(const struct subject *s)
{
	size_t n = s->past.n;

	return n &&
	       (s->past.at[n - 1].kind == EVENT_EARNED || s->past.at[n - 1].kind == EVENT_RULE ||
		s->past.at[n - 1].kind == EVENT_SEARCH);
}

/* It has yet to earn its upgrade. */
bool unearned(const struct stat_conn *c)
{
	return c->reason == REASON_NOT_EARNED || c->reason == REASON_SHORT_LIVED;
}

static void advise_not_earned(struct subject *s)
{
	const struct policy_tunables *t = policy_tunables(s->pol ? s->pol : policy_builtin());
	/* what `policy set` would change by itself */
	bool ours = !strcmp(s->p->policy_file, policy_path(false));
	uint64_t times = s->c->reason == REASON_SHORT_LIVED ? EARN_MUCH : 1;
	char has[16], need[32], file[800];

	if (under_way(s) || s->c->reason == REASON_SEARCHING) {
		snprintf(s->advice, sizeof(s->advice),
			 "nothing yet: it has earned its upgrade, and the process at the other end "
			 "is looked for. Ask again in %s (discovery in the policy file)",
			 conf_value_text(CONF_T_time, t->discovery, need, sizeof(need)));
		return;
	}

	snprintf(s->advice, sizeof(s->advice),
		 "it earns its upgrade at %s %s (has %s) or %s %llu: nothing to do if such "
		 "connections are short; to lower them: rdmastat policy set %s%s%s%s",
		 times > 1 ? "bytes" : "earn_bytes",
		 conf_value_text(CONF_T_size, t->earn_bytes * times, need, sizeof(need)),
		 human(all_bytes(s->c), has, sizeof(has)), times > 1 ? "rounds" : "earn_rounds",
		 (unsigned long long)(t->earn_rounds * times), ours ? "" : "-f ",
		 ours ? "" : shell_word(s->p->policy_file, file, sizeof(file)), ours ? "" : " ",
		 times > 1 ? "earn_lifetime off" : "earn_bytes 0");
}

void advise(struct subject *s)
{
	char text[256], place[320], file[800], error[POLICY_ERROR_TEXT];
	uint32_t at;

	s->past_rc = statfile_history(s->p, s->c, &s->past);
	switch (s->c->reason) {
	case REASON_NONE:
		snprintf(s->advice, sizeof(s->advice),
			 "nothing: it is on a fast path, or about to be");
		if (s->c->tx_path == PATH_TCP && s->c->rx_path == PATH_TCP)
			snprintf(s->advice, sizeof(s->advice),
				 "nothing was decided against it; ask again when more bytes have "
				 "moved");
		return;
	case REASON_NOT_EARNED:
	case REASON_SEARCHING:
	case REASON_SHORT_LIVED:
		advise_not_earned(s);
		return;
	case REASON_NO_PEER_SHIM:
		advise_peer(s);
		return;
	case REASON_POLICY:
		at = s->c->rule_at ? s->c->rule_at : s->now.at;
		snprintf(s->advice, sizeof(s->advice), "change %s: %s",
			 place_text(s->pol, s->p->policy_file, at, place, sizeof(place)),
			 place_line(s->pol, at, text, sizeof(text)));
		return;
	case REASON_MODE_OFF:
		snprintf(s->advice, sizeof(s->advice), "rdmastat policy set -f %s mode on",
			 shell_word(s->p->policy_file, file, sizeof(file)));
		return;
	case REASON_BAD_POLICY:
		if (s->unreadable)
			snprintf(s->advice, sizeof(s->advice), "mend %s",
				 policy_error_text(&s->err, error, sizeof(error)));
		else
			snprintf(s->advice, sizeof(s->advice),
				 "%s is good now; running programs follow within a second",
				 s->p->policy_file);
		return;
	case REASON_PEER_REFUSED:
	case REASON_IDENTITY:
		if (s->other.c) {
			snprintf(s->advice, sizeof(s->advice),
				 "%s; the other end's view: rdmastat why %u:%u",
				 reason_remedy(s->c->reason), s->other.p->pid, s->other.c->fd);
			return;
		}
		break;
	default:
		break;
	}
	snprintf(s->advice, sizeof(s->advice), "%s",
		 strcmp(reason_remedy(s->c->reason), "none")
			 ? reason_remedy(s->c->reason)
			 : "nothing: the program does what only TCP can carry; it works as without "
			   "the library");
}
