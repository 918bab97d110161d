/*
 * rdmastat_why.c - `rdmastat why PID[:FD]`, or ADDRESS:PORT: what is known about one process or
 * connection, which rule decided, and what would change it, and what happened when.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/conf.h"
#include "policy/rule.h"
#include "policy/words.h"
#include "ground/rdmastat_ends.h"
#include "ground/rdmastat_now.h"
#include "ground/rdmastat_past.h"

#define CONNS_SHOWN 10
#define READ_MS 2000
#define POLICY_ROOM (2u << 20)	/* for a policy of another user; most take some KiB */

enum whose { ALONE, PARENT, CHILD };

struct subject {
	const struct stat_proc *p;
	const struct stat_conn *c;	/* NULL: the whole process */
	struct conn_ref other;		/* c NULL: not in the list */
	struct policy *pol;		/* its policy file as it is now; NULL: built-in or
					 * unreadable */
	bool unreadable;
	bool not_read;			/* by us; what its process does with it is not known */
	struct policy_error err;
	struct policy_decision now;	/* what the file would decide now */
	struct stat_past past;		/* of c; empty if it cannot be read */
	int past_rc;
	char advice[1280];
	bool recorded_differs;		/* the file was changed since */
};

/* ---- which one ---- */

/* What the command line names: a process, one of its connections, or the end of a connection. */
struct name {
	uint64_t pid, fd;
	bool one;			/* a connection */
	const char *end;		/* ADDRESS:PORT, or NULL; then pid and fd follow from it */
	struct addr_pat pat;
};

static bool read_end(const char *word, struct name *ret)
{
	char msg[256];
	size_t at;

	ret->end = word;
	if (!addr_pat_parse(word, strlen(word), &ret->pat, &at, msg, sizeof(msg)))
		return true;
	complain("why: %s: %s", word, msg);
	return false;
}

static bool read_name(const struct request *r, struct name *ret)
{
	const char *word = r->words.argc == 1 ? r->words.argv[0] : "";
	char buf[64], *colon;

	if (!*word || strlen(word) >= sizeof(buf)) {
		complain("why: name a process or a connection: rdmastat why PID, PID:FD or "
			 "ADDRESS:PORT (rdmastat conn lists them)");
		return false;
	}
	strcpy(buf, word);
	colon = strchr(buf, ':');
	if (colon && (strpbrk(buf, ".[*") || strchr(colon + 1, ':')))
		return read_end(word, ret);
	ret->one = colon != NULL;
	if (colon)
		*colon++ = '\0';
	return opt_number(buf, 1, INT_MAX, "why PID", &ret->pid) &&
	       (!colon || opt_number(colon, 0, INT_MAX, "why PID:FD", &ret->fd));
}

/* The connections that have the named end, as their own or else as the other one. Returns how many;
 * *ret is the last. `tell`: each of the first ones is printed. */
static size_t with_end(const struct stat_list *l, const struct addr_pat *pat, bool own, bool tell,
		       struct conn_ref *ret)
{
	char a[64], b[64];
	size_t n = 0, i, k;

	for (i = 0; i < l->n; i++)
		for (k = 0; k < l->proc[i].nconns; k++) {
			const struct stat_conn *c = &l->proc[i].conns[k];

			if (!addr_pat_match(pat, c->family, own ? c->laddr : c->paddr,
					    own ? c->lport : c->pport))
				continue;
			*ret = (struct conn_ref){ &l->proc[i], c };
			if (tell && n < CONNS_SHOWN)
				complain("  %u:%u  %s -> %s, program %s", ret->p->pid, c->fd,
					 end_text(c->family, c->laddr, c->lport, a, sizeof(a)),
					 end_text(c->family, c->paddr, c->pport, b, sizeof(b)),
					 ret->p->program);
			n++;
		}
	return n;
}

