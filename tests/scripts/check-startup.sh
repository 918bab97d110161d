#!/bin/bash
# What the library costs a program that has no TCP sockets: the median time of /bin/true with it must be at most 1 ms
# above that without; it needs no library but libc's own; it starts no thread; a program without a policy
# file, counter directory or /proc still runs.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no shim library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer's own start-up is no measure"

needed=$(readelf -d "$SHIM" | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p' | grep -v -e '^libc\.so' -e '^libdl\.so' -e '^libpthread\.so' -e '^ld-linux')
[[ -z $needed ]] || fail "it needs $needed"

# An idle machine is not promised: pairs, interleaved; the median of the differences.
MODE=both
STAT=$TMP/stat
extra=$(LIB=$SHIM CONF=$CONF STAT=$STAT python3 - <<'END'
import os, statistics, time
plain = dict(PATH="/bin")
shim = dict(plain, LD_PRELOAD=os.environ["LIB"], RDMASHIM_CONF=os.environ["CONF"], RDMASHIM_STAT_DIR=os.environ["STAT"])
def once(env):
    t = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["true"], env)
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit("true failed")
    return time.perf_counter() - t
d = []
for i in range(300):
    a = once(plain)
    b = once(shim)
    d.append(b - a)
print("%.0f" % (statistics.median(d) * 1e6))
END
) || fail "$extra"
say "adds $extra us to /bin/true (median of 300 pairs)"
((extra <= 1000)) || fail "more than 1 ms"

run_with shim sh -c 'cat /proc/self/status' | grep -q '^Threads:[[:space:]]*1$' || fail "a thread in a program without sockets"
[[ -z $(ls "$STAT" 2>/dev/null) ]] || fail "a counter file of a program without sockets"
out=$(env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/nonexistent/dir/file RDMASHIM_STAT_DIR=/nonexistent/dir echo hello 2>/dev/null)
[[ $out == hello ]] || fail "with nothing there: $out"
out=$(env -i LD_PRELOAD="$SHIM" /bin/echo hello 2>/dev/null)
[[ $out == hello ]] || fail "with an empty environment: $out"
