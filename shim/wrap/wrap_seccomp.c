/*
 * wrap_seccomp.c - wrappers of prctl, capset, unshare, setns, and of seccomp and
 * landlock_restrict_self by syscall(2): calls after which the process may do less than it could.
 * Before a filter all streams fall back, and the library switches off; for the others our thread is
 * away.
 */
#include "base/usermem.h"
#include "wrap/wrap.h"
#include "link/link.h"
#include "base/loop.h"

#include "gpu/cuda.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/nsfs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static void before_seccomp(void)
{
	int e = errno;

	if (shim_on && !foreign_image()) {
		cuda_veil_end();
		shim_before_seccomp();
	}
	errno = e;
}

/* ---- calls that cannot succeed: libseccomp and QEMU ask the kernel by them what it can ---- */

/* As seccomp_check_filter() in kernel/seccomp.c and bpf_check_classic() in net/core/filter.c look
 * at one of n instructions. */
static bool instruction_ok(const struct sock_filter *f, unsigned i, unsigned n)
{
	unsigned left = n - i - 1;

	switch (f->code) {
	case BPF_LD | BPF_W | BPF_ABS:
		return f->k < sizeof(struct seccomp_data) && !(f->k & 3);
	case BPF_LD | BPF_MEM: case BPF_LDX | BPF_MEM: case BPF_ST: case BPF_STX:
		return f->k < BPF_MEMWORDS;
	case BPF_ALU | BPF_DIV | BPF_K:
		return f->k;
	case BPF_ALU | BPF_LSH | BPF_K: case BPF_ALU | BPF_RSH | BPF_K:
		return f->k < 32;
	case BPF_JMP | BPF_JA:
		return f->k < left;
	case BPF_JMP | BPF_JEQ | BPF_K: case BPF_JMP | BPF_JEQ | BPF_X:
	case BPF_JMP | BPF_JGE | BPF_K: case BPF_JMP | BPF_JGE | BPF_X:
	case BPF_JMP | BPF_JGT | BPF_K: case BPF_JMP | BPF_JGT | BPF_X:
	case BPF_JMP | BPF_JSET | BPF_K: case BPF_JMP | BPF_JSET | BPF_X:
		return f->jt < left && f->jf < left;
	case BPF_LD | BPF_W | BPF_LEN: case BPF_LDX | BPF_W | BPF_LEN:
	case BPF_LD | BPF_IMM: case BPF_LDX | BPF_IMM:
	case BPF_RET | BPF_K: case BPF_RET | BPF_A:
	case BPF_MISC | BPF_TAX: case BPF_MISC | BPF_TXA:
	case BPF_ALU | BPF_NEG: case BPF_ALU | BPF_ADD | BPF_K:
	case BPF_ALU | BPF_ADD | BPF_X: case BPF_ALU | BPF_SUB | BPF_K:
	case BPF_ALU | BPF_SUB | BPF_X: case BPF_ALU | BPF_MUL | BPF_K:
	case BPF_ALU | BPF_MUL | BPF_X: case BPF_ALU | BPF_DIV | BPF_X:
	case BPF_ALU | BPF_AND | BPF_K: case BPF_ALU | BPF_AND | BPF_X:
	case BPF_ALU | BPF_OR | BPF_K: case BPF_ALU | BPF_OR | BPF_X:
	case BPF_ALU | BPF_XOR | BPF_K: case BPF_ALU | BPF_XOR | BPF_X:
	case BPF_ALU | BPF_LSH | BPF_X: case BPF_ALU | BPF_RSH | BPF_X:
		return true;
	default:
		return false;
	}
}

static bool program_refused(const void *at)
{
	struct sock_fprog p;

	if (usermem_bad(at, sizeof(p), false))
		return true;
	memcpy(&p, at, sizeof(p));
	if (!p.len || p.len > BPF_MAXINSNS ||
	    usermem_bad(p.filter, p.len * sizeof(*p.filter), false))
		return true;
	for (unsigned i = 0; i < p.len; i++)
		if (!instruction_ok(&p.filter[i], i, p.len))
			return true;
	return BPF_CLASS(p.filter[p.len - 1].code) != BPF_RET;
}

/* A program of one instruction that cannot be read: flags and rights are looked at before it. */
static const struct sock_fprog unreadable = { .len = 1, .filter = NULL };

static bool seccomp_refused(unsigned int op, unsigned int flags, const void *arg)
{
	if (op == SECCOMP_SET_MODE_STRICT)
		return flags || arg || sys(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) > 0;
	return op != SECCOMP_SET_MODE_FILTER || program_refused(arg) ||
	       sys(SYS_seccomp, op, flags, &unreadable) != -EFAULT;
}

/* Its modes are other numbers, and it has no flags. */
static bool prctl_refused(unsigned long mode, const void *arg)
{
	if (mode == SECCOMP_MODE_STRICT)
		return sys(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) > 0;
	return mode != SECCOMP_MODE_FILTER || program_refused(arg) ||
	       sys(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &unreadable, 0, 0) != -EFAULT;
}

/* Off before the call. False: that will be refused. */
static bool before_filter(bool refused, bool *ret_again)
{
	bool was = shim_on && !foreign_image();

	/* With more threads numbers would be closed and made unseen until the call has failed. */
	*ret_again = was && !refused && loop_only_other_thread();
	if (!refused)
		before_seccomp();
	return was && refused;
}

/* One that fails for what could not be foreseen has sent what there was to TCP; what comes has the
 * library again. And one that has not failed, by a kernel that takes more than we know, is late. */
