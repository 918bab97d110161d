"""Another user's process that takes the names at which connections meet, for squat.sh.
	squat.py HOW PORT FIRST LAST	those of connections to 127.0.0.1:PORT from the ports FIRST
					to LAST
HOW: own (ours, not another user's; lets in and says nothing), deaf (bound, nobody listens), full
(nobody is let in), silent (lets in and says nothing), crowd (silent, and with 3,000 names beside
it that look like spare ones; docs/protocol.md). Prints a line when all is taken.
"""
import os, random, socket, sys, threading

how, port, first, last = sys.argv[1], *map(int, sys.argv[2:])
if os.geteuid() == 0 and how != "own":
    os.setgid(1001)
    os.setuid(1001)
address = bytes([127, 0, 0, 1]) + bytes(12)
taken = []


def take(name, backlog):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(b"\0" + name)
    if backlog >= 0:
        s.listen(backlog)
    taken.append(s)
    return s


def let_in(s):
    while True:
        taken.append(s.accept())


for source in range(first, last + 1):
    ports = source.to_bytes(2, "big") + port.to_bytes(2, "big")
    name = b"rdmashim1." + (ports + address + address).hex().encode()
    s = take(name, {"deaf": -1, "full": 0}.get(how, 64))
    if how == "full":
        c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        c.connect(b"\0" + name)
        taken.append(c)
    for _ in range(3000 if how == "crowd" else 0):
        take(name + b".%016x" % random.getrandbits(64), 1)
    if how in ("own", "silent", "crowd"):
        threading.Thread(target=let_in, args=(s,), daemon=True).start()
print("taken", flush=True)
threading.Event().wait()