/* An end that is named becomes a process and a descriptor. Returns an exit code. */
static int find_end(const struct stat_list *l, struct name *name)
{
	struct conn_ref c = { 0 };
	bool own = true;
	size_t n = with_end(l, &name->pat, own, false, &c);

	if (!n)
		n = with_end(l, &name->pat, own = false, false, &c);
	if (!n) {
		complain("no process under the library has a connection with the end %s; "
			 "rdmastat conn lists them", name->end);
		return EXIT_FAILED;
	}
	if (n > 1) {
		complain("%zu connections have the end %s; name one by PID:FD:", n, name->end);
		with_end(l, &name->pat, own, true, &c);
		if (n > CONNS_SHOWN)
			complain("  and more: rdmastat conn %s %s", own ? "src" : "dst", name->end);
		return EXIT_USAGE;
	}
	name->pid = c.p->pid;
	name->fd = c.c->fd;
	name->one = true;
	return EXIT_OK;
}

static const struct stat_proc *find_process(const struct stat_list *l, uint64_t pid)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->proc[i].pid == pid)
			return &l->proc[i];
	return NULL;
}

/* Its user has too many: it is not in the list of all, or not all of it. Then it is read alone. */
static const struct stat_list *list_with(const struct request *r, uint64_t pid,
					 const struct stat_list *l, struct stat_list *alone)
{
	const struct stat_proc *p = find_process(l, pid);
	struct request one = *r;

	if (p ? !p->more_conns : !l->more_procs)
		return l;
	one.pid = (pid_t)pid;
	if (get_list(&one, true, alone) || !alone->n)
		return l;
	ends_fill(alone);
	return alone;
}

static bool find(const struct stat_list *l, uint64_t pid, uint64_t fd, bool one, struct subject *s)
{
	size_t k;

	s->p = find_process(l, pid);
	if (!s->p) {
		complain("no counters of process %d: %s", (int)pid, no_counters_why((pid_t)pid));
		return false;
	}
	for (k = 0; one && k < s->p->nconns; k++)
		if (s->p->conns[k].fd == fd)
			s->c = &s->p->conns[k];
	if (one && !s->c) {
		complain("process %d has no TCP connection on descriptor %d that the library "
			 "follows; rdmastat conn pid = %d lists what it has",
			 (int)pid, (int)fd, (int)pid);
		return false;
	}
	return true;
}

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
static enum whose read_policy(struct subject *s, int *rc)
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

static void decide(struct subject *s)
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
static bool under_way(const struct subject *s)
{
	size_t n = s->past.n;

	return n &&
	       (s->past.at[n - 1].kind == EVENT_EARNED || s->past.at[n - 1].kind == EVENT_RULE ||
		s->past.at[n - 1].kind == EVENT_SEARCH);
}

/* It has yet to earn its upgrade. */
static bool unearned(const struct stat_conn *c)
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

static void advise(struct subject *s)
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

/* ---- one connection ---- */

static void paths_text(uint32_t paths, char *buf, size_t len)
{
	int i;

	buf[0] = '\0';
	for (i = 0; i < PATH_KINDS; i++)
		if (paths & (1u << i))
			snprintf(buf + strlen(buf), len - strlen(buf), "%s%s", buf[0] ? " " : "",
				 path_name((enum path_kind)i));
}

static void bytes_text(const uint64_t *b, char *buf, size_t len)
{
	char h[16];
	int i;

	buf[0] = '\0';
	for (i = 0; i < PATH_KINDS; i++)
		if (b[i])
			snprintf(buf + strlen(buf), len - strlen(buf), "%s%s by %s",
				 buf[0] ? ", " : "", human(b[i], h, sizeof(h)),
				 path_name((enum path_kind)i));
	if (!buf[0])
		snprintf(buf, len, "nothing yet");
}

static void field(const struct request *r, const char *name, const char *text)
{
	char head[80];

	if (r->width && r->width < 40) {	/* no room beside each other */
		if (*name)
			print_wrapped(stdout, "", 0, name, r->width);
		print_wrapped(stdout, "  ", 2, text, r->width);
		return;
	}
	snprintf(head, sizeof(head), "%-12.64s ", name);
	print_wrapped(stdout, head, 13, text, r->width);
}

