#!/bin/bash
# Programs of musl beside those of glibc: named by $LIB, the library is none of theirs; rdmarun
# leaves them alone, and says so. By its path it ends them, which is why. And why there is no build
# for musl: its libc closes and writes past whoever is preloaded.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the sanitizers' runtimes are glibc's"
said=$("$TOP/tests/scripts/newer-libc.sh" bookworm "$B/libc-musl" musl musl-dev) || skip "$said"
R=$(cd "$B/libc-musl/root" && pwd)
U=$R/usr/lib/x86_64-linux-musl C=$R/lib/x86_64-linux-musl/libc.so
cc=(gcc -O1 -fno-stack-protector -nostdinc -isystem "$R/usr/include/x86_64-linux-musl" -nostdlib)
unset LD_PRELOAD RDMASHIM_LIB

cat >"$TMP/program.c" <<'END'
#include <netdb.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	FILE *f = fopen("/dev/null", "w"), *p;

	fprintf(f, "word\n");
	fclose(f);
	if ((p = popen("exit 3", "r")))
		pclose(p);
	write(1, "here\n", 5);
	close(50);
	return 7;
}
END
cat >"$TMP/before.c" <<'END'
#include <sys/syscall.h>
long syscall(long, ...);
int close(int fd)
{
	syscall(SYS_write, 1, fd == 50 ? "close 50\n" : "another\n", fd == 50 ? 9 : 8);
	return 0;
}
long write(int fd, const void *p, unsigned long n)
{
	syscall(SYS_write, 1, "write\n", 6);
	return syscall(SYS_write, fd, p, n);
}
long writev(int fd, const void *v, int n)
{
	syscall(SYS_write, 1, "another\n", 8);
	return syscall(SYS_writev, fd, v, n);
}
int dup2(int a, int b)
{
	syscall(SYS_write, 1, "another\n", 8);
	return (int)syscall(SYS_dup2, a, b);
}
END
"${cc[@]}" -no-pie -o "$TMP/program" "$U/crt1.o" "$U/crti.o" "$TMP/program.c" "$C" "$U/crtn.o" \
	"-Wl,-dynamic-linker,$R/lib/ld-musl-x86_64.so.1" || fail "no program of musl"
"${cc[@]}" -shared -fPIC -o "$TMP/before.so" "$TMP/before.c" "$C" || fail "no library of musl"

# runs NAME COMMAND...: it prints what it prints alone, with its status
runs() {
	local name=$1 rc
	shift
	"$@" >"$TMP/$name" 2>"$TMP/$name.err" 3>&-
	rc=$?
	[[ $rc == 7 && $(<"$TMP/$name") == here ]] ||
		fail "$name: status $rc: $(head -n 3 "$TMP/$name" "$TMP/$name.err")"
}
runs alone "$TMP/program"
[[ ! -s $TMP/alone.err ]] || fail "alone: $(<"$TMP/alone.err")"

# ---- by $LIB: musl ignores it, glibc does not
dir=$TMP/tree/lib/$(gcc -print-multiarch)
mkdir -p "$dir" && cp "$SHIM" "$dir/librdmashim.so"
# shellcheck disable=SC2016  # the linkers' word
by_lib=LD_PRELOAD=$TMP'/tree/$LIB/librdmashim.so'
runs by-lib env "$by_lib" "$TMP/program"
[[ ! -s $TMP/by-lib.err ]] || fail "by \$LIB: $(<"$TMP/by-lib.err")"
grep -q librdmashim <<<"$(env "$by_lib" cat /proc/self/maps)" ||
	fail "a program of glibc is without"
runs not-there env LD_PRELOAD=/not/there/librdmashim.so "$TMP/program"

# ---- by its path it is ended, and by rdmarun it is not
LD_PRELOAD=$SHIM "$TMP/program" >"$TMP/path" 2>&1 3>&-
rc=$?
((rc == 127)) || fail "by its path: not ended any more, status $rc: $(head -n 3 "$TMP/path")"
printf '#! %s\n' "$TMP/program" >"$TMP/script" && chmod 755 "$TMP/script"
for how in "$TMP/program" program "$TMP/script"; do
	runs rdmarun env PATH="$TMP:$PATH" "$B/rdmarun" --lib "$SHIM" "$how"
	grep -q "musl's linker" "$TMP/rdmarun.err" || fail "rdmarun says nothing of musl: $how"
done
runs preloaded env LD_PRELOAD="$SHIM" "$B/rdmarun" "$TMP/program"
grep -q librdmashim <<<"$("$B/rdmarun" --lib "$SHIM" cat /proc/self/maps)" ||
	fail "rdmarun leaves programs of glibc alone"

# ---- what the program calls is seen, what libc calls for it is not
LD_PRELOAD=$TMP/before.so "$TMP/program" >"$TMP/before" 2>&1 3>&-
printf 'write\nhere\nclose 50\n' | diff - "$TMP/before" ||
	fail "musl's own calls are seen now: docs/decisions.md"
say "musl: by \$LIB and by rdmarun unharmed, by its path ended; its own calls are not to be seen"
