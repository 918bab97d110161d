/* x86_64_golang.h - Go's system calls on x86-64; see golang.h. */
#ifndef RDMASHIM_X86_64_GOLANG_H
#define RDMASHIM_X86_64_GOLANG_H

#define ARCH_GOLANG 1
#define ARCH_GO_STUB 64
#define ARCH_GO_NEAR 0x70000000ul	/* a jump has 32 bits, with a sign */

/* ---- how they look, and what takes their place ---- */

#define GO_SYSCALL_ 0x0f, 0x05					/* syscall */
#define GO_COMPARE_ 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff		/* cmp $-4095,%rax */
#define GO_PUSH_    0x41, 0x54					/* push %r12 */

/* The pattern of a form, without the number before it. */
static inline size_t arch_go_pattern(enum arch_go_form form, const uint8_t **ret)
{
	static const uint8_t any[] = { GO_SYSCALL_, GO_COMPARE_ };
	static const uint8_t vfork[] = { GO_SYSCALL_, GO_PUSH_, GO_COMPARE_ };
	static const uint8_t fixed[] = { GO_SYSCALL_ };

	*ret = form == ARCH_GO_ANY ? any : form == ARCH_GO_VFORK ? vfork : fixed;
	return form == ARCH_GO_ANY ? sizeof any : form == ARCH_GO_VFORK ? sizeof vfork
									: sizeof fixed;
}

/* Bytes of the instruction before code + at that puts this number into %eax: mov $n,%eax, or
 * mov $n,%rax; 0: it is another one. */
static inline size_t arch_go_number(const uint8_t *code, size_t at, int number)
{
	int32_t is;

	if (at < 5)
		return 0;
	memcpy(&is, code + at - 4, 4);
	if (is != number)
		return 0;
	if (code[at - 5] == 0xb8)
		return 5;
	return at >= 7 && code[at - 7] == 0x48 && code[at - 6] == 0xc7 && code[at - 5] == 0xc0 ? 7
											       : 0;
}

/* Is there exactly one in code[0..n)? Then where and how long, in *s, whose form and number are
 * given. */
static inline bool arch_go_find(const uint8_t *code, size_t n, struct arch_go_site *s)
{
	const uint8_t *want;
	size_t len = arch_go_pattern(s->form, &want), found = 0, before;

	for (size_t i = 0; i + len <= n; i++) {
		if (memcmp(code + i, want, len))
			continue;
		before = s->form == ARCH_GO_FIXED ? arch_go_number(code, i, s->number) : 0;
		if (s->form == ARCH_GO_FIXED && !before)
			continue;
		s->at = i - before;
		s->len = len + before;
		found++;
	}
	return found == 1;
}

static inline uint8_t *arch_go_put(uint8_t *to, const void *bytes, size_t n)
{
	memcpy(to, bytes, n);
	return to + n;
}

/* An instruction of n bytes that ends with the distance from its end to `target`; `at`: where it
 * will be. */
static inline uint8_t *arch_go_relative(uint8_t *to, uintptr_t at, const void *op, size_t n,
					uintptr_t target)
{
	int32_t by = (int32_t)(target - (at + n + 4));

	to = arch_go_put(to, op, n);
	return arch_go_put(to, &by, 4);
}

/* code[0..len) is the site, which is at `at`. */
static inline void arch_go_jump(uint8_t *code, size_t len, uintptr_t at, uintptr_t stub)
{
	memset(code, 0x90, len);				/* nop */
	arch_go_relative(code, at, "\xe9", 1, stub);		/* jmp stub */
}

/* The stub of a site that is at `site`, into to[0..ARCH_GO_STUB), for the address `at`. */
static inline void arch_go_stub(uint8_t *to, uintptr_t at, uintptr_t site,
				const struct arch_go_site *s, const void *entry,
				const void *behind)
{
	static const uint8_t call[] = { GO_SYSCALL_ }, push[] = { GO_PUSH_ };
	static const uint8_t compare[] = { GO_COMPARE_ };
	uint8_t *p = to, *end = to + ARCH_GO_STUB;
	uintptr_t entry_at = at + ARCH_GO_STUB - 16, behind_at = at + ARCH_GO_STUB - 8;

	memset(to, 0xcc, ARCH_GO_STUB);				/* int3 */
#define HERE_ (at + (uintptr_t)(p - to))
	if (s->form == ARCH_GO_FIXED) {
		p = arch_go_put(p, "\xb8", 1);			/* mov $number,%eax */
		p = arch_go_put(p, &s->number, 4);
	}
	p = arch_go_relative(p, HERE_, "\x48\x8d\x0d", 3, HERE_ + 15);	/* lea 1f(%rip),%rcx */
	p = arch_go_relative(p, HERE_, "\xff\x25", 2, entry_at);	/* jmp *entry(%rip) */
	p = arch_go_put(p, call, sizeof call);			/* syscall: two bytes before 1f */
	if (s->form == ARCH_GO_VFORK) {				/* 1: */
		p = arch_go_relative(p, HERE_, "\x48\x8d\x0d", 3, HERE_ + 13);
		p = arch_go_relative(p, HERE_, "\xff\x25", 2, behind_at);
		p = arch_go_put(p, push, sizeof push);
	}
	if (s->form != ARCH_GO_FIXED)
		p = arch_go_put(p, compare, sizeof compare);
	arch_go_relative(p, HERE_, "\xe9", 1, site + s->len);	/* jmp to what follows the site */
#undef HERE_
	memcpy(end - 16, &entry, 8);
	memcpy(end - 8, &behind, 8);
}

