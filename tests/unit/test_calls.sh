#!/bin/bash
# test_calls.sh - the table of interposed calls (shim/libc/calls.def) against libc, and the
# wrappers alone, without anything behind them (tests/unit/calls_stub.c), against the kernel.
# Environment: B build directory (build), SHIM the library (its exports are compared too, if it is
# there), CC.
# shellcheck disable=SC2086  # compilers, flags and names are words
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
SHIM=${SHIM:-$B/librdmashim.so}
CC=${CC:-cc}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

fail() { echo "FAIL: $*"; bad=1; }
# none WHAT COMMAND...: fails if the command prints anything. Not a pipe's end, or `bad` would be
# set in a subshell.
none() { local what=$1 got; shift; got=$("$@"); [ -z "$got" ] || fail "$what:" $got; }
only_in_first() { LC_ALL=C comm -23 "$1" "$2"; }

. tests/unit/calls_names.sh
exports() {
	nm -D --defined-only "$1" | awk '$2 ~ /^[TWiBDVR]$/ { print $3 }' | sed 's/@.*//' |
		LC_ALL=C sort -u
}

# ---- 1. every libc function that takes an fd of interest has a row
libc=$(ldconfig -p | awk '/libc\.so\.6 .*x86-64/ { print $NF; exit }')
nm -D --defined-only "$libc" | awk '$2 ~ /^[TWi]$/ && !/GLIBC_PRIVATE/ { print $3 }' |
	sed 's/@.*//' |
	LC_ALL=C sort -u > "$work/libc"
grep -E "$want" "$work/libc" | grep -vE "$other" > "$work/want"
rows CALL VCALL OWN ALIAS NONE > "$work/rows"
[ "$(wc -l < "$work/want")" -gt 120 ] || fail "only $(wc -l < "$work/want") names found in $libc"
none "in libc, but neither wrapped nor explained" only_in_first "$work/want" "$work/rows"
none "more than one row" uniq -d "$work/rows"
if [ "$(getconf GNU_LIBC_VERSION)" = "glibc 2.36" ]; then
	none "a row, but not in libc" only_in_first <(grep -vxF "${newer// /$'\n'}" "$work/rows") \
		"$work/libc"
fi

# ---- 2. the library exports exactly the table
flags="-O2 -std=gnu11 -fPIC -fvisibility=hidden -D_GNU_SOURCE -Wall -Wextra -Werror -iquote shim \
-iquote ."
so=$work/calls.so
tools/gen-map.sh > "$work/map"
$CC $flags -shared -Wl,-z,now -Wl,--no-undefined -Wl,--version-script="$work/map" -o "$so" \
	shim/libc/libc.c shim/libc/elf_symbols.c shim/base/usermem.c shim/wrap/wrap_*.c \
	tests/unit/calls_stub.c || { fail "the wrappers do not build"; exit 1; }
