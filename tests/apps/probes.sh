#!/bin/bash
# The probes of the library (USDT): they are listed with their arguments, fire with the right
# values, and the sample script for bpftrace knows them. Where the kernel has uprobes, bpftrace
# itself runs the sample.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
MODES=both
begin_mode both
readelf -n "$SHIM" >"$TMP/notes" 2>/dev/null
grep -q 'Provider: rdmashim' "$TMP/notes" || skip "built without <sys/sdt.h>"
names() { sed -n 's/^ *Name: //p' "$TMP/notes" | sort -u; }
for p in $(names); do
	grep -q "^| \`rdmashim:$p\` |" "$TOP/docs/tuning.md" ||
		fail "docs/tuning.md does not name the probe $p"
	grep -q ":rdmashim:$p$" "$TOP/conf/examples/rdmashim.bt" ||
		fail "rdmashim.bt does not know the probe $p"
done
# shellcheck disable=SC2013  # names
for p in $(grep -o 'librdmashim.so:rdmashim:[a-z_]*' "$TOP/conf/examples/rdmashim.bt" |
	sed 's/.*://'); do
	grep -qx "$p" <<<"$(names)" || fail "rdmashim.bt names the probe $p, which is not there"
done

# gdb stops at a probe as it does at a line; its arguments are $_probe_arg0 and so on.
cat >"$TMP/talk.py" <<'END'
import socket, sys, time
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a = l.accept()[0]
print("fds", c.fileno(), a.fileno(), flush=True)
end = time.time() + 30
while time.time() < end:
    c.sendall(b"x" * 100)
    a.recv(100, socket.MSG_WAITALL)
    time.sleep(0.001)
END
cat >"$TMP/probes.gdb" <<'END'
set pagination off
set confirm off
set breakpoint pending on
set debuginfod enabled off
catch load librdmashim
run
delete
break -probe-stap rdmashim:cut
set $n = 0
while $n < 2
continue
printf "cut %d %d %lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2
set $n = $n + 1
end
kill
quit
END
policy 'earn_bytes 10000'
shim_env
# The program's environment, not gdb's: it is set by gdb.
for v in "${SHIM_ENV[@]}"; do echo "set environment ${v%%=*} ${v#*=}"; done >"$TMP/env.gdb"
timeout 50 gdb -nx -q -batch -x "$TMP/env.gdb" -x "$TMP/probes.gdb" \
	--args "$(python3 -c 'import sys; print(sys.executable)')" "$TMP/talk.py" >"$TMP/gdb.log" \
	2>&1 3>&- </dev/null
read -r _ C A < <(grep '^fds' "$TMP/gdb.log")
[[ $(grep -c '^cut ' "$TMP/gdb.log") == 2 ]] || { grep -qi 'ptrace\|not permitted' "$TMP/gdb.log" &&
	skip "no ptrace"; fail "$(tail -n 20 "$TMP/gdb.log")"; }
# The first to leave TCP is the client's sending, or the server's receiving of the same bytes; 100
# at a time.
while read -r _ fd tx at; do
	[[ $fd == "$C" || $fd == "$A" ]] || fail "a cut of descriptor $fd; there are $C and $A"
	[[ $tx == 0 || $tx == 1 ]] || fail "a cut that is neither of sending nor of receiving: $tx"
	((at % 100 == 0)) || fail "a cut at byte $at"
done < <(grep '^cut ' "$TMP/gdb.log")
say "$(grep '^cut ' "$TMP/gdb.log" | tr '\n' ';')"

# The sample itself, with a tracefs of its own. Where the kernel or the container has no uprobes,
# or no bpftrace is installed, that is all.
((EUID == 0)) && command -v bpftrace >/dev/null &&
	unshare -m sh \
	-c 'mount -t tracefs t /sys/kernel/tracing &&
		test -e /sys/kernel/tracing/uprobe_events -a -e /sys/kernel/btf/vmlinux' \
		2>/dev/null || exit 0
sed "s,/usr/lib/x86_64-linux-gnu/librdmashim.so,$SHIM,g" "$TOP/conf/examples/rdmashim.bt" \
	>"$TMP/t.bt"
sed -i 's/time.time() + 30/time.time() + 60/' "$TMP/talk.py"
unshare -m sh -c 'mount -t tracefs t /sys/kernel/tracing && exec bpftrace -B line "$1"' sh \
	"$TMP/t.bt" >"$TMP/bt.log" 2>&1 3>&- &
BT=$!
PIDS+=("$BT")
started() { grep -q '^TIME ' "$TMP/bt.log" || ! kill -0 "$BT" 2>/dev/null; }
within 25 started
kill -0 $BT 2>/dev/null || { grep -qi 'not permitted\|memlock\|denied' "$TMP/bt.log" &&
	exit 0; fail "bpftrace: $(cat "$TMP/bt.log")"; }
start shim "$TMP/talk.log" python3 "$TMP/talk.py"
traced() {
	(($(grep \
		-c "^[0-9:]* *$PID *python3 *[0-9]* \(sending\|receiving\) leaves TCP at byte \
[0-9]*0$" "$TMP/bt.log") >= 4))
}
within 15 traced || fail "the sample does not show the cuts of $PID: $(cat "$TMP/bt.log")"
say "$(grep -m 1 'leaves TCP' "$TMP/bt.log")"
exit 0
