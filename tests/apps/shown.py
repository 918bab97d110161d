#!/usr/bin/env python3
# shown.py reader|sender PORT: one end of a connection, which does what its input says, a line at
# a time. The reader: "count" what FIONREAD says, "wait N" until it says that, "peek", "read N".
# The sender: "send N".
import array, fcntl, socket, sys, termios, time

who, port = sys.argv[1], int(sys.argv[2])


def pattern(start, n):
    return bytes((i * 7 + (i >> 8)) & 255 for i in range(start, start + n))


def count(s):
    n = array.array("i", [0])
    fcntl.ioctl(s, termios.FIONREAD, n)
    return n[0]


def right(got, at):
    return "right" if got == pattern(at, len(got)) else "WRONG"


def sender():
    s = socket.create_connection(("127.0.0.1", port))
    at = 0
    for line in sys.stdin:
        n = int(line.split()[1])
        s.sendall(pattern(at, n))
        at += n
        print("sent", at, flush=True)


def reader():
    listener = socket.create_server(("127.0.0.1", port))
    s, _ = listener.accept()
    at = 0
    for line in sys.stdin:
        what, *n = line.split()
        if what == "count":
            print("count", count(s), flush=True)
        elif what == "wait":
            end = time.monotonic() + 10
            while count(s) < int(n[0]) and time.monotonic() < end:
                time.sleep(0.001)
            print("there", count(s), flush=True)
        elif what == "peek":
            got = s.recv(100000, socket.MSG_PEEK)
            print("peek", len(got), right(got, at), flush=True)
        elif what == "read":
            got = s.recv(int(n[0]), socket.MSG_WAITALL)
            print("read", len(got), right(got, at), flush=True)
            at += len(got)


{"reader": reader, "sender": sender}[who]()
