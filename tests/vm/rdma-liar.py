#!/usr/bin/env python3
"""rdma-liar.py ADDR PORT: holds the discovery port of a host and lies. It hands each call on to
the process that the call is for as no holder does: cut short, without a connection, with
things that are none, with connections of its own, many of them; then hangs up, so that it is
called again. When it has told all its lies it answers a call itself, without the key. Says
what it tries, and of each lie with a connection of its own what came back: it must never be
more than a refusal."""
import array, os, socket, struct, sys

addr, port = sys.argv[1], int(sys.argv[2])
l = socket.socket(socket.AF_INET6)
l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("::", port))
l.listen()
own = socket.create_server(("127.0.0.1", 0))
REFUSED = 4


def read_all(c, n):
    got = b""
    while len(got) < n:
        d = c.recv(n - len(got))
        if not d:
            break
        got += d
    return got


def to(call, message, *fds):
    d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    what = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    d.sendmsg([message], what, 0, b"\0rdmashimN." + call[40:80].hex().encode())


def connection():
    """Both ends, by the loopback: not from where the connection's peer is."""
    c = socket.create_connection(own.getsockname())
    return c, own.accept()[0]


def refused(name, end):
    end.settimeout(20)
    try:
        said = read_all(end, 160)
    except ConnectionError:
        said = b""
    kind = struct.unpack_from("<H", said, 14)[0] if len(said) == 160 else 0
    print(name, {0: "closed", REFUSED: "refused"}.get(kind, f"ANSWERED {kind}"), flush=True)
    if kind not in (0, REFUSED):
        sys.exit(1)


def many(call):
    ends = [connection() for _ in range(150)]
    for a, b in ends:
        try:
            to(call, call, a.fileno())
        except BlockingIOError:
            pass
        a.close()
    for a, b in ends[:100:10]:
        refused("one of many", b)


def mine(call):
    a, b = connection()
    to(call, call, a.fileno())
    a.close()
    refused("its own connection", b)


def other(call, name, message, *fds):
    to(call, message, *fds)
    print(name, flush=True)


null = os.open("/dev/null", os.O_RDWR)
udp, alone, un = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(
    ), socket.socketpair()
lies = [
    lambda c: other(c, "cut short", c[:159], alone.fileno()), lambda c: other(c, "nothing", b"",
        alone.fileno()),
    lambda c: other(c, "no connection", c), lambda c: other(c, "a file", c, null),
    lambda c: other(c, "UDP", c, udp.fileno()),
    lambda c: other(c, "not connected", c, alone.fileno()), lambda c: other(c, "AF_UNIX", c,
        un[0].fileno()),
    lambda c: other(c, "four files", c, null, null, null, null), lambda c: other(c, "twenty files",
        c, *([null] * 20)),
    lambda c: other(c, "another type", c[:14] + b"\3" + c[15:], alone.fileno()),
    lambda c: other(c, "another connection's call", c[:42] + b"\1\1" + c[44:], alone.fileno()),
    mine, many,
]
for lie in lies:
    while True:
        c = l.accept()[0]
        call = read_all(c, 160)
        if len(call) < 160:
            c.close()
            continue
        try:
            lie(call)
        except ConnectionRefusedError:      # the other end does not listen yet
            c.close()
            continue
        c.close()
        break
while True:
    c = l.accept()[0]
    call = read_all(c, 160)
    if len(call) == 160:
        c.sendall(call[:14] + struct.pack("<H", 2) + call[16:112] + bytes(48))
        print("all told", flush=True)
        c.recv(1)
    c.close()
