/*
 * wrap_seccomp.c - seccomp filters, by prctl and by syscall(2). Before one all streams fall back,
 * the library switches off, and its threads end: a filter may forbid them any call, or be for the
 * calling thread alone.
 */
#include "base/usermem.h"
#include "wrap/wrap.h"
#include "link/link.h"
#include "base/loop.h"

#include "gpu/gpu.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>

static void off(bool alone)
{
	int e = errno;

	if (shim_on && !foreign_image()) {
		gpu_veil_end();
		shim_off(REASON_SECCOMP);
		if (alone)
			own_threads_end();
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
static bool before_filter(bool refused, bool *ret_alone)
{
	bool was = shim_on && !foreign_image();

	/* With more threads numbers would be closed and made unseen until the call has failed. */
	*ret_alone = was && !refused && program_alone();
	if (!refused)
		off(*ret_alone);
	return was && refused;
}

/* One that fails for what could not be foreseen has sent what there was to TCP; what comes has the
 * library again. And one that has not failed, by a kernel that takes more than we know, is late. */
static void after_filter(bool refused, bool alone, bool failed)
{
	int e = errno;

	if (alone && failed) {
		shim_on = true;
		ready_park_again();
		own_threads_resume();
	}
	if (refused && !failed)
		off(program_alone());
	errno = e;
}

int filter_by_prctl(const long *va)
{
	bool refused, alone;
	int r;

	refused = prctl_refused((unsigned long)va[0], (const void *)va[1]);
	refused = before_filter(refused, &alone);
	r = REAL(prctl)(PR_SET_SECCOMP, va[0], va[1], va[2], va[3]);
	after_filter(refused, alone, r != 0);
	return r;
}

long raw_seccomp(unsigned int op, unsigned int flags, void *arg)
{
	bool alone, refused;
	long r;

	if (op > SECCOMP_SET_MODE_FILTER)
		return REAL(syscall)(SYS_seccomp, op, flags, arg);
	refused = before_filter(seccomp_refused(op, flags, arg), &alone);
	r = REAL(syscall)(SYS_seccomp, op, flags, arg);
	/* A number above 0 is a descriptor, or the thread that kept TSYNC from it. */
	after_filter(refused, alone,
		     r < 0 || (r > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)));
	return r;
}
