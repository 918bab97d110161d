"""A server that moves to another root before its connections: chroot.py server PORT DIR | client
PORT."""
import os
import socket
import sys
import time

port = int(sys.argv[2])
if sys.argv[1] == "server":
    listener = socket.create_server(("127.0.0.1", port))
    if len(sys.argv) > 3:
        os.chroot(sys.argv[3])
        os.chdir("/")
    while True:
        s, _ = listener.accept()
        while data := s.recv(65536):
            s.sendall(data)
        s.close()
s = socket.create_connection(("127.0.0.1", port))
began = time.monotonic()
for i in range(2000):  # both look at their policy files more than once meanwhile
    s.sendall(b"%1000d" % i)
    got = b""
    while len(got) < 1000:
        got += s.recv(1000 - len(got))
    assert got == b"%1000d" % i
    if i % 100 == 0:
        time.sleep(0.05)
print("right")
