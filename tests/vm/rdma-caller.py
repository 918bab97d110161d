#!/usr/bin/env python3
"""rdma-caller.py ADDR PORT DISCOVERY KEY ELSEWHERE: connects to a server under the library and
calls its discovery port, first as somebody without the key: garbage, chunks, a made-up proof,
the server's own proof sent back, a call for a connection that is not there. Then with the
key: a proof sent again, or for another call, a call from the address ELSEWHERE, links that
cannot be. Every call must be refused or dropped, and the connection must go on by TCP. Prints
what the server said."""
import hmac, os, re, socket, struct, sys, time

addr, port, rv, key, elsewhere = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[
    4].encode(), sys.argv[5]
sock = socket.create_connection((addr, port))
me = sock.getsockname()


def ours(header, name):
    """The number of a version in the sources: with another one each lie below would be refused
    for that alone."""
    return int(re.search(r"#define %s\s+(\d+)" % name, open(header).read()).group(1))


NET_VERSION = ours("shim/discovery/net_msg.h", "NET_VERSION")
CTL_VERSION = ours("shim/link/link.h", "CTL_VERSION")


def tuple_of(lport):
    pad = bytes(12)
    return struct.pack("<4H", socket.AF_INET, lport, port, 0) + socket.inet_aton(
        me[0]) + pad + socket.inet_aton(addr) + pad


def msg(kind, tup, mac=bytes(32), magic=b"rdmashim", order=0x01020304, version=NET_VERSION, mode=1):
    return (magic + struct.pack("<IHHII", order, version, kind, mode, os.getpid()) + bytes(16) + tup
            + os.urandom(32) + mac
            + bytes(16))


def read_all(c, n):
    got = b""
    while len(got) < n:
        d = c.recv(n - len(got))
        if not d:
            break
        got += d
    return got


def call(*parts, source=None):
    """Sends each part, after the first reading one answer; returns the last answer's type and
    reason, or None."""
    c = socket.create_connection((addr, rv), timeout=20, source_address=source)
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
while True:                 # it opens when the server's library looks for us
    try:
        socket.create_connection((addr, rv)).close()
        break
    except ConnectionRefusedError:
        if time.monotonic() > end:
            sys.exit("the discovery port does not open")
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
refused("another version", call(msg(CALL, good, version=NET_VERSION + 1)))
refused("another version, not there", call(msg(CALL, tuple_of(1), version=NET_VERSION + 1)))
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


# ---- with the key

def proof(call, answer, role=b"client", secret=key):
    """The mac of struct proof over what both said."""
    boot, nonce, pid = slice(24, 40), slice(80, 112), slice(20, 24)
    text = (b"rdmashim " + role + b"\0" + call[40:80] + call[nonce] + answer[nonce] + call[boot]
            + answer[boot] + call[pid]
            + answer[pid] + call[16:20] + struct.pack("<I", NET_VERSION))
    assert len(text) == 168
    return hmac.new(secret, text, "sha256").digest()


def proven(call):
    """A connection on which the server believes us, and what was said for that."""
    c = socket.create_connection((addr, rv), timeout=20)
    for byte in call:           # in chunks as small as can be
        c.sendall(bytes([byte]))
    answer = read_all(c, 160)
    if len(answer) < 160 or struct.unpack_from("<H", answer, 14)[0] != ANSWER or answer[
        112:144] != proof(call, answer, b"server"):
        sys.exit("the server does not prove itself: the test tests nothing")
    said = msg(PROOF, good, proof(call, answer))
    c.sendall(said)
    return c, said


mine = msg(CALL, good)
c, said = proven(mine)
c.close()
refused("both sent again", call(mine, said))
refused("the proof sent again", call(msg(CALL, good), said))
refused("the server's role", call(mine, lambda a: msg(PROOF, good, proof(mine, a, b"server"))))
refused("another key", call(mine, lambda a: msg(PROOF, good, proof(mine, a, secret=key[:-1]
    + b"X"))))
for what, at in ("mode", 16), ("process", 20), ("host", 30), ("client's port", 42), ("address",
    55), ("nonce", 99):
    other = bytearray(mine)
    other[at] ^= 1
    refused("proof for another " + what, call(mine, lambda a: msg(PROOF, good, proof(other, a))))
refused("from elsewhere", call(msg(CALL, good), source=(elsewhere, 0)))
twice = call(mine, lambda a: 2 * msg(PROOF, good, bytes(32)))
refused("two at once", twice)

HELLO, WELCOME = 1, 2


def hello(kind, version, slots, ring):
    """What is said to one who has proven himself and says this: type, version and index, None:
    nothing."""
    c, said = proven(msg(CALL, good))
    c.sendall(struct.pack("<HHIIIQ", kind, version, 0, slots, 0, ring) + bytes(40))
    try:
        got = read_all(c, 64)
    except OSError:
        got = b""
    c.close()
    return struct.unpack_from("<HH4xI", got) if len(got) == 64 else None


for what, kind, slots, ring in (("no HELLO", WELCOME, 256, 32768),
                                ("no such record", 99, 256, 32768),
                                ("no streams", HELLO, 0, 32768), ("one stream", HELLO, 1, 32768),
                                ("too many streams", HELLO, 4097, 32768),
                                ("streams without end", HELLO, 0xffffffff, 32768),
                                ("no ring", HELLO, 256, 0), ("a small ring", HELLO, 256, 2048),
                                ("a crooked ring", HELLO, 256, 40000),
                                ("a large ring", HELLO, 256, 1 << 21),
                                ("a ring without end", HELLO, 256, 1 << 63)):
    got = hello(kind, CTL_VERSION, slots, ring)
    print("link with", what, got)
    if got and (got[0] != WELCOME or got[2] == 0):
        sys.exit("a link was made with " + what)
for n in 1, 63:                 # cut short
    c, said = proven(msg(CALL, good))
    c.sendall(bytes(n))
    c.close()
c, said = proven(msg(CALL, good))
c.close()
got = hello(HELLO, CTL_VERSION - 1, 256, 32768)     # the last: it is not listened to any more
print("link with another version", got)
if not got or got[:2] != (HELLO, CTL_VERSION):
    sys.exit("not told of the version that is there")
for i in range(5):
    sock.sendall(b"x" * 1000)
sock.close()
