"""shortlived.py serve PORT | ask PORT FIFO: a server that echoes lines, and a client that reads
"CONNECTIONS TURNS NAPS_FROM MS" lines and makes so many connections, one after the other, of
so many turns each; from that turn on it rests MS after each, in which something may become of
the connection. Knows nothing of the library."""
import os
import socket
import sys
import threading
import time


def echo(c):
    while (b := c.recv(100)):
        c.sendall(b)
    c.close()


port = int(sys.argv[2])
if sys.argv[1] == "serve":
    l = socket.create_server(("127.0.0.1", port))
    while True:
        threading.Thread(target=echo, args=(l.accept()[0],), daemon=True).start()
total = 0
# for writing, too: it does not end when nobody has it open
for line in os.fdopen(os.open(sys.argv[3], os.O_RDWR)):
    if line == "quit\n":
        break
    n, turns, naps_from, ms = map(int, line.split())
    for _ in range(n):
        with socket.create_connection(("127.0.0.1", port)) as c:
            for i in range(turns):
                c.sendall(b"%99d\n" % i)
                if c.recv(100, socket.MSG_WAITALL) != b"%99d\n" % i:
                    sys.exit("turn %d: other bytes" % i)
                if i >= naps_from:
                    time.sleep(ms / 1000)
            c.shutdown(socket.SHUT_WR)
            if c.recv(1):
                sys.exit("bytes after the end")
    total += n
    print("done", total, flush=True)
