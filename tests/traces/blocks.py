# blocks.py: a program that sends blocks of 1 MB, for record.sh: to a reader that waits for them,
# then to one that reads a little at a time, then to the first again.
import os
import socket
import time

SIZE = 1 << 20
TURN = 300
listener = socket.create_server(("127.0.0.1", 0))
pid = os.fork()
if not pid:
    peer = socket.create_connection(listener.getsockname())
    for prompt in (True, False, True):
        left = TURN * SIZE
        while left:
            left -= len(peer.recv(min(left, SIZE if prompt else 4096), socket.MSG_WAITALL))
    os._exit(0)
conn = listener.accept()[0]
block = bytes(SIZE)
for _ in range(3 * TURN):
    conn.sendall(block)
conn.close()
os.waitpid(pid, 0)
