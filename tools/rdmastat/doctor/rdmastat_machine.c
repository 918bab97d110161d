/*
 * rdmastat_machine.c - the doctor's checks of what the shared-memory path needs: library,
 * policy, limits; kernel services are in rdmastat_services.c. Each is tried rather than looked up
 * where that is possible.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/rule.h"
#include "tools/findlib.h"
#include "doctor/rdmastat_doctor.h"
#include "doctor/rdmastat_killed.h"

uint64_t segment_size(const struct policy *p)
{
	const struct policy_tunables *t = policy_tunables(p);

	uint64_t slots = t->link_streams < LINK_FIRST_SLOTS ? t->link_streams : LINK_FIRST_SLOTS;
	uint64_t large = t->ring_max > t->ring_size ? t->ring_max : 0;

	return slots * (2 * (t->ring_size + large) + 4096);
}

/* ---- library, environment, policy ---- */

static void check_library(struct doctor *d)
{
	char preload[PATH_MAX + 16], err[256] = "";
	char *argv[] = { "true", NULL }, *envp[] = { preload, "RDMASHIM_CONF=/dev/null", NULL };
	posix_spawn_file_actions_t fa;
	int p[2], status = -1;
	ssize_t n;
	pid_t pid;

	if (!d->lib[0]) {
		verdict(d, V_FAIL, "library",
			"make install, or name it: rdmastat doctor --lib FILE", "%s",
			library_missing());
		return;
	}
	if (pipe2(p, O_CLOEXEC)) {
		verdict(d, V_FAIL, "library", "raise RLIMIT_NOFILE", "no pipe: %s",
			strerror(errno));
		return;
	}
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", d->lib);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, p[1], 2);
	if (!posix_spawn(&pid, "/bin/true", &fa, NULL, argv, envp))
		waitpid(pid, &status, 0);
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	n = read(p[0], err, sizeof(err) - 1);
	close(p[0]);
	if (status || n > 0)
		verdict(d, V_FAIL, "library", "build it for this system: make",
			"%s does not load: %s", d->lib, n > 0 ? err : "the program failed");
	else
		verdict(d, V_OK, "library", "", "%s loads", d->lib);
}

/* Programs of musl beside those of glibc: the library is none of theirs. */
static void check_musl(struct doctor *d)
{
	glob_t g;

	if (!glob("/lib/ld-musl-*.so.1", 0, NULL, &g)) {
		verdict(d, V_WARN, "musl", "where all programs preload it, by $LIB: "
			"LD_PRELOAD='/usr/local/$LIB/librdmashim.so'",
			"%s: programs of musl are here; a preload of %s by its path ends them",
			g.gl_pathv[0], d->lib[0] ? d->lib : "librdmashim.so");
		globfree(&g);
	}
}

static void check_environment(struct doctor *d)
{
	if (policy_switched_off())
		verdict(d, V_WARN, "environment", "unset RDMASHIM",
			"RDMASHIM=%s switches the library off in every program started from here",
			getenv("RDMASHIM"));
	else if (getuid() != geteuid())
		verdict(d, V_WARN, "environment", "",
			"set-user-id: the library is off in such programs");
	else
		verdict(d, V_OK, "environment", "", "nothing switches it off");
}

static void check_policy(struct doctor *d)
{
	const char *path = policy_path(false);
	struct policy_error err;
	struct policy *p = NULL;
	char mend[MEND], word[WORD], text[POLICY_ERROR_TEXT];
	const char *one;
	int rc = policy_load(path, &p, &err);

	d->policy = policy_builtin();
	if (rc == -ENOENT && !policy_path_given(false)) {
		verdict(d, V_OK, "policy", "",
			"%s: no such file; built-in default: shared memory on, RDMA off", path);
		return;
	}
	if (rc) {
		snprintf(mend, sizeof(mend), "rdmastat policy check %s",
			 shell_word(path, word, sizeof(word)));
		verdict(d, V_FAIL, "policy", mend, "%s; until it is mended everything is TCP",
			policy_error_text(&err, text, sizeof(text)));
		return;
	}
	d->policy = p;			/* kept until the end */
	if (!policy_mode_on(p))
		verdict(d, V_WARN, "policy", "rdmastat policy set mode on",
			"%s says mode off: everything is TCP", path);
	else if (policy_tunables(p)->force_cut_every)
		verdict(d, V_WARN, "policy", "rdmastat policy unset force_cut_every",
			"%s cuts and rewinds for tests (force_cut_every)", path);
	else
		verdict(d, V_OK, "policy", "", "%s is good, mode on, %zu rule%s", path,
			policy_rules(p), plural(policy_rules(p)));
	if (policy_skipped(p, &one))
		verdict(d, V_WARN, "policy owner",
			"include files of a directory in which nobody else may write",
			"%s is left out: it is somebody else's, in a directory where others may "
			"write",
			one);
}

