#!/bin/bash
# A connection whose first call lasts: the connecting end sends 32 MiB by one call to a slow reader, or waits by one call for a megabyte
# that comes in pieces. The other end has earned long before that call returns, and must not give the connection up.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
cat >"$TMP/long.py" <<'END'
import socket, sys, time
what, end, port = sys.argv[1:3] + [int(sys.argv[3])]
s = socket.create_server(("127.0.0.1", port)).accept()[0] if end == "server" else socket.create_connection(("127.0.0.1", port))
def take(n):
    while n:
        n -= len(s.recv(min(n, 1 << 18)))
        time.sleep(0.005)
if what == "send" and end == "client":
    s.sendall(bytes(32 << 20))
elif what == "send":
    take(32 << 20)
elif end == "client":
    print(len(s.recv(1 << 20, socket.MSG_WAITALL)))
else:
    for i in range(16):
        s.sendall(bytes(1 << 16))
        time.sleep(0.03)
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
job() {
	local port
	free_port port
	server python3 -S -E "$TMP/long.py" "$1" server "$port"
	wait_port "$port"
	client python3 -S -E "$TMP/long.py" "$1" client "$port" >"$TMP/client.log" 2>&1 || fail "$(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/client.log" >>"$OUT"
}
sends() { job send; }
waits() { job wait; }
MODES="bare both"
for_modes sends 100000
for_modes waits 100000
((FAILURES == 0))
