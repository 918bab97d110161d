/* x86_64_entries.h - entries in assembly of x86-64; see entries.h. */
#ifndef RDMASHIM_X86_64_ENTRIES_H
#define RDMASHIM_X86_64_ENTRIES_H

#define PUSH_(reg) "	push %" reg "\n	.cfi_adjust_cfa_offset 8\n"
#define POP_(reg) "	pop %" reg "\n	.cfi_adjust_cfa_offset -8\n"
#define ENTRY_(name) \
	".globl \\" name "\n.type \\" name ",@function\n.p2align 4\n\\" name ":\n" \
	"	.cfi_startproc\n	endbr64\n"
#define END_(name) "	.cfi_endproc\n.size \\" name ",.-\\" name "\n.endm\n.text\n"

#define ARCH_JUMP_ON \
	".macro JUMP_ON name, look\n" ENTRY_("name") \
	PUSH_("rdi") PUSH_("rsi") PUSH_("rdx") \
	"	call \\look\n" \
	POP_("rdx") POP_("rsi") POP_("rdi") \
	"	jmp *%rax\n" END_("name")

#define ARCH_ANSWER \
	".macro ANSWER name, look, real\n" ENTRY_("name") \
	PUSH_("rdi") PUSH_("rsi") PUSH_("rdx") \
	"	call \\look\n" \
	"	mov %rdx,%rcx\n" \
	POP_("rdx") POP_("rsi") POP_("rdi") \
	"	test %rcx,%rcx\n" \
	"	jnz 1f\n" \
	"	jmp *\\real(%rip)\n" \
	"1:	ret\n" END_("name")

/* Stub n counts, or not, and jumps to cuda_writer_real[n]; the first time by way of
 * cuda_writer_bind(). With veils, by way of gpu_veil_fill_all(), or always of gpu_veil_waiter().
 * cuda_writer_lazy has its number on the stack. */
#define ARCH_STUB_STEP 64
#define ARCH_STUB_ALIGN ".p2align 6\n"
#define ARCH_CUDA_STUBS \
	".text\n" \
	".macro CUDA_AROUND name, what\n" \
	".type \\name,@function\n" \
	"\\name:\n" \
	"	.cfi_startproc\n" \
	PUSH_("rdi") PUSH_("rsi") PUSH_("rdx") PUSH_("rcx") PUSH_("r8") PUSH_("r9") \
	"	call \\what\n" \
	POP_("r9") POP_("r8") POP_("rcx") POP_("rdx") POP_("rsi") POP_("rdi") \
	"	ret\n" \
	"	.cfi_endproc\n" \
	".size \\name,.-\\name\n" \
	".endm\n" \
	"CUDA_AROUND cuda_around_fill gpu_veil_fill_all\n" \
	"CUDA_AROUND cuda_around_wait gpu_veil_waiter\n" \
	".type cuda_writer_lazy,@function\n" \
	"cuda_writer_lazy:\n" \
	"	push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9\n" \
	"	mov 48(%rsp),%rdi\n" \
	"	call cuda_writer_bind\n" \
	"	pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\n" \
	"	add $8,%rsp\n" \
	"	jmp *%rax\n" \
	".size cuda_writer_lazy,.-cuda_writer_lazy\n" \
	".macro CUDA_STUB n, writes=0, waits=0\n" \
	"	.cfi_startproc\n" \
	"	endbr64\n" \
	"	.if \\waits\n" \
	"	call cuda_around_wait\n" \
	"	.else\n" \
	"	cmpl $0,gpu_veils(%rip)\n" \
	"	je 2f\n" \
	"	call cuda_around_fill\n" \
	"2:\n" \
	"	.endif\n" \
	"	.if \\writes\n" \
	"	lock incq gpu_writers(%rip)\n" \
	"	.endif\n" \
	"	mov cuda_writer_real+8*(\\n)(%rip),%rax\n" \
	"	test %rax,%rax\n" \
	"	jz 1f\n" \
	"	jmp *%rax\n" \
	"1:	pushq $\\n\n" \
	"	jmp cuda_writer_lazy\n" \
	"	.cfi_endproc\n" \
	".endm\n"

#endif
