/*
 * rdmastat_services.c - the doctor's checks of what the kernel does for the shared-memory path:
 * unix sockets, who owns a connection, direct copies. Each is tried.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor/rdmastat_doctor.h"

#ifndef SYS_open_tree
#define SYS_open_tree 428	/* one number on all machines since Linux 5.2 */
#endif

static void check_unix(struct doctor *d)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				    (size_t)snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1,
						     "rdmashim-doctor.%d", getpid()));

	if (s < 0 || c < 0 || bind(s, (struct sockaddr *)&a, len) || listen(s, 1) ||
	    connect(c, (struct sockaddr *)&a, len))
		verdict(d, V_FAIL, "discovery socket",
			"allow abstract unix sockets (systemd: RestrictAddressFamilies, AppArmor: "
			"unix)",
			"abstract unix socket: %s", strerror(errno));
	else
		verdict(d, V_OK, "discovery socket", "", "abstract unix sockets work");
	if (s >= 0)
		close(s);
	if (c >= 0)
		close(c);
}

/* A socket is opened there, and found, as the library does it. 0 or -errno. */
static int try_directory(const char *dir)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int d = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
	    s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char name[64];
	int rc = 0;

	snprintf(name, sizeof(name), "doctor.%d", getpid());
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", d, name);
	if (d < 0 || s < 0 || c < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)))
		rc = -errno;
	else if (listen(s, 1) || connect(c, (struct sockaddr *)&a, sizeof(a)))
		rc = -errno;
	if (!rc)
		unlinkat(d, name, 0);
	for (int i = 0; i < 3; i++)
		if ((int[]){ d, s, c }[i] >= 0)
			close((int[]){ d, s, c }[i]);
	return rc;
}

static void check_directory(struct doctor *d, const char *dir)
{
	int rc;
	char mend[MEND], word[WORD];
	struct stat st;

	snprintf(mend, sizeof(mend),
		 "mkdir -m 700 %s, as the user of the programs; the same directory at both ends",
		 shell_word(dir, word, sizeof(word)));
	rc = stat(dir, &st) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
	if (rc)
		verdict(d, V_FAIL, "discovery socket", mend, "discovery_dir %s: %s", dir,
			strerror(rc));
	else if ((st.st_uid && st.st_uid != geteuid()) || (st.st_mode & 022))
		verdict(d, V_FAIL, "discovery socket", mend,
			"discovery_dir %s belongs to user %u and has mode %04o: others may write "
			"there, so it is not used",
			dir, st.st_uid, st.st_mode & 07777);
	else if ((rc = try_directory(dir)))
		verdict(d, V_FAIL, "discovery socket", mend,
			"no unix socket can be opened in discovery_dir %s: %s", dir, strerror(-rc));
	else
		verdict(d, V_OK, "discovery socket", "",
			"unix sockets in %s work; only programs with the same discovery_dir meet",
			dir);
}

/* What the meeting between network namespaces takes. */
static void check_across(struct doctor *d, const char *dir)
{
	char mend[MEND], word[WORD], on[4] = "1";
	struct stat st;
	FILE *f;

	snprintf(mend, sizeof(mend),
		 "mkdir -m 1770 %s, for the group that may read the key, and the same volume in "
		 "each container",
		 shell_word(dir, word, sizeof(word)));
	f = fopen("/proc/sys/net/core/tstamp_allow_data", "re");
	if (f && !fgets(on, sizeof(on), f))
		on[0] = '1';
	if (f)
		fclose(f);
	if (stat(dir, &st))
		verdict(d, V_FAIL, "namespaces", mend, "cross_ns_dir %s: %s", dir, strerror(errno));
	else if (!S_ISDIR(st.st_mode) || st.st_mode & 06 ||
		 (st.st_mode & 020 && !(st.st_mode & S_ISVTX)))
		verdict(d, V_FAIL, "namespaces", mend,
			"cross_ns_dir %s has mode %04o: others could stop programs there, or take "
			"names away, so it is not used", dir, st.st_mode & 07777);
	else if (!policy_key_file(d->policy)[0])
		verdict(d, V_FAIL, "namespaces", "name a key_file that all of them have",
			"cross_ns_dir does nothing without a key_file");
	else if (on[0] == '0')
		verdict(d, V_FAIL, "namespaces", "sysctl net.core.tstamp_allow_data=1",
			"the kernel gives no headers to learn ISNs from (tstamp_allow_data 0)");
	else
		verdict(d, V_OK, "namespaces", "",
			"programs in other network namespaces of this host are met in %s", dir);
}

static int ask_diag(int fd)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q = {
		.h = { sizeof(q), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 },
		.r = { .sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP,
		       .idiag_states = 1u << 10 /* LISTEN */ },
	};
	struct timeval tv = { 2, 0 };
	char buf[8192];
	struct nlmsghdr *h = (struct nlmsghdr *)buf;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	if (send(fd, &q, sizeof(q), 0) < 0)
		return -errno;
	n = recv(fd, buf, sizeof(buf), 0);
	if (n < (ssize_t)sizeof(*h))
		return n < 0 ? -errno : -EBADMSG;
	return h->nlmsg_type == NLMSG_ERROR ? -EPERM : 0;
}