static void after_filter(bool refused, bool again, bool failed)
{
	int e = errno;

	if (again && failed) {
		shim_on = true;
		ready_park_again();
	}
	if (refused && !failed)
		before_seccomp();
	errno = e;
}

static int filter_by_prctl(const long *va)
{
	bool refused, again;
	int r;

	refused = prctl_refused((unsigned long)va[0], (const void *)va[1]);
	refused = before_filter(refused, &again);
	r = REAL(prctl)(PR_SET_SECCOMP, va[0], va[1], va[2], va[3]);
	after_filter(refused, again, r != 0);
	return r;
}

/* ---- our thread is away ---- */

/* The kernel refuses some calls to a process with several threads. What others take away they take
 * from the calling thread alone, and from those that it makes: ours would keep it, and so would
 * whoever takes the program over. So it ends before, and who has less makes it anew. */
struct away {
	bool thread, streams;
};

static struct away leave(bool streams)
{
	int e = errno;
	struct away a = { .thread = shim_on && !foreign_image() && loop_only_other_thread() };

	if (a.thread) {
		a.streams = streams;
		if (a.streams)
			streams_fallback_while(NULL, REASON_SECCOMP);
		critical_enter();
		loop_pause();
	}
	errno = e;
	return a;
}

static void come_back(struct away a, bool done)
{
	int e = errno;

	if (a.streams && done)
		before_seccomp();
	if (a.thread) {
		if (shim_on)
			loop_resume();
		critical_leave();
	}
	if (a.streams)
		streams_fallback_over();
	errno = e;
}

static bool takes_away(int option)
{
	return option == PR_SET_NO_NEW_PRIVS || option == PR_CAPBSET_DROP ||
	       option == PR_SET_SECUREBITS;
}

bool prctl_is_seen(int option) { return option == PR_SET_SECCOMP || takes_away(option); }

static int prctl_of_all(int option, const long *va)
{
	struct away a = { false, false };
	int r;

	if (takes_away(option))
		a = leave(false);
	r = REAL(prctl)(option, va[0], va[1], va[2], va[3]);
	come_back(a, !r);
	return r;
}

/* Some programs put on and off what they are permitted all the time: what is given up counts. */
static bool gives_up(const void *head, const void *data)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct now[2];
	const struct __user_cap_data_struct *then = data;
	uint32_t version;

	if (usermem_bad(head, sizeof(h), false))
		return false;
	memcpy(&version, head, sizeof(version));
	if (version == _LINUX_CAPABILITY_VERSION_1 || usermem_bad(then, sizeof(now), false) ||
	    sys(SYS_capget, &h, now) < 0)
		return true;
	return now[0].permitted & ~then[0].permitted || now[1].permitted & ~then[1].permitted;
}

int wrap_capset(void *head, const void *data)
{
	struct away a = { false, false };
	int r;

	if (shim_on && gives_up(head, data))
		a = leave(false);
	r = REAL(capset)(head, data);
	come_back(a, !r);
	return r;
}

long raw_landlock(int ruleset, unsigned flags)
{
	struct away a = leave(false);
	long r = REAL(syscall)(SYS_landlock_restrict_self, ruleset, flags);

	come_back(a, !r);
	return r;
}

int wrap_prctl(int option, ...)
{
	va_list ap;
	long va[4];

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		va[i] = va_arg(ap, long);
	va_end(ap);
	if (!shim_on)
		return REAL(prctl)(option, va[0], va[1], va[2], va[3]);
	if (option == PR_SET_SECCOMP)
		return filter_by_prctl(va);
	return prctl_of_all(option, va);
}

long raw_seccomp(unsigned int op, unsigned int flags, void *arg)
{
	bool again, refused;
	long r;

	if (op > SECCOMP_SET_MODE_FILTER)
		return REAL(syscall)(SYS_seccomp, op, flags, arg);
	refused = before_filter(seccomp_refused(op, flags, arg), &again);
	r = REAL(syscall)(SYS_seccomp, op, flags, arg);
	/* A number above 0 is a descriptor, or the thread that kept TSYNC from it. */
	after_filter(refused, again,
		     r < 0 || (r > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)));
	return r;
}

/* ---- namespaces ---- */

#ifndef CLONE_NEWTIME	/* glibc before 2.36 */
#define CLONE_NEWTIME 0x80
#endif

/* Afterwards no thread can be made in a process whose children will be in another PID or time
 * namespace: then the library switches off. Until it is known, the streams are on TCP. */
#define NO_MORE_THREADS (CLONE_NEWPID | CLONE_NEWTIME)
/* With a root directory of its own the calling thread alone goes to another. */
#define THREAD_ALONE (CLONE_NEWNS | CLONE_FS)

int wrap_unshare(int flags)
{
	struct away a = { false, false };
	int r;

	if (flags & (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_FILES |
		     THREAD_ALONE))
		a = leave(flags & NO_MORE_THREADS);
	r = REAL(unshare)(flags);
	come_back(a, !r);
	return r;
}

int wrap_setns(int fd, int type)
{
	/* of a pidfd: no answer, and the type says which */
	long is = sys(SYS_ioctl, fd, NS_GET_NSTYPE);
	int flags = is > 0 ? (int)is : type, r;
	struct away a = { false, false };

	if (is != -EBADF && flags & (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME))
		a = leave(flags & CLONE_NEWPID);
	r = REAL(setns)(fd, type);
	come_back(a, !r);
	return r;
}
