#!/bin/bash
# What the library costs a program that has no TCP sockets: system calls and page faults of
# /bin/true with it above those without, which are the same on a slow machine; it needs no library
# but libc's own; it starts no thread; a program without a policy file, counter directory or /proc
# still runs. With FLOORS=1 (`make bench`) also the time: at most 1 ms.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer's own start-up is no measure"

needed=$(readelf -d "$SHIM" | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p' |
	grep -v -e '^libc\.so' -e '^libdl\.so' -e '^libpthread\.so' -e '^ld-linux')
[[ -z $needed ]] || fail "it needs $needed"

# An idle machine is not promised: pairs, interleaved; the medians of the differences.
MODE=both
STAT=$TMP/stat
out=$(LIB=$SHIM CONF=$CONF STAT=$STAT python3 - <<'END'
import os, statistics, time
plain = dict(PATH="/bin")
shim = dict(plain, LD_PRELOAD=os.environ["LIB"], RDMASHIM_CONF=os.environ["CONF"],
    RDMASHIM_STAT_DIR=os.environ["STAT"])
def once(env):
    t = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["true"], env)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit("true failed")
    return time.perf_counter() - t, used.ru_minflt + used.ru_majflt
bare, both = zip(*((once(plain), once(shim)) for i in range(300)))
def more(what):
    return statistics.median(b[what] - a[what] for a, b in zip(bare, both))
print("%.0f %.0f %.0f" % (more(0) * 1e6, statistics.median(a[0] for a in bare) * 1e6, more(1)))
END
) || fail "$out"
read -r extra bare faults <<<"$out"
say "adds $faults page faults and $extra us to the $bare us of /bin/true (medians of 300 pairs)"
((faults <= 45)) || fail "more than 45 page faults"
[[ -z ${FLOORS-} ]] || ((extra <= 1000)) || fail "more than 1 ms"

calls() {
	strace -qq -o "$TMP/calls" env -i "$@" /bin/true &&
		sed -n '/execve("\/bin\/true"/,$p' "$TMP/calls" | wc -l
}
if strace -qq -o /dev/null true 2>/dev/null; then
	calls=$(($(calls LD_PRELOAD="$SHIM" RDMASHIM_CONF="$CONF" \
		RDMASHIM_STAT_DIR="$STAT") - $(calls A=)))
	# Each directory above the policy is looked at; 28 is for those of /tmp/NAME/policy.conf.
	above=${CONF//[!\/]/}
	most=$((28 + ${#above} - 3))
	say "adds $calls system calls"
	((calls > 0 && calls <= most)) || fail "not between 1 and $most system calls"
else
	say "strace may not trace here: system calls not counted"
fi

grep -q '^Threads:[[:space:]]*1$' <<<"$(run_with shim sh -c 'cat /proc/self/status')" ||
	fail "a thread in a program without sockets"
[[ -z $(ls "$STAT" 2>/dev/null) ]] || fail "a counter file of a program without sockets"
out=$(env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/nonexistent/dir/file \
	RDMASHIM_STAT_DIR=/nonexistent/dir echo hello 2>/dev/null)
[[ $out == hello ]] || fail "with nothing there: $out"
out=$(env -i LD_PRELOAD="$SHIM" /bin/echo hello 2>/dev/null)
[[ $out == hello ]] || fail "with an empty environment: $out"