rows CALL VCALL OWN ALIAS > "$work/wrapped"
# the hooks on GPU drivers, and on the ways to them, are in the library only; two sanitizers have
# dlsym to themselves
{ (cd shim && printf '#include "%s"\n' */*_calls.def) | $CC -E -P -x c -DGPU_EXPORTS -I shim - |
	grep -o 'EXPORT [A-Za-z0-9_]*' | cut -d' ' -f2
	[[ ${SAN-} =~ address|thread ]] || printf '%s\n' dlmopen dlopen dlsym dlvsym
} > "$work/gpu"
grep -q '^cuMemcpyAsync$' "$work/gpu" || fail "no names of the CUDA driver's"
for lib in "$so" $([ -e "$SHIM" ] && echo "$SHIM"); do
	[ "$lib" = "$so" ] || LC_ALL=C sort -o "$work/wrapped" "$work/wrapped" "$work/gpu"
	exports "$lib" > "$work/exports"
	none "$lib: a wrapper's row, but not exported" only_in_first "$work/wrapped" "$work/exports"
	none "$lib: exported, but no row" only_in_first "$work/exports" "$work/wrapped"
done
# a rename by a header (read64 for read) would make a reference to a symbol that nobody has looked
# at
large_names() { nm -D -u "$so" | grep -E '64(@|$)'; }
none "large-file names are used" large_names

# ---- 3. the table's prototypes are libc's
cat > "$work/proto.c" <<'END'
#include "wrap/wrap.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <unistd.h>
/* what no header declares */
__typeof__(wrap___read_chk) __read_chk; __typeof__(wrap___recv_chk) __recv_chk;
__typeof__(wrap___recvfrom_chk) __recvfrom_chk; __typeof__(wrap___poll_chk) __poll_chk;
__typeof__(wrap___ppoll_chk) __ppoll_chk; __typeof__(wrap___vdprintf_chk) __vdprintf_chk;
__typeof__(wrap___dprintf_chk) __dprintf_chk; __typeof__(wrap___fork) __fork;
__typeof__(wrap___register_atfork) __register_atfork;
#if !__GLIBC_PREREQ(2, 39)
__typeof__(wrap_pidfd_spawn) pidfd_spawn; __typeof__(wrap_pidfd_spawnp) pidfd_spawnp;
#endif
__typeof__(wrap__IO_popen) _IO_popen; __typeof__(wrap_capset) capset;
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/* noreturn makes a type of its own, which a table row cannot say */
void plain_exit(int);
#define _exit plain_exit
#define _Exit plain_exit
#define SAME(ret, name, params) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), ret (*) params), #name);
#define CALL(ret, name, params, args, where, doc) SAME(ret, name, params)
#define CALLV(name, params, args, where, doc) SAME(void, name, params)
#define VCALL(ret, name, params, last, args, where, doc) SAME(ret, name, params)
#define OWN(ret, name, params, where, doc) SAME(ret, name, params)
#include "libc/calls.def"
END
$CC $flags -I shim -c -o "$work/proto.o" "$work/proto.c" || fail "a prototype differs from libc's"

# ---- 4. the wrappers against the kernel
$CC -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-result -o "$work/oracle" \
	tests/unit/calls_oracle.c ||
	{ fail "calls_oracle.c does not build"; exit 1; }
timeout 20 "$work/oracle" > "$work/bare" || fail "the bare run: $?"
[ "$(wc -l < "$work/bare")" -gt 150 ] || fail "the bare run says too little"
for mode in off plain tcp_only fast; do
	CALLS_STUB=$mode LD_PRELOAD=$so timeout 20 "$work/oracle" > "$work/$mode" ||
		fail "$mode: $?"
	diff "$work/bare" "$work/$mode" || fail "$mode: not what the kernel does"
done
cat > "$work/want" <<'END'
close: -1 errno 9
dup: -1 errno 9
dupfd: -1 errno 9
dup2 from: -1 errno 9
close_range: 0 errno 4711
before: -1 errno 9
after: -1 errno 9
kept: 0 errno 4711
kept by closefrom: 0 errno 4711
dup2 onto: 0 errno 4711
close, now the application's: 0 errno 4711
closed: -1 errno 9
followed: 99
dup2 of nothing: -1 errno 9
followed: 99
vfork: 0 errno 4711
followed: 99
dup: 99
after close of the other: 99
dup2 onto: 0
END
CALLS_STUB_INTERNAL=51 LD_PRELOAD=$so timeout 20 "$work/oracle" internal 51< /dev/null |
	diff "$work/want" - ||
	fail "the library's own fds"

# ---- 5. programs
for cmd in "ls -l /etc" "bash -c 'echo \$(echo a | cat; (exit 3); echo \$?)'" \
	"sh -c 'exec 3>&1; echo b >&3; exec 3>&-'"; do
	want=$(eval "$cmd" 2>&1)
	got=$(eval "LD_PRELOAD=$so $cmd" 2>&1)
	[ "$want" = "$got" ] || fail "$cmd: $got"
done
if command -v python3 > /dev/null; then
	cat > "$work/web.py" <<'END'
import http.server, subprocess, threading, urllib.request
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
url = "http://127.0.0.1:%d/bare" % s.server_port
want = open("bare", "rb").read()
assert urllib.request.urlopen(url).read() == want
assert subprocess.run(["cat"], input=want, stdout=subprocess.PIPE, close_fds=True).stdout == want
print("fine")
END
	for mode in off plain tcp_only fast; do
		got=$(cd "$work" && CALLS_STUB=$mode LD_PRELOAD=$so timeout 30 python3 web.py 2> \
			"$work/err")
		[ "$got" = fine ] || fail "python3, $mode: $got $(tail -3 "$work/err")"
	done
fi

# ---- 6. the document is current
tools/gen-calls-doc.sh | cmp -s - docs/calls.md ||
	fail "docs/calls.md is old: tools/gen-calls-doc.sh > docs/calls.md"

[ $bad = 0 ] &&
	echo "all the same: $(wc -l < "$work/wrapped") names interposed, $(rows NONE |
	wc -l) explained"
exit $bad
