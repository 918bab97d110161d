# pingpong.py HOW ROUNDS: two processes that answer each other, for record.sh. HOW: spare, each has
# a processor; one, both are on the same; slow, the answer takes two milliseconds.
import os
import socket
import sys
import time

how, rounds = sys.argv[1], int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
cpus = sorted(os.sched_getaffinity(0))
pid = os.fork()
os.sched_setaffinity(0, {cpus[0 if pid or how == "one" else -1]})
if not pid:
    peer = socket.create_connection(listener.getsockname())
    while data := peer.recv(64):
        if how == "slow":
            time.sleep(0.002)
        peer.sendall(data)
    os._exit(0)
conn = listener.accept()[0]
for _ in range(rounds):
    conn.sendall(b"x" * 64)
    conn.recv(64)
conn.close()
os.waitpid(pid, 0)
