#!/bin/bash
# No thread is to be had (RLIMIT_NPROC, a cgroup's pids.max): connections stay on TCP, say so, and leave nothing behind when they are closed.
# And none is started where the socket at the other end says that there is no library, or is another host's.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no shim library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
F=$B/hostile/fault
[[ -x $F ]] || fail "not built"
MODES=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
cat >"$TMP/many.py" <<'END'
import socket, sys
l = socket.create_server(("127.0.0.1", 0))
for i in range(200):
    c = socket.create_connection(l.getsockname())
    a = l.accept()[0]
    c.sendall(b"x")
    a.sendall(a.recv(1))
    c.recv(1)
    if i < 199:
        c.close()
        a.close()
print("up", flush=True)
sys.stdin.read()
END
cat >"$TMP/talk.py" <<'END'
import socket, sys, time
role, address, port, least = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if role == "client":
    s = socket.create_connection((address, port))
    end = time.monotonic() + least
    while time.monotonic() < end:
        s.sendall(b"x" * 100)
        s.recv(100, socket.MSG_WAITALL)
    print("up", flush=True)
    sys.stdin.read()
else:
    s = socket.create_server((address, port)).accept()[0]
    said = False
    end = time.monotonic() + least
    while x := s.recv(100, socket.MSG_WAITALL):
        s.sendall(x)
        if not said and time.monotonic() >= end:
            said = print("up", flush=True) is None
END
mkfifo "$TMP/hold"
up() { grep -q up "$TMP/log"; }
# without_thread REASON ARGS...: python3 runs them, and all its connections have that reason
without_thread() {
	local want=$1 reasons
	shift
	shim_env
	"$F" clone3 1 0 11 env "${SHIM_ENV[@]}" python3 -S -E "$@" <"$TMP/hold" >"$TMP/log" 2>&1 3>&- &
	PIDS+=("$!")
	exec {hold}>"$TMP/hold"
	within 20 up || { grep -q 'no user notification' "$TMP/log" && skip "no seccomp user notification"; fail "it does not start: $(cat "$TMP/log")"; }
	reasons=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn -o reason | sed 1d | sort | uniq -c | xargs)
	[[ $reasons == "$want" ]] || fail "connections of $*: $reasons"
	exec {hold}>&-
	wait "${PIDS[-1]}"
}
without_thread "2 no-thread" "$TMP/many.py"

policy
free_port port
start none "$TMP/other" python3 -S -E "$TMP/talk.py" server 127.0.0.1 "$port" 0
wait_port "$port"
without_thread "1 peer-no-shim" "$TMP/talk.py" client 127.0.0.1 "$port" 0.5
start_later() { wait_port "$port"; exec env -u LD_PRELOAD python3 -S -E "$TMP/talk.py" client 127.0.0.1 "$port" 1; }
start_later <"$TMP/hold" >"$TMP/other" 2>&1 3>&- &
without_thread "1 peer-no-shim" "$TMP/talk.py" server 127.0.0.1 "$port" 0.5
exit 0
