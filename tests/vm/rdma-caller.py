#!/usr/bin/env python3
"""rdma-caller.py ADDR PORT RENDEZVOUS: connects to a server under the shim and calls its rendezvous port as somebody without
the key: garbage, pieces, a made-up proof, the server's own proof sent back, a call for a connection that is not there.
Every call must be refused or dropped, and the connection must go on by TCP. Prints what the server said."""
import os, socket, struct, sys, time

addr, port, rv = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sock = socket.create_connection((addr, port))
me = sock.getsockname()


def tuple_of(lport):
    pad = bytes(12)
    return struct.pack("<4H", socket.AF_INET, lport, port, 0) + socket.inet_aton(me[0]) + pad + socket.inet_aton(addr) + pad


def msg(kind, tup, mac=bytes(32), magic=b"rdmashim", order=0x01020304, version=1, mode=1):
    return (magic + struct.pack("<IHHII", order, version, kind, mode, os.getpid()) + bytes(16) + tup + os.urandom(32) + mac
            + bytes(16))


def read_all(c, n):
    got = b""
    while len(got) < n:
        d = c.recv(n - len(got))
        if not d:
            break
        got += d
    return got


def call(*parts):
    """Sends each part, after the first reading one answer; returns the last answer's type and reason, or None."""
    c = socket.create_connection((addr, rv), timeout=20)
    last = None
    for p in parts:
        try:
            c.sendall(p(last) if callable(p) else p)
            last = read_all(c, 160)
        except OSError:
            last = b""
        if len(last) < 160:
            return None
    c.close()
    kind, mode = struct.unpack_from("<H", last, 14)[0], struct.unpack_from("<I", last, 16)[0]
    return kind, mode


CALL, ANSWER, PROOF, REFUSED = 1, 2, 3, 4
end = time.monotonic() + 20
while True:                 # it opens when the server's shim looks for us
    try:
        socket.create_connection((addr, rv)).close()
        break
    except ConnectionRefusedError:
        if time.monotonic() > end:
            sys.exit("the rendezvous port does not open")
        time.sleep(0.05)
good = tuple_of(me[1])
assert len(msg(CALL, good)) == 160


def refused(name, r):
    print(name, r)
    if r is not None and r[0] != REFUSED:
        sys.exit("accepted: " + name)


for n in (160, 161, 320, 5000):
    refused("garbage %d" % n, call(os.urandom(n)))
for n in (0, 1, 159):       # too short: hung up on, or left alone until its time is over
    c = socket.create_connection((addr, rv), timeout=20)
    c.sendall(os.urandom(n))
    c.close()
refused("another version", call(msg(CALL, good, version=9)))
refused("another byte order", call(msg(CALL, good, order=0x04030201)))
refused("no such type", call(msg(77, good)))
refused("PROOF first", call(msg(PROOF, good)))
refused("no such connection", call(msg(CALL, tuple_of(1))))
refused("by address", call(msg(CALL, good, mode=0)))
first = call(msg(CALL, good))
print("call", first)
if first is None or first[0] != ANSWER:
    sys.exit("the server does not answer a good call: the test tests nothing")
refused("zero mac", call(msg(CALL, good), msg(PROOF, good)))
refused("random mac", call(msg(CALL, good), msg(PROOF, good, os.urandom(32))))
refused("its own mac", call(msg(CALL, good), lambda a: msg(PROOF, good, a[112:144])))
for i in range(5):
    sock.sendall(b"x" * 1000)
sock.close()
