#!/bin/bash
# A number is closed, or gets another file, while a thread is inside a long send on it: the kernel
# takes all of it, and the end comes after. By then what the other end sends is on a ring, and the
# connection has no number left but the library's. And the thread is cancelled inside the send,
# and then the number closed: the end comes, though the call never returned.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
cat >"$TMP/close.py" <<'END'
import ctypes, os, socket, sys, threading, time
end, port, how, ended = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if end == "server":
    c = socket.create_server(("127.0.0.1", port)).accept()[0]
    for i in range(400):
        c.sendall(bytes(512))
        time.sleep(0.003)
    n = calls = 0
    while True:
        d = c.recv(1 << 18)
        if not d:
            break
        n += len(d)
        calls += 1
        if calls < 60:
            time.sleep(0.02)
    open(ended, "w")
    print("received", "the end" if how == "cancel" else n)
else:
    fd = socket.create_connection(("127.0.0.1", port)).detach()
    sent = []
    th = threading.Thread(target=lambda: sent.append(os.write(fd, bytes(16 << 20))), daemon=True)
    th.start()
    left = 400 * 512
    while left:
        left -= len(os.read(fd, left))
    if how == "cancel":
        ctypes.CDLL(None).pthread_cancel(ctypes.c_ulong(th.ident))
        time.sleep(0.1)
    if how != "dup2":
        os.close(fd)
    else:
        os.dup2(os.open("/dev/null", os.O_RDWR), fd)
    for i in range(3000):
        if os.path.exists(ended):
            break
        time.sleep(0.01)
    if how != "cancel":
        th.join()
    # Since glibc 2.41 a call that has sent some returns that, cancelled or not. How much is chance.
    print("sent", "some" if sent and how == "cancel" else sent)
    sys.stdout.flush()
    os._exit(0)
END
job() {
	local port
	free_port port
	server python3 -S -E "$TMP/close.py" server "$port" "$1" "$TMP/ended.$1.$MODE"
	wait_port "$port"
	client python3 -S -E "$TMP/close.py" client "$port" "$1" "$TMP/ended.$1.$MODE" >>"$OUT" \
		2>&1 || fail "$(cat "$OUT" "$TMP/server.log")"
	finish "$SRV" 30 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/server.log" >>"$OUT"
}
closes() { job close; }
replaces() { job dup2; }
cancels() { job cancel; }
MODES="bare both"
for_modes closes 20000
for_modes replaces 20000
for_modes cancels 20000
((FAILURES == 0))
