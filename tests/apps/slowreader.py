"""A sender in a hurry and a reader that rests 4 ms after each chunk: slowreader.py server|client
PORT."""
import hashlib
import socket
import sys
import time

SIZE = 24 << 20
port = int(sys.argv[2])
chunk = bytes(range(256)) * 256
if sys.argv[1] == "server":
    s, _ = socket.create_server(("127.0.0.1", port)).accept()
    h, got = hashlib.sha256(), 0
    while got < SIZE:
        b = s.recv(65536)
        assert b, "the end, too early"
        h.update(b)
        got += len(b)
        time.sleep(0.004)
    s.sendall(h.digest())
    s.close()
else:
    s = socket.create_connection(("127.0.0.1", port))
    want = hashlib.sha256()
    for _ in range(SIZE >> 16):
        s.sendall(chunk)
        want.update(chunk)
    got = b""
    while len(got) < 32:
        b = s.recv(32 - len(got))
        assert b, "no answer"
        got += b
    print("right" if got == want.digest() else "wrong")
