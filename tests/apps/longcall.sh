#!/bin/bash
# A connection whose first call lasts: the connecting end sends 32 MiB by one call to a slow
# reader, or waits by one call for a megabyte that comes in chunks. The other end has earned long
# before that call returns, and must not give the connection up. Or the connection is a while in
# coming: the queue of the listener is full, and what it throws away comes again after seconds.
# What the program would send meanwhile is refused, and the search must not end before the
# connection is there.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
cat >"$TMP/long.py" <<'END'
import select, socket, sys, time
what, end, at = sys.argv[1], sys.argv[2], ("127.0.0.1", int(sys.argv[3]))
def pair():
    return socket.create_server(at).accept()[0] if end == "server" else socket.create_connection(at)
def connect():
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(at)
    return s
def take(s, n):
    while n:
        n -= len(s.recv(min(n, 1 << 18)))
        time.sleep(0.005)
if what == "late" and end == "server":
    l = socket.create_server(at, backlog=0)
    first = l.accept()[0]
    first.recv(1)
    time.sleep(1.2)
    l.listen(8)
    s = first
    while s.recv(1) != b"R":
        s = l.accept()[0]
elif what == "late":
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
else:
    s = pair()
if what == "send" and end == "client":
    s.sendall(bytes(32 << 20))
elif what == "send":
    take(s, 32 << 20)
elif what == "wait" and end == "client":
    print(len(s.recv(1 << 20, socket.MSG_WAITALL)))
elif what == "wait":
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
        time.sleep(0.03)	# the threads that look for a path need a processor, too
print("ok")
END
job() { two_ends python3 -S -E "$TMP/long.py" "$1"; }
sends() { job send; }
waits() { job wait; }
comes_late() { policy "discovery 500ms"; job late; policy; }
MODES="bare both"
for_modes sends 100000
for_modes waits 100000
for_modes comes_late 100000
((FAILURES == 0))
