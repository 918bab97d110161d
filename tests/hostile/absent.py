# absent.py server PORT FILE: a thread for each connection answers what it gets. FILE never has
# its bytes. "F" asks for them by sendfile(), "send N" for N bytes out of a mapping of it, by
# send(), and "recv N" has the next N bytes received into one.
# absent.py client PORT WORDS ASK GO: once both have a fast path, and ASK has a line, one asks with
# WORDS, and when GO has one (the file is being read) all others must go on: the second connection,
# fresh ones, and forks.
import mmap, os, socket, sys, threading, time

role, port, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def answer(s, file):
    page = memoryview(mmap.mmap(file, 65536, access=mmap.ACCESS_COPY))
    while b := s.recv(65536):
        word = b.split()[:1]
        if b == b"F":
            os.sendfile(s.fileno(), file, 0, 60000)
        elif word == [b"send"]:
            s.sendall(page[: int(b.split()[1])])
        elif word == [b"recv"]:
            n = int(b.split()[1])
            s.sendall(b"go on")
            s.recv_into(page, n, socket.MSG_WAITALL)
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


def others(b):
    for _ in range(10):
        asks(b, bytes(20000))
        with connection() as c:
            asks(c, bytes(100))
    asks(b, b"fork")


def await_line(fifo):
    with open(fifo) as f:
        f.readline()


def client():
    a, b = connection(), connection()
    for _ in range(60):
        asks(a, bytes(20000))
        asks(b, bytes(20000))
        time.sleep(0.01)
    print("fast", flush=True)
    await_line(sys.argv[4])
    a.sendall(what.encode())
    if what.startswith("recv"):
        a.recv(5, socket.MSG_WAITALL)
        a.sendall(bytes(int(what.split()[1])))
    print("asked", flush=True)
    await_line(sys.argv[5])
    others(b)
    print("all others went on", flush=True)


server() if role == "server" else client()
