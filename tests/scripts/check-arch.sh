#!/bin/bash
# Instructions of a processor stand in shim/arch/ and nowhere else, and each has a form in plain
# C: a library of those alone (-DARCH_PLAIN) moves bytes on shared memory, and its dlopen() is a
# jump.
# TIMEOUT: 600
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a build is a build"
cd "$TOP" || exit 1
unset MAKEFLAGS MAKELEVEL

# A symbol's name for the linker is no instruction, nor is a macro of shim/arch/.
asm='\b(__asm__|asm) *(volatile *)?\('
found=$(grep -rnE "$asm"'|__builtin_ia32_|[a-z]mmintrin\.h|arm_neon\.h|__x86_64__|__aarch64__' \
	--include='*.[ch]' shim rdma policy tools | grep -v '^shim/arch/' |
	grep -vE '__asm__\((#|"[a-z_]*")|__asm__\(($|ARCH_)')
[[ -z $found ]] || fail "outside of shim/arch/:"$'\n'"$found"
bare=$(grep -rnA1 '__asm__($' --include='*.[ch]' shim rdma policy tools |
	grep -v '^shim/arch/' | grep -vE '__asm__\($|^--|ARCH_')
[[ -z $bare ]] || fail "assembly that does not begin with a macro of shim/arch/:"$'\n'"$bare"

nice make -j2 B="$B/plain" CFLAGS=-DARCH_PLAIN "$B/plain/librdmashim.so" >"$TMP/make.log" 2>&1 ||
	fail "it does not build in plain C: $(tail -n 5 "$TMP/make.log")"
objdump -d --no-show-raw-insn "$B/plain/librdmashim.so" >"$TMP/code"
! grep -E $'\t(syscall|rdtsc|prefetchw|pause|svc|isb)\\b' "$TMP/code" >"$TMP/left" ||
	fail "still there: $(head -n 3 "$TMP/left")"
# The real dlopen() must see who called ours: the last thing is a jump.
for f in dlopen dlmopen; do
	grep -qE 'jmp +\*|\sbr\s' <<<"$(sed -n "/<$f>:/,/^\$/p" "$TMP/code")" ||
		fail "$f calls, where it should jump"
done
export SHIM=$B/plain/librdmashim.so
WANTED="cut forced" tests/snippets/run.sh recv recv_peek || fail "snippets in plain C"
tests/apps/fullcut.sh || fail "fullcut in plain C"
