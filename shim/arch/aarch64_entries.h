/*
 * aarch64_entries.h - entries in assembly of 64-bit ARM; see entries.h. x16 and x17 are free
 * between a call and its function, x9 to x15 at a function's beginning; "hint 34" is bti c.
 */
#ifndef RDMASHIM_AARCH64_ENTRIES_H
#define RDMASHIM_AARCH64_ENTRIES_H

#define ENTRY_(name) \
	".globl \\" name "\n.type \\" name ",%function\n.p2align 4\n\\" name ":\n" \
	"	.cfi_startproc\n	hint 34\n"
#define END_(name) "	.cfi_endproc\n.size \\" name ",.-\\" name "\n.endm\n.text\n"
#define FRAME_(bytes) \
	"	stp x29,x30,[sp,#-" bytes "]!\n" \
	"	.cfi_def_cfa_offset " bytes "\n	.cfi_offset 29,-" bytes "\n" \
	"	.cfi_offset 30,-" bytes "+8\n	mov x29,sp\n"
#define UNFRAME_(bytes) \
	"	ldp x29,x30,[sp],#" bytes "\n" \
	"	.cfi_restore 29\n	.cfi_restore 30\n	.cfi_def_cfa_offset 0\n"
#define SAVE3_ FRAME_("48") "	stp x0,x1,[sp,#16]\n	str x2,[sp,#32]\n"
#define RESTORE3_ "	ldp x0,x1,[sp,#16]\n	ldr x2,[sp,#32]\n" UNFRAME_("48")
#define SAVE_ALL_ FRAME_("96") \
	"	stp x0,x1,[sp,#16]\n	stp x2,x3,[sp,#32]\n	stp x4,x5,[sp,#48]\n" \
	"	stp x6,x7,[sp,#64]\n	str x8,[sp,#80]\n"
#define RESTORE_ALL_ \
	"	ldp x0,x1,[sp,#16]\n	ldp x2,x3,[sp,#32]\n	ldp x4,x5,[sp,#48]\n" \
	"	ldp x6,x7,[sp,#64]\n	ldr x8,[sp,#80]\n" UNFRAME_("96")

#define ARCH_JUMP_ON \
	".macro JUMP_ON name, look\n" ENTRY_("name") SAVE3_ \
	"	bl \\look\n" \
	"	mov x16,x0\n" RESTORE3_ \
	"	br x16\n" END_("name")

#define ARCH_ANSWER \
	".macro ANSWER name, look, real\n" ENTRY_("name") SAVE3_ \
	"	bl \\look\n" \
	"	mov x16,x0\n" \
	"	mov x17,x1\n" RESTORE3_ \
	"	cbnz x17,1f\n" \
	"	adrp x16,\\real\n" \
	"	ldr x16,[x16,#:lo12:\\real]\n" \
	"	br x16\n" \
	"1:	mov x0,x16\n" \
	"	ret\n" END_("name")

/* As on x86-64; cuda_writer_lazy has its number in w17. The count is a full fence, as there. */
#define ARCH_STUB_STEP 128
#define ARCH_STUB_ALIGN ".p2align 7\n"
#define AROUND_(what) FRAME_("16") "	bl " what "\n" UNFRAME_("16")
#define ARCH_CUDA_STUBS \
	".text\n" \
	".macro CUDA_AROUND name, what\n" \
	".type \\name,%function\n" \
	"\\name:\n" \
	"	.cfi_startproc\n" SAVE_ALL_ \
	"	bl \\what\n" RESTORE_ALL_ \
	"	ret\n" \
	"	.cfi_endproc\n" \
	".size \\name,.-\\name\n" \
	".endm\n" \
	"CUDA_AROUND cuda_around_fill gpu_veil_fill_all\n" \
	"CUDA_AROUND cuda_around_wait gpu_veil_waiter\n" \
	".type cuda_writer_lazy,%function\n" \
	"cuda_writer_lazy:\n" \
	"	.cfi_startproc\n" SAVE_ALL_ \
	"	mov w0,w17\n" \
	"	bl cuda_writer_bind\n" \
	"	mov x16,x0\n" RESTORE_ALL_ \
	"	br x16\n" \
	"	.cfi_endproc\n" \
	".size cuda_writer_lazy,.-cuda_writer_lazy\n" \
	".macro CUDA_STUB n, writes=0, waits=0\n" \
	"	.cfi_startproc\n" \
	"	hint 34\n" \
	"	.if \\waits\n" AROUND_("cuda_around_wait") \
	"	.else\n" \
	"	adrp x16,gpu_veils\n" \
	"	ldr w16,[x16,#:lo12:gpu_veils]\n" \
	"	cbz w16,2f\n" AROUND_("cuda_around_fill") \
	"2:\n" \
	"	.endif\n" \
	"	.if \\writes\n" \
	"	adrp x16,gpu_writers\n" \
	"	add x16,x16,#:lo12:gpu_writers\n" \
	"3:	ldaxr x17,[x16]\n" \
	"	add x17,x17,#1\n" \
	"	stlxr w9,x17,[x16]\n" \
	"	cbnz w9,3b\n" \
	"	dmb ish\n" \
	"	.endif\n" \
	"	adrp x16,cuda_writer_real\n" \
	"	add x16,x16,#:lo12:cuda_writer_real\n" \
	"	ldr x16,[x16,#8*(\\n)]\n" \
	"	cbz x16,1f\n" \
	"	br x16\n" \
	"1:	mov w17,#\\n\n" \
	"	b cuda_writer_lazy\n" \
	"	.cfi_endproc\n" \
	".endm\n"

#endif
