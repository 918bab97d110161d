#!/usr/bin/env python3
"""rdma-answerer.py ADDR PORT N: answers calls at a discovery port as the library of a host that
is trusted by its address, and hangs up before there is a link. N times: so it must be called
again."""
import socket, struct, sys

l = socket.create_server((sys.argv[1], int(sys.argv[2])))


def read_all(c, n):
    got = b""
    while len(got) < n:
        d = c.recv(n - len(got))
        if not d:
            sys.exit("%d bytes of %d" % (len(got), n))
        got += d
    return got


for i in range(int(sys.argv[3])):
    c = l.accept()[0]
    call = read_all(c, 160)
    c.sendall(call[:14] + struct.pack("<H", 2) + call[16:])     # ANSWER
    read_all(c, 160 + 64)                                       # PROOF, HELLO
    c.close()
    print("call", i, flush=True)
