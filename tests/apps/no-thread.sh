#!/bin/bash
# No thread is to be had (RLIMIT_NPROC, a cgroup's pids.max): connections stay on TCP, say so, and
# leave nothing behind when they are closed.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
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
mkfifo "$TMP/hold"
shim_env
"$F" clone3 1 0 11 env "${SHIM_ENV[@]}" python3 -S -E "$TMP/many.py" <"$TMP/hold" \
	>"$TMP/server.log" 2>&1 3>&- &
PIDS+=("$!")
exec {hold}>"$TMP/hold"
up() { grep -q up "$TMP/server.log"; }
within 20 up || { grep -q 'no user notification' "$TMP/server.log" &&
	skip "no seccomp user notification"; fail "it does not start: $(cat "$TMP/server.log")"; }
reasons=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" conn -o reason | sed 1d | sort | uniq -c | xargs)
[[ $reasons == "2 no-thread" ]] || fail "connections: $reasons"
exec {hold}>&-
exit 0
