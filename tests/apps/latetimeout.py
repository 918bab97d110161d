"""A sender with SO_SNDTIMEO, and a reader that rests for less a few times and then for longer,
while it is sent what TCP takes without a reader: latetimeout.py server|client PORT."""
import socket
import struct
import sys
import time

CHUNKS, CHUNK, REST = 16, 1 << 20, 0.05
TIMEOUT, LONG, LAST = 300000, 1.5, 700000  # us, s, bytes
role, port = sys.argv[1], int(sys.argv[2])


def take(s, n):
    while n:
        b = s.recv(min(n, 1 << 18))
        assert b, "the end, too early"
        n -= len(b)


if role == "server":
    s, _ = socket.create_server(("127.0.0.1", port)).accept()
    for _ in range(CHUNKS):
        take(s, CHUNK)
        time.sleep(REST)
    take(s, 1)
    s.sendall(b"y")
    time.sleep(LONG)
    take(s, LAST)
    s.sendall(b"z")
else:
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, TIMEOUT))
    for _ in range(CHUNKS):
        s.sendall(bytes(CHUNK))
    s.sendall(b"x")
    take(s, 1)
    s.sendall(bytes(LAST))
    take(s, 1)
    print("sent in time")