/* ---- other hosts ---- */

static void check_key(struct doctor *d, const char *key)
{
	struct trust t;
	struct stat st;
	char mend[MEND], word[WORD];
	int error = -trust_walk(key, TRUST_KEY, &t);

	if (-error == TRUST_REFUSED) {
		verdict(d, V_FAIL, "key", "", "%s: %s", key, t.why);
		return;
	}
	if (error == EINVAL || error == EISDIR) {
		verdict(d, V_FAIL, "key", "name a regular file",
			"%s is not a regular file, so it is not used", key);
		return;
	}
	if (error || stat(t.path, &st)) {
		error = error ? error : errno;
		if (error == ENOENT)
			snprintf(mend, sizeof(mend),
				 "(umask 077; head -c 32 /dev/urandom > %s), and copy it to every "
				 "host",
				 shell_word(key, word, sizeof(word)));
		else
			snprintf(mend, sizeof(mend),
				 "name a file that the programs' user can read: rdmastat policy "
				 "set key_file FILE");
		verdict(d, V_FAIL, "key", mend, "%s: %s", key, strerror(error));
		return;
	}
	if (st.st_size < 16)
		verdict(d, V_FAIL, "key", "write 16 bytes or more", "%s has %lld bytes", key,
			(long long)st.st_size);
	else if (access(key, R_OK))
		verdict(d, V_FAIL, "key",
			"run the programs as its owner, or give each user a key file", "%s: %s",
			key, strerror(errno));
	else
		verdict(d, V_OK, "key", "", "%s, mode %04o, %lld bytes", key, st.st_mode & 07777,
			(long long)st.st_size);
}

/* Free, or held by a process under the library, which hands connections on to the others? */
static void check_port_holder(struct doctor *d, unsigned port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc = 0;
	char mend[100];

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 1))
		rc = errno;
	if (s >= 0)
		close(s);
	snprintf(mend, sizeof(mend), "ss -tlnp 'sport = :%u' must name a program under the library",
		 port);
	if (!rc)
		verdict(d, V_OK, "discovery port", "",
			"%u is free; the first program with an RDMA rule takes it", port);
	else if (rc == EADDRINUSE)
		verdict(d, V_OK, "discovery port", mend, "%u is held already", port);
	else
		verdict(d, V_FAIL, "discovery port", "set another discovery_port, at every host",
			"%u cannot be taken: %s", port, strerror(rc));
}

/* What the policy says of a link, where it says anything. */
static void check_link_settings(struct doctor *d)
{
	const struct policy_tunables *t = policy_tunables(d->policy);
	char ring[16], mtu[40] = "as large as the network interface takes",
		       timeout[40] = "by the network's own timeout";

	human(t->rdma_ring, ring, sizeof(ring));
	if (t->rdma_mtu)
		snprintf(mtu, sizeof(mtu), "of at most %llu bytes",
			 (unsigned long long)t->rdma_mtu);
	if (t->rdma_ack_timeout)
		snprintf(timeout, sizeof(timeout), "after 4.096 us * 2^%llu",
			 (unsigned long long)t->rdma_ack_timeout);
	verdict(d, V_OK, "rdma links", "",
		"%llu streams with rings of %s; packets %s, sent again %llu times, %s; type of "
		"service %llu; %s",
		(unsigned long long)t->rdma_streams, ring, mtu, (unsigned long long)t->rdma_retries,
		timeout, (unsigned long long)t->rdma_tos,
		policy_has_via(d->policy) ? "from an address in rdma_via"
					  : "from the address of the TCP connection");
}

/* Between hosts a connection is known by the timestamp of its SYN. */
static void check_timestamps(struct doctor *d)
{
	char on[2] = "";
	int fd = open("/proc/sys/net/ipv4/tcp_timestamps", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, on, 1) == 1 && on[0] == '0')
		verdict(d, V_FAIL, "timestamps", "sysctl net.ipv4.tcp_timestamps=1",
			"TCP timestamps are off: connections from here to other hosts stay on TCP");
	if (fd >= 0)
		close(fd);
}

static void check_net(struct doctor *d)
{
	unsigned port = (unsigned)policy_tunables(d->policy)->discovery_port;
	const char *key = policy_key_file(d->policy);

	if (!port) {
		verdict(d, V_NONE, "discovery", "",
			"discovery_port is not set: connections to other hosts stay on TCP");
		return;
	}
	if (key[0])
		check_key(d, key);
	else if (!d->policy->nnets)
		verdict(d, V_FAIL, "key", "set key_file or rdma_networks",
			"discovery_port is %u, but no host is trusted", port);
	else
		verdict(d, V_OK, "key", "", "none; %zu network%s trusted by address",
			d->policy->nnets, d->policy->nnets == 1 ? " is" : "s are");
	check_port_holder(d, port);
	check_timestamps(d);
	check_link_settings(d);
}

