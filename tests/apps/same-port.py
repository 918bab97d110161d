"""Ends for same-port.sh; they know nothing of the library.
	same-port.py server PORT PORT		echoes one connection of each port
	same-port.py client PORT PORT SOURCE	connections to both from the same port; when both
						are there, blocks on one and on the other
"""
import socket, sys, threading
from echo import exchange


def echo(listener):
    s, _ = listener.accept()
    ready.wait()
    while data := s.recv(65536):
        s.sendall(data)


ports = [int(sys.argv[2]), int(sys.argv[3])]
if sys.argv[1] == "server":
    ready = threading.Barrier(2)        # none earns before the other was accepted, too
    threads = [threading.Thread(target=echo, args=(socket.create_server(("127.0.0.1", p)),))
               for p in ports]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
else:
    ends = []
    for p in ports:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", int(sys.argv[4])))
        s.connect(("127.0.0.1", p))
        ends.append(s)
    for n in range(200):
        for s in ends:
            exchange(s, n.to_bytes(4, "big") * 5000, "the other connection's bytes, or wrong ones")
    print("done", flush=True)
    sys.stdin.read()