/* ---- the entries ---- */

#define GO_TLS_ "mov golang_me@gottpoff(%rip),%r11\n"	/* where golang_me is, from %fs on */
#define GO_AT_(place) "%fs:" GO_TEXT_(place) "(%r11)"
#define GO_TEXT_(place) GO_TEXT2_(place)
#define GO_TEXT2_(place) #place
#define GO_KEPT_(n) GO_AT_(ARCH_GO_KEPT + n)
#define GO_BEGIN_(name) \
	".p2align 4\n.globl " name "\n.hidden " name "\n.type " name ",@function\n" name ":\n" \
	".cfi_startproc\n.cfi_undefined rip\nendbr64\n"
#define GO_END_(name) ".cfi_endproc\n.size " name ",.-" name "\n"

/* rax: the number; rdi, rsi, rdx, r10, r8, r9: arguments; rcx: where to go on, two bytes behind the
 * stub's own system call. r11 is free, as rcx is, for a system call spoils both. rsp and rbp are a
 * goroutine's, with no room for anything. */
#define ARCH_GOLANG_ENTRIES \
	".text\n" \
	GO_BEGIN_("golang_vfork") \
	"cmp $" GO_TEXT_(SYS_clone) ",%eax\n"	/* clone(flags, ...)? */ \
	"jne 1f\n" \
	"bt $8,%rdi\n"				/* with CLONE_VM the child has this memory: */ \
	"jc golang_raw\n"			/* the system call, and nothing else */ \
	"jmp golang_route\n"			/* else as any child that has a copy */ \
	"1: cmp $" GO_TEXT_(SYS_clone3) ",%eax\n"	/* clone3(&{flags, ...})? */ \
	"jne golang_raw\n" \
	"mov (%rdi),%r11\n"			/* its flags, which Go's own code has just set */ \
	"bt $8,%r11\n"				/* the same */ \
	"jc golang_raw\n" \
	"jmp golang_route\n" \
	GO_END_("golang_vfork") \
	\
	GO_BEGIN_("golang_vforked") \
	GO_TLS_ \
	"test %rax,%rax\n"			/* 0: this is the child */ \
	"jz 1f\n" \
	"movl $0," GO_AT_(ARCH_GO_CHILD) "\n"	/* the parent goes on: the child has gone */ \
	"movl $0," GO_AT_(ARCH_GO_BUSY) "\n"	/* by exec or exit, in the middle of a call */ \
	"jmp *%rcx\n" \
	"1: movl $1," GO_AT_(ARCH_GO_CHILD) "\n"	/* its calls are made as a child's */ \
	"jmp *%rcx\n" \
	GO_END_("golang_vforked") \
	\
	GO_BEGIN_("golang_entry") \
	"cmp $511,%rax\n"			/* beyond the table: */ \
	"ja golang_raw\n"			/* not one of ours */ \
	"lea golang_routed(%rip),%r11\n" \
	"movzbl (%r11,%rax),%r11d\n"		/* its row */ \
	"test %r11d,%r11d\n"			/* 0: */ \
	"jz golang_raw\n"			/* not one of ours */ \
	"cmp $1,%r11d\n"			/* 1: one of ours */ \
	"je golang_route\n" \
	"bt $8,%rdi\n"				/* 2: clone(flags, ...); with CLONE_VM parent */ \
	"jc golang_raw\n"			/* and child would use one stack at once */ \
	"golang_route:\n" \
	GO_TLS_ \
	"cmpl $0," GO_AT_(ARCH_GO_BUSY) "\n"	/* a signal handler of Go's, within a call? */ \
	"jne golang_raw\n"			/* the stack is in use */ \
	"movl $1," GO_AT_(ARCH_GO_BUSY) "\n"	/* now it is */ \
	"mov " GO_AT_(ARCH_GO_TOP) ",%r11\n"	/* the end of this thread's own stack */ \
	"test %r11,%r11\n"			/* none yet: */ \
	"jz golang_make\n"			/* make one, and come back */ \
	"golang_on:\n" \
	"mov %rsp,-8(%r11)\n"			/* the goroutine's stack, */ \
	"mov %rcx,-16(%r11)\n"			/* where to go on */ \
	"lea -16(%r11),%rsp\n"			/* our own stack from here */ \
	"push %rdi\npush %rsi\npush %rdx\n"	/* a system call leaves its arguments */ \
	"push %r10\npush %r8\npush %r9\n"	/* as they were */ \
	"push %r9\n"				/* to align it: eight of eight bytes so far */ \
	"push %r9\n"				/* golang_call's seventh argument */ \
	"mov %r8,%r9\n"				/* its sixth: the fifth of the system call */ \
	"mov %r10,%r8\n"			/* and so on */ \
	"mov %rdx,%rcx\n" \
	"mov %rsi,%rdx\n" \
	"mov %rdi,%rsi\n" \
	"mov %rax,%rdi\n"			/* its first: the number */ \
	"cld\n"					/* as C wants it */ \
	"call golang_call\n"			/* rax: the result */ \
	"add $16,%rsp\n" \
	"pop %r9\npop %r8\npop %r10\n" \
	"pop %rdx\npop %rsi\npop %rdi\n" \
	"mov (%rsp),%rcx\n"			/* where to go on */ \
	"mov 8(%rsp),%rsp\n"			/* the goroutine's stack again */ \
	"xorps %xmm15,%xmm15\n"			/* Go has 0 there, C does what it likes */ \
	GO_TLS_ \
	"movl $0," GO_AT_(ARCH_GO_BUSY) "\n"	/* our stack is free */ \
	"jmp *%rcx\n" \
	\
	"golang_raw:\n" \
	"lea -2(%rcx),%rcx\n"			/* the stub's system call, in its place */ \
	"jmp *%rcx\n" \
	\
	"golang_make:\n"			/* without a stack: it is kept beside golang_me */ \
	GO_TLS_ \
	"mov %rax," GO_KEPT_(0) "\n" \
	"mov %rdi," GO_KEPT_(8) "\n" \
	"mov %rsi," GO_KEPT_(16) "\n" \
	"mov %rdx," GO_KEPT_(24) "\n" \
	"mov %r10," GO_KEPT_(32) "\n" \
	"mov %r8," GO_KEPT_(40) "\n" \
	"mov %r9," GO_KEPT_(48) "\n" \
	"mov %rcx," GO_KEPT_(56) "\n"		/* which the system call spoils */ \
	"xor %edi,%edi\n"			/* mmap(NULL, */ \
	"mov $" GO_TEXT_(ARCH_GO_STACK) ",%esi\n" \
	"mov $3,%edx\n"				/* PROT_READ | PROT_WRITE */ \
	"mov $0x24022,%r10d\n"	/* MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK */ \
	"mov $-1,%r8\n" \
	"xor %r9d,%r9d\n" \
	"mov $" GO_TEXT_(SYS_mmap) ",%eax\n" \
	"syscall\n" \
	GO_TLS_ \
	"lea " GO_TEXT_(ARCH_GO_STACK) "(%rax),%rsi\n"	/* its end */ \
	"cmp $-4095,%rax\n"			/* refused? */ \
	"jae 1f\n" \
	"mov %rsi," GO_AT_(ARCH_GO_TOP) "\n" \
	"1: setae %dl\n"			/* ... for later */ \
	"movzbl %dl,%esi\n" \
	"mov " GO_KEPT_(0) ",%rax\n" \
	"mov " GO_KEPT_(8) ",%rdi\n" \
	"mov " GO_KEPT_(24) ",%rdx\n" \
	"mov " GO_KEPT_(32) ",%r10\n" \
	"mov " GO_KEPT_(40) ",%r8\n" \
	"mov " GO_KEPT_(48) ",%r9\n" \
	"mov " GO_KEPT_(56) ",%rcx\n" \
	"test %esi,%esi\n"			/* refused? */ \
	"mov " GO_KEPT_(16) ",%rsi\n"		/* (flags stay) */ \
	"jnz 2f\n" \
	"mov " GO_AT_(ARCH_GO_TOP) ",%r11\n" \
	"jmp golang_on\n" \
	"2: movl $0," GO_AT_(ARCH_GO_BUSY) "\n" \
	"mov $-12,%rax\n"			/* -ENOMEM, as of a kernel that has none */ \
	"jmp *%rcx\n" \
	GO_END_("golang_entry")

#endif