/* ---- limits ---- */

static void check_kernel(struct doctor *d)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	sscanf(u.release, "%d.%d", &major, &minor);
	if (strcmp(u.machine, "x86_64") && strcmp(u.machine, "aarch64"))
		verdict(d, V_WARN, "kernel", "", "%s: x86_64 and aarch64 were tested", u.machine);
	else if (major < 5 || (major == 5 && minor < 14))
		verdict(d, V_WARN, "kernel", "", "Linux %s; 5.14 or later was tested", u.release);
	else
		verdict(d, V_OK, "kernel", "", "Linux %s, %s", u.release, u.machine);
}

static void check_cpus(struct doctor *d)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
							: CPU_COUNT(&set);

	if (n < 2)
		verdict(d, V_WARN, "cpus", "allow this process a second CPU (taskset, cpuset)",
			"one CPU: the two ends cannot run at a time, so little is gained");
	else
		verdict(d, V_OK, "cpus", "", "%d CPUs may be used", n);
}

static void limit_text(rlim_t v, char *buf, size_t len)
{
	if (v == RLIM_INFINITY)
		snprintf(buf, len, "unlimited");
	else
		human(v, buf, len);
}

static void check_nofile(struct doctor *d)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur < 256)
		verdict(d, V_WARN, "descriptors", "ulimit -n 4096",
			"RLIMIT_NOFILE is %llu; the library may use an eighth of it",
			(unsigned long long)l.rlim_cur);
	else
		verdict(d, V_OK, "descriptors", "",
			"RLIMIT_NOFILE is %llu; the library may use an eighth of it",
			(unsigned long long)l.rlim_cur);
}

