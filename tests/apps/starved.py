"""A reader that has hardly any processor time, and a sender that sends all the time:
starved.py server|client PORT [CPU]. The client reads a part in peace, then goes to the processor
CPU, with the least claim to it, and reads the rest."""
import os
import socket
import sys
import time
import zlib

SIZE, PEACE, PIECE = 32 << 20, 8 << 20, 65536
answer = bytes(range(256)) * (PIECE // 256)
port = int(sys.argv[2])
if sys.argv[1] == "server":
    s, _ = socket.create_server(("127.0.0.1", port)).accept()
    for _ in range(SIZE // PIECE):
        s.sendall(answer)
    s.recv(1)
else:
    s = socket.create_connection(("127.0.0.1", port))
    got, crc = 0, 0
    while got < SIZE:
        if got < PEACE:
            time.sleep(0.001)
        b = s.recv(PIECE)
        if not b:
            break
        got += len(b)
        crc = zlib.crc32(b, crc)
        if got - len(b) < PEACE <= got:
            os.sched_setaffinity(0, {int(sys.argv[3])})
            os.nice(19)
    print(got, crc)
