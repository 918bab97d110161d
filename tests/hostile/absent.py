# absent.py server PORT FILE: a thread for each connection answers what it gets. "F" asks for the
# file by sendfile().
# absent.py client PORT WORD GO: once both have a fast path one asks with WORD, and when GO has a
# line (the file is being read) all others must go on: the second connection, fresh ones, and forks.
import os, socket, sys, threading, time

role, port, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def answer(s, file):
    while b := s.recv(65536):
        if b == b"F":
            os.sendfile(s.fileno(), file, 0, 60000)
        elif b == b"fork":
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            s.sendall(b"done")
        else:
            s.sendall(b)


def server():
    file = os.open(what, os.O_RDONLY)
    lis = socket.create_server(("127.0.0.1", port))
    while True:
        s = lis.accept()[0]
        threading.Thread(target=answer, args=(s, file), daemon=True).start()


def asks(s, message):
    s.sendall(message)
    n = 0
    while n < len(message):
        b = s.recv(65536)
        if not b:
            sys.exit("the server has ended")
        n += len(b)


def connection():
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def client():
    a, b = connection(), connection()
    for _ in range(60):
        asks(a, bytes(20000))
        asks(b, bytes(20000))
        time.sleep(0.01)
    a.sendall(what.encode())
    print("asked", flush=True)
    with open(sys.argv[4]) as go:
        go.readline()
    for _ in range(10):
        asks(b, bytes(20000))
        with connection() as c:
            asks(c, bytes(100))
    asks(b, b"fork")
    print("all others went on", flush=True)


server() if role == "server" else client()
