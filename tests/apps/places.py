"""A server for many connections, one after the other, and a client that is a new process each
time: places.py server|client PORT [ROUNDS [stay]]. With `stay` the client says when it has its
answers, and ends with its input."""
import signal
import socket
import sys

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
port = int(sys.argv[2])
if sys.argv[1] == "server":
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        s, _ = listener.accept()
        while b := s.recv(100):
            s.sendall(b)
        s.close()
s = socket.create_connection(("127.0.0.1", port))
for _ in range(int(sys.argv[3])):
    s.sendall(b"x" * 100)
    n = 0
    while n < 100:
        n += len(s.recv(100 - n))
if len(sys.argv) > 4:
    print("answered", flush=True)
    sys.stdin.read()
s.close()
