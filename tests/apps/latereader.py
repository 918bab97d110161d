"""A sender in a hurry, and a reader that rests 15 to 50 ms after each 2 MiB: latereader.py
server|client PORT block|poll. The sender blocks, or polls."""
import select
import socket
import sys
import time
import zlib

CHUNKS, CHUNK = 96, 2 << 20
RESTS = (15, 50, 22, 41, 18, 37, 49, 15, 28, 33)
role, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def take(s, n):
    parts = []
    while n:
        b = s.recv(min(n, 1 << 18))
        assert b, "the end, too early"
        parts.append(b)
        n -= len(b)
    return b"".join(parts)


def give(s, b):
    if how == "block":
        s.sendall(b)
        return
    p = select.poll()
    p.register(s, select.POLLOUT)
    b = memoryview(b)
    while b:
        p.poll()
        try:
            b = b[s.send(b[:65536]):]
        except BlockingIOError:
            pass


if role == "server":
    s, _ = socket.create_server(("127.0.0.1", port)).accept()
    crc = 0
    for i in range(CHUNKS):
        crc = zlib.crc32(take(s, CHUNK), crc)
        time.sleep(RESTS[i % len(RESTS)] / 1000)
    s.sendall(b"%08x" % crc)
    s.close()
else:
    chunk = bytes(range(256)) * (CHUNK // 256)
    crc = 0
    s = socket.create_connection(("127.0.0.1", port))
    s.setblocking(how == "block")
    for _ in range(CHUNKS):
        give(s, chunk)
        crc = zlib.crc32(chunk, crc)
    s.setblocking(True)
    print(how, "right" if take(s, 8) == b"%08x" % crc else "wrong")
