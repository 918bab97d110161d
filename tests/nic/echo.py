#!/usr/bin/env python3
"""echo.py listen PORT | connect PORT [N [BYTES [LATE]]]: N connections whose bytes come back and
are looked at, and from the second line of input on LATE more, each with 64 bytes a time.

connect: N rounds on each connection for each line "N" on its input, then a line with the longest of
them in milliseconds. listen: says its process id; at SIGUSR1 it forks, and the child ends at once.
"""
import os
import select
import signal
import socket
import sys
import threading
import time


def listen(port):
    def fork(*_):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)

    signal.signal(signal.SIGUSR1, fork)
    s = socket.create_server(("127.0.0.1", port), backlog=128)
    print(os.getpid(), flush=True)
    p = select.epoll()
    p.register(s, select.EPOLLIN)
    peers = {}
    while True:
        for fd, _ in p.poll():
            if fd == s.fileno():
                c = s.accept()[0]
                peers[c.fileno()] = c
                p.register(c, select.EPOLLIN)
                continue
            data = peers[fd].recv(65536)
            if data:
                peers[fd].sendall(data)
            else:
                p.unregister(fd)
                del peers[fd]
                if not peers:
                    return


def turn(c, data):
    start = time.monotonic()
    got = b""
    sender = threading.Thread(target=c.sendall, args=(data,)) if len(data) > 65536 else None
    if sender:
        sender.start()      # who echoes as it reads would wait for us, and we for it
    else:
        c.sendall(data)
    while len(got) < len(data):
        more = c.recv(65536)
        if not more:
            sys.exit("the connection ended")
        got += more
    if sender:
        sender.join()
    if got != data:
        sys.exit("other bytes came back")
    return time.monotonic() - start


def connect(port, n=1, size=64, late=0):
    conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(n)]
    for turns, line in enumerate(sys.stdin):
        longest = 0
        if turns == 1:
            conns += [socket.create_connection(("127.0.0.1", port)) for _ in range(late)]
        for i in range(int(line.split()[0])):
            for k, c in enumerate(conns):
                longest = max(longest, turn(c, bytes([i + k & 255]) * (size if k < n else 64)))
        print(f"{1000 * longest:.1f}", flush=True)


if __name__ == "__main__":
    {"listen": listen, "connect": connect}[sys.argv[1]](*map(int, sys.argv[2:]))
