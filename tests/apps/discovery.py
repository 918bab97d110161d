"""Ends for discovery.sh; they know nothing of the library.
	discovery.py server PORT			echoes one connection after the other
	discovery.py client PORT SOURCE STOP	from that port: blocks there and back, compared,
						until the file STOP is there
With MARK in the environment, their sockets look as if the library were there
(shim/discovery/identity.h).
"""
import os, socket, struct, sys, time
import echo


def mark(s):
    if "MARK" in os.environ:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)


def server(port):
    listener = socket.create_server(("127.0.0.1", port))
    mark(listener)
    while True:
        echo.serve(listener.accept()[0])


def client(port, source, stop):
    s = socket.socket()
    mark(s)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # a reset leaves no TIME-WAIT
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.bind(("127.0.0.1", source))
    s.connect(("127.0.0.1", port))
    seed = os.getpid()
    while not os.path.exists(stop):
        seed += 1
        echo.exchange(s, seed.to_bytes(4, "big") * 500, "another connection's bytes, or wrong ones")
        time.sleep(0.01)
    s.close()


if sys.argv[1] == "server":
    server(int(sys.argv[2]))
else:
    client(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
