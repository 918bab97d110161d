"""What is under way on a connection: underway.py server|client PORT FIFO.

The ends talk; the client sends as many bytes as it is told, of which the server reads as many
as it is told; both begin again, with another connection. Each order is a line of
FIFO, "done" answers it.
"""
import socket
import sys

TALK = 200


def both(s, first):
    for _ in range(TALK):
        if first:
            s.sendall(b"x" * 1000)
        got = 0
        while got < 1000:
            got += len(s.recv(1000 - got))
        if not first:
            s.sendall(b"y" * 1000)


port, fifo = int(sys.argv[2]), sys.argv[3]
listener = socket.create_server(("127.0.0.1", port)) if sys.argv[1] == "server" else None


def connection():
    s = listener.accept()[0] if listener else socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


s = connection()
while True:
    with open(fifo) as f:
        order = f.readline().split()
    if not order:  # whoever wrote the last one had not closed it yet
        continue
    if order[0] == "talk":
        both(s, sys.argv[1] == "client")
    elif order[0] == "send":
        s.sendall(b"z" * int(order[1]))
    elif order[0] == "read":
        left = int(order[1])
        while left:
            left -= len(s.recv(left))
    elif order[0] == "again":
        s.close()
        s = connection()
    else:
        break
    print("done", *order, flush=True)
