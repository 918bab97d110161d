#!/bin/bash
# Built with, and run under, the libc of Debian 11 (2.31), in which dlsym() allocates, with an
# allocator that opens files before it has its first block: jemalloc.
# TIMEOUT: 400
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the sanitizers' runtimes are for this machine's libc"
said=$("$TOP/tests/scripts/newer-libc.sh" bullseye "$B/libc-bullseye" libc6-dev libcrypt1 \
	libjemalloc2 libstdc++6 libgcc-s1) || skip "$said"
R=$B/libc-bullseye/root
U=$R/usr/lib/x86_64-linux-gnu
L=$R/lib/x86_64-linux-gnu

# What its links name is not this machine's; the kernel's headers are.
for l in "$U"/*.so; do
	to=$(readlink "$l") && [[ $to == /* ]] && ln -sf "../../..$to" "$l"
done
ln -sf ../lib/x86_64-linux-gnu/ld-2.31.so "$R/lib64/ld-linux-x86-64.so.2"
cp -r /usr/include/linux /usr/include/asm-generic "$R/usr/include/" &&
	cp -r /usr/include/x86_64-linux-gnu/asm "$R/usr/include/x86_64-linux-gnu/" || fail "headers"
CC="gcc --sysroot=$R -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu"
LDFLAGS="-L$U -L$L"
env -u MAKEFLAGS -u MAKELEVEL make -j2 -C "$TOP" B="$B/older" CC="$CC" LDFLAGS="$LDFLAGS" \
	"$B/older/librdmashim.so" >"$TMP/make.log" 2>&1 || fail "it does not build"
# shellcheck disable=SC2086  # words
$CC $LDFLAGS -O1 -D_GNU_SOURCE -o "$TMP/program" "$TOP/tests/apps/early/program.c" || fail "cc"

policy "earn_bytes 0" "earn_rounds 0"
begin_mode both
# one NAME PRELOAD...: by that libc's own linker
one() {
	local name=$1
	shift
	shim_env
	env "${SHIM_ENV[@]}" LD_PRELOAD= timeout 30 "$L/ld-2.31.so" --library-path "$L:$U" \
		--preload "$*" "$TMP/program" fast >"$TMP/$name.log" 2>&1 3>&- ||
		fail "$name: status $?: $(<"$TMP/$name.log")"
	collect
	say "$name: $FAST bytes on a fast path"
	((FAST > 0)) || fail "$name: not a byte on a fast path"
}
one alone "$B/older/librdmashim.so"
one jemalloc "$B/older/librdmashim.so" "$U/libjemalloc.so.2"

# ---- it wants no glibc above 2.28, and what is made with it neither
env -u MAKEFLAGS -u MAKELEVEL make -j2 -C "$TOP" B="$B/older" CC="$CC" LDFLAGS="$LDFLAGS" \
	"$B/older/rdmarun" >"$TMP/make.log" 2>&1 || fail "rdmarun: $(tail -n 5 "$TMP/make.log")"
for f in librdmashim.so rdmarun; do
	newest=$("$TOP/tests/distro/newest.sh" "$B/older/$f")
	[[ $(printf '%s\n' 2.28 "$newest" | sort -V | tail -n 1) == 2.28 ]] ||
		fail "$f wants glibc $newest"
	say "$f: glibc $newest or later"
done

# ---- calls by number that this libc has no name for are the kernel's, not ENOSYS
cat >"$TMP/number.c" <<'END'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct { long s, ns; } none = { 0, 0 };
	char *argv[] = { "echo", "execveat", NULL }, *env[] = { NULL };
	int p[2], ep = epoll_create1(0);
	long r;

	if (pipe(p) || dup2(p[0], 50) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev))
		return 1;
	r = syscall(441, ep, &ev, 1, &none, NULL, 8);
	printf("epoll_pwait2 %ld %d\n", r, r < 0 ? errno : 0);
	r = syscall(436, 50, 60, 0);
	printf("close_range %ld %d, then %d\n", r, r < 0 ? errno : 0, fcntl(50, F_GETFD));
	fflush(stdout);
	syscall(SYS_execveat, AT_FDCWD, "/bin/echo", argv, env, 0);
	printf("execveat %d\n", errno);
	return 0;
}
END
# shellcheck disable=SC2086  # words
$CC $LDFLAGS -O1 -D_GNU_SOURCE -o "$TMP/number" "$TMP/number.c" || fail "cc"
shim_env
for preload in "" "$B/older/librdmashim.so"; do
	env "${SHIM_ENV[@]}" LD_PRELOAD= timeout 30 "$L/ld-2.31.so" --library-path "$L:$U" \
		${preload:+--preload "$preload"} "$TMP/number" 3>&- \
		>"$TMP/number.${preload:+lib}" 2>&1
done
diff "$TMP/number." "$TMP/number.lib" || fail "calls by number are others under the library"
grep -q '^close_range 0 0, then -1$' "$TMP/number." || fail "no close_range(2)? $(<"$TMP/number.")"