static void show_policy(const struct request *r, const struct subject *s)
{
	char buf[1024], place[320], text[256], paths[32];

	if (s->unreadable) {
		snprintf(buf, sizeof(buf), "%s cannot be used: %.200s", s->err.file, s->err.msg);
		field(r, "policy", buf);
		return;
	}
	if (!s->c->rule_at && unearned(s->c) && !under_way(s)) {
		field(r, "decided by",
		      "no rule yet: rules are asked when it has earned its upgrade");
	} else {
		place_text(s->pol, s->p->policy_file, s->c->rule_at, place, sizeof(place));
		snprintf(buf, sizeof(buf), "%s%s%s", place, s->c->rule_at ? ": " : "",
			 place_line(s->pol, s->c->rule_at, text, sizeof(text)));
		field(r, "decided by", buf);
	}
	paths_text(s->now.paths, paths, sizeof(paths));
	place_text(s->pol, s->p->policy_file, s->now.at, place, sizeof(place));
	snprintf(buf, sizeof(buf), "%s, by %s%s", paths, place,
		 s->recorded_differs ? " (the file was changed since this was decided)" : "");
	field(r, "permitted", buf);
}

static void show_history(const struct request *r, const struct subject *s)
{
	const struct stat_past *past = &s->past;
	char buf[600], text[512], time[32];
	size_t i;

	if (s->past_rc || !past->n) {
		snprintf(buf, sizeof(buf), "%s",
			 s->past_rc == -ENOENT ? "the connection has ended"
					       : "nothing is recorded");
		field(r, "history", buf);
		return;
	}
	for (i = 0; i < past->n; i++) {
		if (i == STAT_EVENTS_FIRST && past->left_out) {
			snprintf(buf, sizeof(buf),
				 "(%llu more events; log_level 3 logs all of them from now on)",
				 (unsigned long long)past->left_out);
			field(r, "", buf);
		}
		snprintf(buf, sizeof(buf), "%s %s", past_time(&past->at[i], time, sizeof(time)),
			 past_text(&past->at[i], s->pol, s->p->policy_file, text, sizeof(text)));
		field(r, i ? "" : "history", buf);
	}
}

static void offer_stacks(const struct request *r, const struct stat_proc *p)
{
	char buf[64];

	snprintf(buf, sizeof(buf), "rdmastat stacks %u", p->pid);
	field(r, "if it hangs", buf);
}

static void show_now(const struct request *r, const struct stat_conn *c)
{
	char buf[200], a[16], b[16], ring[64] = "", h[16], share[16];

	if (ring_fill(c) >= 0)
		snprintf(ring, sizeof(ring), " (%s of a ring of %s)",
			 percent(ring_fill(c), share, sizeof(share)), human(c->ring, h, sizeof(h)));
	snprintf(buf, sizeof(buf),
		 "%s sent that the other end has not read%s, %s of its not read here",
		 bytes_known(c->unread, a, sizeof(a)), ring, bytes_known(c->to_read, b, sizeof(b)));
	field(r, "under way", buf);
	if (c->rtt != UINT64_MAX) {
		snprintf(buf, sizeof(buf), "%s, by %s", time_known(c->rtt, a, sizeof(a)),
			 c->link ? "the queue pair" : "the kernel on its TCP connection");
		field(r, "round trip", buf);
	}
}

static void show_so_far(const struct request *r, const struct stat_conn *c)
{
	char buf[300], slow[80] = "", full[80] = "";

	if (c->overflows)
		snprintf(slow, sizeof(slow), ", of these %u since the reader was too slow",
			 c->overflows);
	if (c->fulls)
		snprintf(full, sizeof(full), ", found its ring too full %u time%s", c->fulls,
			 plural(c->fulls));
	snprintf(buf, sizeof(buf), "cut over %u time%s, went back to TCP %u time%s%s%s", c->cuts,
		 plural(c->cuts), c->rewinds, plural(c->rewinds), slow, full);
	field(r, "so far", buf);
}

