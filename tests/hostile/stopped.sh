#!/bin/bash
# A peer that stops with connections on the path: a program that starts children, or becomes
# another one, with all of them, puts their epoll instance into another one, or sets options that
# the kernel must have, waits for it once, 30 s (docs/limits.md), not for each connection and
# child. One that need not block hardly waits.
# TIMEOUT: 300
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
free_port port
start shim "$TMP/echo.log" "$B/hostile/victim" echo "$port"
echo_pid=$PID
wait_port "$port"
cat >"$TMP/client.py" <<'END'
import os, select, signal, socket, sys, time
port, peer, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
for c in conns:
    c.set_inheritable(True)
end = time.monotonic() + 1
while time.monotonic() < end:
    for c in conns:
        c.sendall(b"x")
        c.recv(1)
inner = select.epoll()
for c in conns if how == "nests" else []:
    inner.register(c.fileno())
inner.poll(0)
for c in conns if how == "splices" else []:
    c.setblocking(False)
print("ready", flush=True)
sys.stdin.readline()
os.kill(peer, signal.SIGSTOP)
for c in conns:
    c.send(bytes(1000))
start = time.monotonic()
if how == "becomes":
    os.execv("/bin/true", ["true"])
elif how == "nests":
    select.epoll().register(inner.fileno())
elif how == "sets":
    for c in conns:
        try:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 100)
        except TimeoutError:
            pass
elif how == "splices":
    r, w = os.pipe()
    os.write(w, b"x")
    for c in conns:
        try:
            os.splice(r, c.fileno(), 1)		# or it is on TCP just now
            os.write(w, b"x")
        except BlockingIOError:
            pass
for _ in range(3 if how == "starts" else 0):
    os.system("true")
    print("%.0f s" % (time.monotonic() - start), flush=True)
END
fast() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all | python3 -S -E -c 'import json, sys
sys.exit(json.load(sys.stdin)["total"]["counters"]["conns_fast"] < 6)'; }
shim_env
for how in starts becomes nests sets splices; do
	most=50
	[[ $how == splices ]] && most=5
	mkfifo "$TMP/go.$how"
	timeout 100 env "${SHIM_ENV[@]}" python3 -S -E "$TMP/client.py" "$port" "$echo_pid" "$how" \
		<"$TMP/go.$how" >"$TMP/$how.log" 2>&1 3>&- &
	pid=$!
	PIDS+=("$pid")
	exec 4>"$TMP/go.$how"
	ready() { grep -q ready "$TMP/$how.log"; }
	within 30 ready || fail "the client does not start: $(cat "$TMP/$how.log")"
	within 20 fast || fail "the connections are not on the path"
	SECONDS=0
	echo >&4
	exec 4>&-
	within $most gone "$pid" ||
		fail "a program that $how others waits: $(tail -n 1 "$TMP/$how.log")"
	wait "$pid" || fail "the client failed: $(cat "$TMP/$how.log")"
	say "$how: $SECONDS s"
	kill -CONT "$echo_pid"
done
kill -KILL "$echo_pid"
exit 0
