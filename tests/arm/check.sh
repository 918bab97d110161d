#!/bin/bash
# The tree by a cross compiler for 64-bit ARM: library, tools, unit tests, programs of the tests;
# then what can run under qemu-user: the tools, and the unit tests but those that qemu-user.txt
# names, because the emulator lacks calls of the kernel. (make check-arm)
#	check.sh BUILD [TEST...]	BUILD/arm has it all afterwards
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
A=$1/arm S=$1/arm/sysroot
shift
unset MAKEFLAGS MAKELEVEL
mkdir -p "$A/logs"
A=$(cd "$A" && pwd) S=$A/sysroot

fail() { echo "check-arm: $*"; exit 1; }
said=$(tests/arm/sysroot.sh "$S") || fail "no libraries: $said"
touch "$A/.deps-check"
cc="aarch64-linux-gnu-gcc --sysroot=$S"
programs=()
for f in tests/unit/test_*.c tests/{apps,bench,hostile,snippets}/*.c; do
	f=${f#tests/} && programs+=("$A/${f%.c}")
done
nice make -k -j"$(nproc)" B="$A" CC="$cc" all "${programs[@]}" >"$A/logs/make" 2>&1 ||
	fail "it does not build: $(grep -E 'error|\*\*\*' "$A/logs/make" | head -n 10)"
grep -q AArch64 <<<"$(readelf -h "$A/librdmashim.so")" || fail "not for ARM"
echo "built: library, rdmastat, rdmarun and ${#programs[@]} programs of tests"

emulated() { nice timeout -s KILL "$1" qemu-aarch64 -L "$S" "${@:2}"; }
version=$(emulated 20 "$A/rdmarun" --version)
[[ $version == *$(<VERSION)* ]] || fail "rdmarun: $version"
emulated 20 "$A/rdmastat" reasons >"$A/logs/reasons" || fail "rdmastat reasons"
# The library in a program, its dlopen() and dlsym(): what python would do is a few lines of C.
cat >"$A/loads.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
	void *h = dlopen("libm.so.6", RTLD_NOW), *d = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
	double (*f)(double) = h ? (double (*)(double))dlsym(h, "sqrt") : NULL;
	Dl_info at;

	printf("%g %d %d %d\n", f ? f(49) : 0, h == d, !dlsym(h, "cuInit"),
	       dladdr((void *)dlopen, &at) && at.dli_fname ? 1 : 0);
	return 0;
}
END
$cc -D_GNU_SOURCE -O0 -o "$A/loads" "$A/loads.c" || fail "loads.c"
said=$(emulated 30 -E LD_PRELOAD="$A/librdmashim.so" "$A/loads")
[[ $said == "7 1 1 1" ]] || fail "dlopen() and dlsym() under the library: $said"

passed=0 bad=0 left=0
for t in "$A"/unit/test_*; do
	n=${t##*/}
	[[ -x $t && ($# == 0 || " $* " == *" $n "*) ]] || continue
	if grep -q "^$n " tests/arm/qemu-user.txt; then
		left=$((left + 1))
		continue
	fi
	if CK_TIMEOUT_MULTIPLIER=20 emulated 170 "$t" >"$A/logs/$n" 2>&1; then
		passed=$((passed + 1))
	else
		bad=$((bad + 1))
		echo "FAIL $n: $(tail -n 3 "$A/logs/$n")"
	fi
done
echo "$passed unit tests passed, $bad failed, $left not tried (tests/arm/qemu-user.txt)"
((!bad && (passed || $#)))