static void show_connection(const struct request *r, const struct subject *s)
{
	char buf[1024], a[64], b[64];
	const struct stat_conn *c = s->c;

	snprintf(buf, sizeof(buf), "%u:%u  %s -> %s, %s, program %s", s->p->pid, c->fd,
		 end_text(c->family, c->laddr, c->lport, a, sizeof(a)),
		 end_text(c->family, c->paddr, c->pport, b, sizeof(b)), role_name(c->role),
		 s->p->program);
	field(r, "connection", buf);
	if (s->other.c)
		snprintf(buf, sizeof(buf), "%u:%u, program %s, on %s/%s, reason %s",
			 s->other.p->pid, s->other.c->fd, s->other.p->program,
			 path_name(s->other.c->tx_path), path_name(s->other.c->rx_path),
			 reason_name(s->other.c->reason));
	else
		snprintf(buf, sizeof(buf),
			 "in no process that is under the library and that this user may see");
	field(r, "other end", buf);
	snprintf(buf, sizeof(buf), "sends by %s, receives by %s", path_name(c->tx_path),
		 path_name(c->rx_path));
	field(r, "now", buf);
	bytes_text(c->tx_bytes, buf, sizeof(buf));
	field(r, "sent", buf);
	bytes_text(c->rx_bytes, buf, sizeof(buf));
	field(r, "received", buf);
	show_now(r, c);
	show_so_far(r, c);
	show_policy(r, s);
	snprintf(buf, sizeof(buf), "%s: %s", reason_name(c->reason), unearned(c) && under_way(s) ?
		 "not on a fast path yet" : reason_text(c->reason));
	field(r, "reason", buf);
	fputs(tint(r, TINT_GOOD), stdout);
	field(r, "to change it", s->advice);
	fputs(tint(r, TINT_OFF), stdout);
	offer_stacks(r, s->p);
	show_history(r, s);
}

static json_object *connection_json(const struct subject *s)
{
	struct conn_ref me = { s->p, s->c };
	json_object *o = json_connection(&me), *other = NULL, *paths = json_object_new_array();
	char text[256], place[320];
	int i;

	json_add(o, "reason_text", json_str(reason_text(s->c->reason)));
	json_add(o, "remedy", json_str(reason_remedy(s->c->reason)));
	json_add(o, "advice", json_str(s->advice));
	json_add(o, "policy_file", json_str(s->p->policy_file));
	json_add(o, "rule_place",
		 s->c->rule_at ? json_str(place_text(s->pol, s->p->policy_file, s->c->rule_at,
						     place, sizeof(place)))
			       : NULL);
	json_add(o, "rule_text",
		 s->c->rule_at ? json_str(place_line(s->pol, s->c->rule_at, text, sizeof(text)))
			       : NULL);
	for (i = 0; i < PATH_KINDS; i++)
		if (s->now.paths & (1u << i))
			json_object_array_add(paths, json_str(path_name((enum path_kind)i)));
	json_add(o, "permitted_paths", paths);
	json_add(o, "permitted_line", json_num((uint64_t)s->now.line));
	json_add(o, "permitted_place",
		 s->now.at ? json_str(place_text(s->pol, s->p->policy_file, s->now.at, place,
						 sizeof(place)))
			   : NULL);
	if (s->other.c) {
		other = json_object_new_object();
		json_add(other, "pid", json_num(s->other.p->pid));
		json_add(other, "fd", json_num(s->other.c->fd));
		json_add(other, "program", json_str(s->other.p->program));
		json_add(other, "reason", json_str(reason_name(s->other.c->reason)));
	}
	json_add(o, "other_end", other);
	json_add(o, "history", past_json(&s->past, s->pol, s->p->policy_file));
	return o;
}

/* ---- a whole process ---- */

