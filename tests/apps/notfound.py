"""Ends for notfound.sh; they know nothing of the library.
	notfound.py serve PORT		answers requests: 'N M\\n' and M bytes, with N bytes
	notfound.py ask PORT FIFO	does what the lines in FIFO say, and prints "done" and
				each's number:
		open			a connection; the lines that follow mean it
		ask N M			a request, whose answer is not read
		read			reads it
		talk N M TIMES		requests and their answers
		quit
"""
import os, socket, sys, threading


def serve(c):
    f = c.makefile("rb")
    while (line := f.readline()):
        n, m = map(int, line.split())
        if f.read(m) != b"q" * m:
            raise SystemExit("wrong bytes")
        c.sendall(b"a" * n)


def read(c, n):
    while n:
        b = c.recv(min(n, 65536))
        if not b or b.strip(b"a"):
            sys.exit("wrong bytes, or too few")
        n -= len(b)


port = int(sys.argv[2])
if sys.argv[1] == "serve":
    l = socket.create_server(("127.0.0.1", port))
    while True:
        threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
conns, owed = [], 0
# for writing, too: else it ends when nobody has it open
orders = os.fdopen(os.open(sys.argv[3], os.O_RDWR))
for i, line in enumerate(orders, 1):
    word, *args = line.split()
    args = list(map(int, args))
    if word == "quit":
        break
    if word == "open":
        conns.append(socket.create_connection(("127.0.0.1", port)))
    if word in ("ask", "talk"):
        for _ in range(args[2] if word == "talk" else 1):
            conns[-1].sendall(b"%d %d\n" % tuple(args[:2]) + b"q" * args[1])
            owed = args[0]
            if word == "talk":
                read(conns[-1], owed)
    if word == "read":
        read(conns[-1], owed)
    print("done", i, flush=True)
