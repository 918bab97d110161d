/*
 * confined.c - a process that gives rights up, or moves to other namespaces. Calls: prctl syscall
 *        unshare setns capset
 */
#include <linux/seccomp.h>
#include <linux/filter.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "snip_fork.h"

static char t[256];

SNIPPET(seccomp_filter, "prctl")
{
	struct sock_filter f[] = {
		{ BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr) },
		{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_eventfd2 },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
	};
	struct sock_fprog g = { 4, f };

	pair();
	put(a, b, "before");
	SAY("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	SAY("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &g));
	SAY("recv", recv(b, t, 10, 0));
	alive("old ones", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

SNIPPET(setuid_after, "setuid setgid")
{
	pair();
	alive("as root", a, b);
	SAY("setgid", setgid(65534));
	SAY("setuid", setuid(65534));
	alive("as nobody", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

SNIPPET(chroot_after, "chroot")
{
	pair();
	SAY("chroot", chroot("/proc"));
	alive("old ones", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

extern int capset(void *head, const void *data);

/* What only the calling thread gives up. */
SNIPPET(rights_after, "capset prctl syscall")
{
	struct { uint32_t version, pid; } head = { 0x20080522, 0 };
	struct { uint32_t effective, permitted, inheritable; } data[2];

	pair();
	alive("before", a, b);
	SAY("what there is", (int)syscall(SYS_capget, &head, data));
	SAY("the same", capset(&head, data));
	data[0].effective = data[0].permitted &= ~(1u << 25);
	SAY("without a clock", capset(&head, data));
	SAY("by syscall", (int)syscall(SYS_capset, &head, data));
	alive("with fewer", a, b);
	SAY("no head", capset(NULL, data));
	SAY("no data", capset(&head, (void *)8));
	head.version = 7;
	SAY("another version", capset(&head, data));
	SAY("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	SAY("without", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	SAY("no such capability", prctl(PR_CAPBSET_DROP, 77, 0, 0, 0));
	SAY("bits", prctl(PR_SET_SECUREBITS, 1 << 30, 0, 0, 0));
	SAY("no rules", (int)syscall(446 /* landlock_restrict_self */, -1, 0));
	alive("after", a, b);
}

/* The kernel refuses a user namespace to a process with several threads, and a mount namespace
 * to one that shares its directory. */
SNIPPET(unshare_after, "unshare setns")
{
	int mnt = open("/proc/self/ns/mnt", O_RDONLY), net = open("/proc/self/ns/net", O_RDONLY);

	pair();
	alive("before", a, b);
	SAY("files", unshare(CLONE_FILES));
	alive("with descriptors of its own", a, b);
	SAY("nothing", unshare(0));
	SAY("unknown", unshare(1));
	SAY("mount", unshare(CLONE_NEWNS));
	SAY("back", setns(mnt, CLONE_NEWNS));
	SAY("back, any type", setns(mnt, 0));
	SAY("back, wrong type", setns(mnt, CLONE_NEWUSER));
	SAY("net", unshare(CLONE_NEWNET));
	alive("in another network", a, b);
	SAY("back", setns(net, 0));
	SAY("bad", setns(-1, 0));
	SAY("user", unshare(CLONE_NEWUSER));
	alive("as nobody known", a, b);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}

static void *nothing(void *arg) { return arg; }

/* From then on no thread can be made: the kernel's threads are all of one PID namespace. */
SNIPPET(unshare_pid, "unshare fork")
{
	pthread_t th;
	pid_t p;

	pair();
	alive("before", a, b);
	SAY("user and pid", unshare(CLONE_NEWUSER | CLONE_NEWPID));
	alive("old ones", a, b);
	tell("a thread: %s", strerrorname_np(pthread_create(&th, NULL, nothing, NULL)));
	p = fork();
	if (!p)
		_exit(getpid() == 1);
	alive("old ones", a, b);
	say_end("the first there", p);
	{
		struct sockaddr_in at;
		int l = listener_at(&at), x = connect_to(&at), y = accept(l, NULL, NULL);

		alive("new ones", x, y);
	}
}