static void check_memory(struct doctor *d)
{
	uint64_t need = segment_size(d->policy);
	char h[16], limit[16];
	struct rlimit l;
	void *m = MAP_FAILED;
	bool kills = call_forbidden(SYS_memfd_create), sealed;
	int fd = kills ? -1 : memfd_create("rdmashim-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int e = errno;

	human(need, h, sizeof(h));
	getrlimit(RLIMIT_AS, &l);
	limit_text(l.rlim_cur, limit, sizeof(limit));
	if (fd < 0) {
		verdict(d, V_FAIL, "shared memory",
			"allow memfd_create in the seccomp filter or sandbox", "memfd_create: %s",
			kills ? "a filter ends processes for it" : strerror(e));
		return;
	}
	sealed = !ftruncate(fd, (off_t)need) &&
		 !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (sealed)
		m = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		verdict(d, V_FAIL, "shared memory",
			"ulimit -v unlimited, or rdmastat policy set link_streams 64",
			"the first link to a process takes %s of address space: %s (RLIMIT_AS %s)",
			h, strerror(errno), limit);
	else
		verdict(d, V_OK, "shared memory", "",
			"the %s of address space of the first link to a process can be made, "
			"sealed and mapped (RLIMIT_AS %s)",
			h, limit);
	if (m != MAP_FAILED)
		munmap(m, need);
	close(fd);
}

/* Of 64 streams: a ring for each direction, and what the link itself takes. */
static void check_memlock(struct doctor *d)
{
	const struct policy_tunables *t = policy_tunables(d->policy);
	uint64_t need = 2 * t->rdma_ring * 64 + (1 << 20);
	char h[16], limit[16];
	struct rlimit l;

	getrlimit(RLIMIT_MEMLOCK, &l);
	limit_text(l.rlim_cur, limit, sizeof(limit));
	human(need, h, sizeof(h));
	if (!d->has_rdma && !t->discovery_port)
		verdict(d, V_NONE, "memlock", "", "RLIMIT_MEMLOCK is %s; only RDMA needs it",
			limit);
	else if (l.rlim_cur != RLIM_INFINITY && l.rlim_cur < need)
		verdict(d, d->has_rdma ? V_FAIL : V_WARN, "memlock",
			"ulimit -l unlimited (in services: LimitMEMLOCK=infinity)",
			"RLIMIT_MEMLOCK is %s; 64 streams by RDMA take %s", limit, h);
	else
		verdict(d, V_OK, "memlock", "", "RLIMIT_MEMLOCK is %s; 64 streams by RDMA take %s",
			limit, h);
}

static void *no_work(void *arg)
{
	return arg;
}

static void check_thread(struct doctor *d)
{
	pthread_t t;
	int rc = pthread_create(&t, NULL, no_work, NULL);

	if (rc) {
		verdict(d, V_FAIL, "thread", "ulimit -u 4096", "no thread can be started: %s",
			strerror(rc));
		return;
	}
	pthread_join(t, NULL);
	verdict(d, V_OK, "thread", "", "a background thread can be started");
}

/* Somebody else has made the name in /dev/shm first. True: there is another place. */
static bool counters_elsewhere(struct doctor *d, const char *taken, uid_t by)
{
	char dir[PATH_MAX], mend[MEND], word[WORD];
	int fd = stat_dir_open(geteuid(), true, dir, sizeof(dir));

	if (fd < 0)
		return false;
	close(fd);
	snprintf(mend, sizeof(mend), "as root: rm -rf %s", shell_word(taken, word, sizeof(word)));
	verdict(d, V_WARN, "counters", mend,
		"%s was made by user %u; counters go to %s, where rdmastat finds them", taken, by,
		dir);
	return true;
}

#define COUNTER_FILE 65536	/* what one takes, at least */

/* By making one. 0 or -errno. */
static int try_counters(void)
{
	char dir[PATH_MAX], name[32];
	int at = stat_dir_open(geteuid(), true, dir, sizeof(dir)), fd, rc;

	if (at == -ENOENT && mkdir(dir, 0700))	/* it could not be made: why? */
		return -errno;
	if (at < 0)
		return at;
	snprintf(name, sizeof(name), "doctor.%d", getpid());
	fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : -posix_fallocate(fd, 0, COUNTER_FILE);
	if (fd >= 0) {
		close(fd);
		unlinkat(at, name, 0);
	}
	close(at);
	return rc;
}

/* True: said. */
static bool counters_cannot_be(struct doctor *d, const char *dir)
{
	int rc = try_counters();

	if (!rc)
		return false;
	if (rc == -ENOSPC || rc == -EDQUOT)
		verdict(d, V_FAIL, "counters",
			"mount -o remount,size=256M /dev/shm (docker run --shm-size=256m)",
			"%s is full: rdmastat does not see programs that start now", dir);
	else
		verdict(d, V_FAIL, "counters",
			"mount a tmpfs on /dev/shm, or name a directory that can be written: "
			"RDMASHIM_STAT_DIR",
			"no counter file can be made in %s: %s; rdmastat does not see any program",
			dir, strerror(-rc));
	return true;
}

static void check_counters(struct doctor *d)
{
	char dir[PATH_MAX], h[16], mend[MEND] = "", word[WORD];
	struct statvfs v;
	struct stat st;

	stat_dir(geteuid(), dir, sizeof(dir));
	if (!lstat(dir, &st)) {
		if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077)) {
			if (st.st_uid != geteuid() && counters_elsewhere(d, dir, st.st_uid))
				return;
			if (S_ISDIR(st.st_mode) && st.st_uid == geteuid())
				snprintf(mend, sizeof(mend), "chmod 700 %s",
					 shell_word(dir, word, sizeof(word)));
			else if (getenv("RDMASHIM_STAT_DIR"))
				snprintf(mend, sizeof(mend),
					 "name a directory of your own: RDMASHIM_STAT_DIR");
			else
				snprintf(mend, sizeof(mend), "mv %s %s.old; it is made anew",
					 shell_word(dir, word, sizeof(word)), word);
			verdict(d, V_FAIL, "counters", mend,
				"%s is not a directory of mode 0700 that belongs to user %u: "
				"rdmastat sees nothing",
				dir, geteuid());
			return;
		}
	} else if (errno != ENOENT) {
		verdict(d, V_FAIL, "counters", "name another: RDMASHIM_STAT_DIR", "%s: %s", dir,
			strerror(errno));
		return;
	} else {
		*strrchr(dir, '/') = '\0';
	}
	if (counters_cannot_be(d, dir[0] ? dir : "/"))
		return;
	if (!statvfs(dir[0] ? dir : "/", &v)) {
		human((uint64_t)v.f_bavail * v.f_frsize, h, sizeof(h));
		if ((uint64_t)v.f_bavail * v.f_frsize < 16u << 20) {
			verdict(d, V_WARN, "counters",
				"mount -o remount,size=256M /dev/shm (docker run --shm-size=256m)",
				"%s has only %s left", dir, h);
			return;
		}
		verdict(d, V_OK, "counters", "", "%s has %s left", dir, h);
	}
}

void check_machine(struct doctor *d)
{
	char **rdma = names_in(d, "/sys/class/infiniband"), gpu[256];

	d->has_rdma = rdma && rdma[0];
	names_free(rdma);
	d->has_gpu = fact(d, gpu, sizeof(gpu), "/proc/driver/nvidia/version");
	check_library(d);
	check_musl(d);
	check_environment(d);
	check_policy(d);
	check_net(d);
	check_kernel(d);
	check_cpus(d);
	check_memory(d);
	check_memlock(d);
	check_nofile(d);
	check_thread(d);
	check_counters(d);
	check_services(d);
}
