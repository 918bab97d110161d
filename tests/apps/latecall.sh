#!/bin/bash
# The connection is a while in coming: the queue of the listener is full, and what it throws away comes again after seconds. What the program
# would send meanwhile is refused. The search must not end before the connection is there.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
cat >"$TMP/late.py" <<'END'
import select, socket, sys, time
end, at = sys.argv[1], ("127.0.0.1", int(sys.argv[2]))
def connect():
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(at)
    return s
if end == "server":
    l = socket.create_server(at, backlog=0)
    first = l.accept()[0]
    first.recv(1)
    time.sleep(1.2)
    l.listen(8)
    s = first
    while s.recv(1) != b"R":
        s = l.accept()[0]
else:
    first = socket.create_connection(at)
    time.sleep(0.1)
    others = [connect(), connect()]
    time.sleep(0.1)
    s = connect()
    try:
        print("sent", s.send(bytes(1 << 20)))
    except BlockingIOError:
        print("not yet")
    first.send(b"xx")
    print(len(select.select([], [s], [], 20)[1]))
    for o in others:
        o.setblocking(True)
        o.send(b"o")
    s.setblocking(True)
    s.sendall(b"R")
for i in range(3000):
    word = b"%064d" % i
    if end == "client":
        s.sendall(word)
    got = s.recv(64, socket.MSG_WAITALL)
    if got != word:
        sys.exit(f"{got} for {word}")
    if end == "server":
        s.sendall(word)
    if i % 300 == 0:
        time.sleep(0.005)
print("ok")
END
comes_late() {
	local port
	policy "rendezvous 500ms"
	free_port port
	server python3 -S -E "$TMP/late.py" server "$port"
	wait_port "$port"
	client python3 -S -E "$TMP/late.py" client "$port" >"$TMP/client.log" 2>&1 || fail "$(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/client.log" >>"$OUT"
	policy
}
MODES="bare both"
for_modes comes_late 100000
((FAILURES == 0))