/* What is passed to the other end as a proof can be made of a socket (shim/base/proof.c). 0 or
 * -errno. */
static int try_proof(int sock)
{
	char path[64];
	int fd = -1;

	if (!prctl(PR_GET_SECCOMP, 0, 0, 0, 0))
		fd = (int)syscall(SYS_open_tree, sock, "", AT_EMPTY_PATH | O_CLOEXEC);
	if (fd < 0) {
		snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", sock);
		fd = open(path, O_PATH | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void check_diag(struct doctor *d)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG),
	    rc = fd < 0 ? -errno : ask_diag(fd);
	int proof = fd < 0 ? 0 : try_proof(fd);

	if (fd >= 0)
		close(fd);
	if (proof)
		verdict(d, V_FAIL, "identity", "mount /proc there",
			"no program can prove that it has a connection (/proc/thread-self/fd): %s",
			strerror(-proof));
	else if (rc)
		verdict(d, V_FAIL, "identity",
			"allow AF_NETLINK sockets (systemd: RestrictAddressFamilies), modprobe "
			"tcp_diag",
			"the kernel does not tell who owns a connection (sock_diag): %s",
			strerror(-rc));
	else
		verdict(d, V_OK, "identity", "",
			"the kernel tells who owns a connection (sock_diag)");
}

/* One child reads another's memory, as two programs would that are not parent and child. */
static int try_vm_read(void)
{
	static char secret[16] = "before";
	char got[16] = "";
	struct iovec l = { got, sizeof(got) }, r = { secret, sizeof(secret) };
	int status = 0, go[2];
	pid_t victim, reader;

	if (pipe2(go, O_CLOEXEC))
		return -errno;
	victim = fork();
	if (!victim) {
		char c;

		close(go[1]);
		_exit(read(go[0], &c, 1) < 0);	/* until the parent is done */
	}
	close(go[0]);
	reader = victim < 0 ? -1 : fork();
	if (!reader)
		_exit(process_vm_readv(victim, &l, 1, &r, 1, 0) == sizeof(got) ? 0 : errno & 0xff);
	if (reader > 0)
		waitpid(reader, &status, 0);
	close(go[1]);
	if (victim > 0)
		waitpid(victim, NULL, 0);
	return victim < 0 || reader < 0 ? -EAGAIN
	       : WIFEXITED(status)	? -WEXITSTATUS(status)
					: -EINTR;
}

static void check_vm_read(struct doctor *d)
{
	char scope[16];
	bool known = fact(d, scope, sizeof(scope), "/proc/sys/kernel/yama/ptrace_scope");
	int rc = try_vm_read();

	if (!rc)
		verdict(d, V_OK, "direct copies", "",
			"process_vm_readv between processes of this user works%s%s",
			known ? "; ptrace_scope " : "", known ? scope : "");
	else
		verdict(d, V_WARN, "direct copies",
			"sysctl kernel.yama.ptrace_scope=0; containers: --cap-add SYS_PTRACE or a "
			"seccomp filter that allows process_vm_readv",
			"process_vm_readv: %s%s%s; large blocks take a second copy, nothing else "
			"changes",
			strerror(-rc), known ? "; ptrace_scope " : "", known ? scope : "");
}

static void check_seccomp(struct doctor *d)
{
	char path[PATH_MAX], line[256];
	int mode = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/status", d->root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "Seccomp: %d", &mode);
	if (f)
		fclose(f);
	if (mode == 2)
		verdict(d, V_WARN, "seccomp", "",
			"a filter is active here (a container?); a program that installs one "
			"itself stays on TCP");
	else
		verdict(d, V_OK, "seccomp", "", "no filter");
}

static void check_pid_namespace(struct doctor *d)
{
	char line[256], path[PATH_MAX];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/status", d->root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "NSpid:", 6))
			for (char *s = line + 6, *end; strtol(s, &end, 10) || end != s; s = end)
				n++;
	if (f)
		fclose(f);
	if (n > 1)
		verdict(d, V_NONE, "pid namespace", "",
			"one of its own: processes outside are not seen here%s",
			d->has_gpu ? ", and CUDA IPC needs one pid namespace for both ends" : "");
}

void check_services(struct doctor *d)
{
	if (policy_discovery_dir(d->policy)[0])
		check_directory(d, policy_discovery_dir(d->policy));
	else
		check_unix(d);
	if (policy_cross_ns_dir(d->policy)[0])
		check_across(d, policy_cross_ns_dir(d->policy));
	check_diag(d);
	check_vm_read(d);
	check_seccomp(d);
	check_pid_namespace(d);
}
