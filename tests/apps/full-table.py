"""Ends for full-table.sh; they know nothing of the library.
	full-table.py server PORT		echoes one connection; told "full" on it, it leaves
						itself one free descriptor, for a second one
	full-table.py client PORT GO		echoes on one; when the file GO is there on a second
						one as well, and then on both
"""
import os, select, socket, sys, time
from echo import exchange


def fill():
    spare = []
    while True:
        try:
            spare.append(os.dup(0))
        except OSError:
            os.close(spare.pop())
            return


port = int(sys.argv[2])
if sys.argv[1] == "server":
    listener = socket.create_server(("127.0.0.1", port))
    both = [listener.accept()[0]]
    while both:
        for s in select.select(both, [], [])[0]:
            data = s.recv(65536)
            if not data:
                both.remove(s)
                continue
            if data == b"full":
                fill()
            s.sendall(data)
            if data == b"full":
                both.append(listener.accept()[0])
else:
    first = socket.create_connection(("127.0.0.1", port))
    n = 0
    while not os.path.exists(sys.argv[3]):
        n += 1
        exchange(first, n.to_bytes(4, "big") * 100, "wrong bytes")
        time.sleep(0.005)
    first.sendall(b"full")
    if first.recv(4, socket.MSG_WAITALL) != b"full":
        sys.exit("no answer")
    second = socket.create_connection(("127.0.0.1", port))
    end = time.monotonic() + 1
    while time.monotonic() < end:
        n += 1
        exchange(second, n.to_bytes(4, "big") * 100, "wrong bytes")
        exchange(first, n.to_bytes(4, "big") * 100, "wrong bytes")
    print("done")