static void show_waits(const struct request *r, const struct stat_proc *p, const struct sums *s)
{
	unsigned long long full = s->counter[STAT_ring_full],
			   larger = s->counter[STAT_rings_enlarged],
			   again = s->counter[STAT_rings_reused];
	char buf[200], share[16], most[16];

	if (waits_polled(s) >= 0) {
		snprintf(buf, sizeof(buf),
			 "%s of them got what they waited for by polling, without a sleep",
			 percent(waits_polled(s), share, sizeof(share)));
		field(r, "waits", buf);
	}
	if (full || larger || again) {
		snprintf(buf, sizeof(buf),
			 "%llu time%s too full for a send, %llu made larger, %llu used again", full,
			 plural(full), larger, again);
		field(r, "rings", buf);
	}
	if (s->rings_held || s->counter[STAT_rings_rested] || s->counter[STAT_rings_refused]) {
		snprintf(buf, sizeof(buf),
			 "%llu rings with %s%s%s; given back unused %llu times, refused %llu",
			 (unsigned long long)s->rings_held,
			 human(s->ring_bytes, share, sizeof(share)),
			 p->ring_budget ? " of at most " : "",
			 p->ring_budget ? human(p->ring_budget, most, sizeof(most)) : "",
			 (unsigned long long)s->counter[STAT_rings_rested],
			 (unsigned long long)s->counter[STAT_rings_refused]);
		field(r, "memory", buf);
	}
}

static void process_head(const struct request *r, const struct subject *s, const struct sums *sums)
{
	char buf[900], h[16], c[16], error[POLICY_ERROR_TEXT];

	snprintf(buf, sizeof(buf), "%u, program %s, user %u", s->p->pid, s->p->program, s->p->uid);
	field(r, "process", buf);
	if (s->not_read)
		snprintf(buf, sizeof(buf), "%s was not read: %.200s", s->err.file, s->err.msg);
	else if (s->unreadable)
		snprintf(buf, sizeof(buf), "cannot be used, everything is TCP: %s",
			 policy_error_text(&s->err, error, sizeof(error)));
	else
		snprintf(buf, sizeof(buf), "%s, mode %s%s",
			 s->p->policy_file[0] ? s->p->policy_file : "built-in",
			 stat_mode_name(s->p->mode),
			 s->pol ? "" : " (no such file: built-in default)");
	field(r, "policy", buf);
	snprintf(buf, sizeof(buf),
		 "%llu so far, %zu live; %s of the connections and %s of the bytes left TCP",
		 (unsigned long long)sums->conns, s->p->nconns + s->p->more_conns,
		 percent(hit_conns(sums), c, sizeof(c)), percent(hit_bytes(sums), h, sizeof(h)));
	field(r, "connections", buf);
	show_waits(r, s->p, sums);
}

/* Why they are on TCP, all together. */
static void show_reasons(const struct request *r, const struct sums *sums)
{
	enum reason top[REASON_COUNT];
	size_t n = top_reasons(sums, top), i;
	char buf[1300];

	if (!n)
		field(r, "on TCP", "nothing");
	for (i = 0; i < n; i++) {
		char h[16], now[40] = "", cause[200];
		uint64_t count = sums->reasons[top[i]], bytes = sums->live_bytes[top[i]];

		if (bytes)
			snprintf(now, sizeof(now), " (%s in open ones)",
				 human(bytes, h, sizeof(h)));
		snprintf(buf, sizeof(buf), "%llu connection%s, %s%s: %s", (unsigned long long)count,
			 plural(count), reason_name(top[i]), now,
			 cause_text(sums, top[i], cause, sizeof(cause)));
		field(r, i ? "" : "on TCP", buf);
		snprintf(buf, sizeof(buf), "-> %s", remedy_text(top[i]));
		field(r, "", buf);
	}
}

static uint64_t by_tcp(const struct stat_conn *c)
{
	return sat_add(c->tx_bytes[PATH_TCP], c->rx_bytes[PATH_TCP]);
}

static int by_tcp_bytes(const void *a, const void *b)
{
	const struct stat_conn *x = *(const struct stat_conn *const *)a,
			       *y = *(const struct stat_conn *const *)b;

	if (by_tcp(x) != by_tcp(y))
		return by_tcp(x) < by_tcp(y) ? 1 : -1;
	return (x > y) - (x < y);
}

