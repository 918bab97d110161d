#!/bin/bash
# A number is closed, or gets another file, while a thread is inside a long send on it: the kernel takes all of it, and the end comes after.
# By then what the other end sends is on a ring, and the connection has no number left but the library's.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
cat >"$TMP/close.py" <<'END2'
import os, socket, sys, threading, time
end, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if end == "server":
    c = socket.create_server(("127.0.0.1", port)).accept()[0]
    for i in range(200):
        c.sendall(bytes(512))
        time.sleep(0.002)
    n = calls = 0
    while True:
        d = c.recv(1 << 18)
        if not d:
            break
        n += len(d)
        calls += 1
        if calls < 60:
            time.sleep(0.02)
    print("received", n)
else:
    fd = socket.create_connection(("127.0.0.1", port)).detach()
    sent = []
    th = threading.Thread(target=lambda: sent.append(os.write(fd, bytes(16 << 20))))
    th.start()
    left = 200 * 512
    while left:
        left -= len(os.read(fd, left))
    if how == "close":
        os.close(fd)
    else:
        os.dup2(os.open("/dev/null", os.O_RDWR), fd)
    th.join()
    print("sent", sent)
END2
job() {
	local port
	free_port port
	server python3 -S -E "$TMP/close.py" server "$port" "$1"
	wait_port "$port"
	client python3 -S -E "$TMP/close.py" client "$port" "$1" >>"$OUT" 2>&1 || fail "$(cat "$OUT" "$TMP/server.log")"
	finish "$SRV" 30 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/server.log" >>"$OUT"
}
closes() { job close; }
replaces() { job dup2; }
MODES="bare both"
for_modes closes 20000
for_modes replaces 20000
((FAILURES == 0))
