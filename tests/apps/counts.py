"""Bytes whose number is known, to a reader that pauses: counts.py server PORT | client PORT.

The client sends SENT bytes and reads ANSWER bytes on each of two connections; the reader stops
for a while now and then, so that rings fill and fall back. Each end prints what it has sent and
received.
"""
import socket
import sys
import threading
import time

SENT, ANSWER, PAUSE_EVERY = 24 << 20, 6 << 20, 3 << 20
server = sys.argv[1] == "server"
port = int(sys.argv[2])
counts = []


def read(s, n, pause):
    got = 0
    while got < n:
        b = s.recv(min(n - got, 1 << 20))
        if not b:
            break
        if pause and got // PAUSE_EVERY != (got + len(b)) // PAUSE_EVERY:
            time.sleep(0.06)
        got += len(b)
    return got


def serve(s):
    got = read(s, SENT, True)
    s.sendall(b"a" * ANSWER)
    s.shutdown(socket.SHUT_WR)
    assert not s.recv(1)
    counts.append((ANSWER, got))


def ask(s):
    for _ in range(SENT >> 16):
        s.sendall(b"q" * 65536)
    got = read(s, ANSWER, True)
    assert not s.recv(1)
    counts.append((SENT, got))


if server:
    l = socket.create_server(("127.0.0.1", port))
    conns = [l.accept()[0] for _ in range(2)]
else:
    conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
threads = [threading.Thread(target=serve if server else ask, args=(s,)) for s in conns]
for t in threads:
    t.start()
for t in threads:
    t.join()
for s in conns:
    s.close()
print("sent", sum(c[0] for c in counts), "received", sum(c[1] for c in counts))
