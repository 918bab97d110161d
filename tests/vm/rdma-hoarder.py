#!/usr/bin/env python3
"""rdma-hoarder.py ADDR PORT: accepts a connection and echoes; at SIGUSR1 opens files until it
may open no more, says "full", and goes on. After the end of the connection it lives on and
does nothing. rdma-hoarder.py client ADDR PORT: sends it a byte ten times a second, for ever."""
import os, signal, socket, sys, time

if sys.argv[1] == "client":
    s = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    while True:
        s.sendall(b"x")
        if not s.recv(1):
            sys.exit("lost")
        time.sleep(0.1)

hoard = []


def fill(*_):
    try:
        while True:
            hoard.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        print("full", len(hoard), flush=True)


l = socket.create_server((sys.argv[1], int(sys.argv[2])))
c = l.accept()[0]
signal.signal(signal.SIGUSR1, fill)
try:
    while d := c.recv(1):
        c.sendall(d)
except ConnectionError:
    pass
c.close()
print("idle", flush=True)
while True:
    signal.pause()
