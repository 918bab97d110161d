# asker.py COUNT: a program that waits by asking again and again, for record.sh: it reads a
# non-blocking socket without ever waiting for it, then asks no more for a while, and again.
import os
import socket
import sys
import time

count = int(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
pid = os.fork()
if not pid:
    peer = socket.create_connection(listener.getsockname())
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for turn in range(3):
        for _ in range(count):
            peer.sendall(b"x" * 100)
            time.sleep(0.002)
        time.sleep(1)
    os._exit(0)
conn = listener.accept()[0]
conn.setblocking(False)
for turn in range(3):
    got = 0
    while got < 100 * count:
        try:
            got += len(conn.recv(4096))
        except BlockingIOError:
            pass
    if turn < 2:
        time.sleep(0.8)
conn.close()
os.waitpid(pid, 0)