/* Those with a reason, most bytes by TCP first; malloc, NULL: out of memory. */
static const struct stat_conn **worst_first(const struct stat_proc *p, size_t *ret_n)
{
	const struct stat_conn **c = malloc((p->nconns + 1) * sizeof(*c));

	*ret_n = 0;
	for (size_t i = 0; c && i < p->nconns; i++)
		if (p->conns[i].reason != REASON_NONE)
			c[(*ret_n)++] = &p->conns[i];
	if (c)
		qsort(c, *ret_n, sizeof(*c), by_tcp_bytes);
	return c;
}

static void show_one_of(const struct request *r, struct subject *s, const struct pairs *ps)
{
	char a[64], b[64], buf[1300];

	s->other.c = NULL;
	pairs_find(ps, s->c, &s->other);
	decide(s);
	advise(s);
	snprintf(buf, sizeof(buf), "%s -> %s: %s",
		 end_text(s->c->family, s->c->laddr, s->c->lport, a, sizeof(a)),
		 end_text(s->c->family, s->c->paddr, s->c->pport, b, sizeof(b)),
		 reason_name(s->c->reason));
	snprintf(a, sizeof(a), "%u:%u", s->p->pid, s->c->fd);
	field(r, a, buf);
	snprintf(buf, sizeof(buf), "-> %s", s->advice);
	field(r, "", buf);
}

static void show_process(const struct request *r, struct subject *s, const struct pairs *ps)
{
	const struct stat_conn **c;
	struct sums sums = { 0 };
	size_t n, i;

	sums_add(&sums, s->p);
	process_head(r, s, &sums);
	show_reasons(r, &sums);
	c = worst_first(s->p, &n);
	for (i = 0; i < n && i < CONNS_SHOWN; i++) {
		s->c = c[i];
		show_one_of(r, s, ps);
	}
	if (n > CONNS_SHOWN)
		printf("and more: rdmastat conn pid = %u\n", s->p->pid);
	free(c);
	offer_stacks(r, s->p);
}

static void process_json(const struct request *r, struct subject *s, const struct pairs *ps)
{
	struct stat_list one = { .proc = (struct stat_proc *)s->p, .n = 1 };
	struct json_rows w = { stdout, r->watch, false, false };
	size_t i;

	json_rows_processes(&w, &one);
	json_rows_begin(&w, "connections");
	for (i = 0; i < s->p->nconns; i++) {
		s->c = &s->p->conns[i];
		s->other.c = NULL;
		pairs_find(ps, s->c, &s->other);
		decide(s);
		advise(s);
		json_rows_add(&w, connection_json(s));
	}
	json_rows_end(&w);
	json_rows_done(&w);
}

static void show_subject(const struct request *r, struct subject *s, bool one,
			 const struct pairs *ps)
{
	if (one) {
		pairs_find(ps, s->c, &s->other);
		decide(s);
		advise(s);
	}
	if (r->json && one) {
		json_object *root = json_root(), *a = json_object_new_array();

		json_object_array_add(a, connection_json(s));
		json_add(root, "connections", a);
		json_print(r, root);
	} else if (r->json) {
		process_json(r, s, ps);
	} else if (one) {
		show_connection(r, s);
	} else {
		show_process(r, s, ps);
	}
}

int show_why(const struct request *r, const struct stat_list *l)
{
	struct subject s = { 0 };
	struct name name = { 0 };
	struct stat_list alone = { 0 };
	struct pairs *ps;
	enum whose who;
	int rc = EXIT_OK;

	if (!read_name(r, &name))
		return EXIT_USAGE;
	if (name.end)
		rc = find_end(l, &name);
	if (rc)
		return rc;
	rc = EXIT_FAILED;
	ps = pairs_make(l);
	if (find(list_with(r, name.pid, l, &alone), name.pid, name.fd, name.one, &s)) {
		who = read_policy(&s, &rc);
		if (who != PARENT) {
			show_subject(r, &s, name.one, ps);
			rc = EXIT_OK;
		}
		if (who == CHILD)
			_exit(finish(rc));
	}
	policy_free(s.pol);
	pairs_free(ps);
	stat_list_clear(&alone);
	return rc;
}
