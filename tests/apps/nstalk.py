"""Ends of a connection between two network namespaces that talk until they are told to stop. They
know nothing of the library.
	nstalk.py server PORT
		echoes; says how many bytes, and how it ended
	nstalk.py client ADDRESS PORT STOP
		words, each answered as it must be, until there is a file STOP; writes how many
		bytes so far into STOP.so-far
"""
import os, socket, sys, time

from echo import whole


def server(port):
    c, _ = socket.create_server(("0.0.0.0", port)).accept()
    n = 0
    try:
        while data := c.recv(65536):
            n += len(data)
            c.sendall(data)
        print("read", n, "end", flush=True)
    except OSError as e:
        print("read", n, type(e).__name__, flush=True)


def client(address, port, stop):
    s = socket.create_connection((address, port))
    n = 0
    while not os.path.exists(stop):
        m = os.urandom(100)
        s.sendall(m)
        assert whole(s, 100) == m, "other bytes"
        n += 100
        with open(stop + ".new", "w") as f:
            f.write(str(n))
        os.rename(stop + ".new", stop + ".so-far")
        time.sleep(0.001)
    s.close()
    print("sent", n, flush=True)


if sys.argv[1] == "server":
    server(int(sys.argv[2]))
else:
    client(sys.argv[2], int(sys.argv[3]), sys.argv[4])
