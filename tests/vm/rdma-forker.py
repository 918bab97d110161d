# serve ADDR PORT: sends back what comes; at SIGUSR1 it forks a child that does nothing.
# ask ADDR PORT FILE: a message after the other, each compared; a byte to FILE for each.
import os
import signal
import socket
import sys


def idle(*_):
    if os.fork() == 0:
        while True:
            signal.pause()


def serve(address):
    with socket.create_server(address) as listener:
        stream, _ = listener.accept()
    signal.signal(signal.SIGUSR1, idle)
    while data := stream.recv(4000):
        stream.sendall(data)


def ask(address, file):
    stream = socket.create_connection(address)
    with open(file, "ab", buffering=0) as moved:
        number = 0
        while True:
            data = number.to_bytes(8, "big") * 100
            stream.sendall(data)
            got = stream.recv(len(data), socket.MSG_WAITALL)
            if got != data:
                sys.exit(f"message {number}: {len(got)} bytes, not what was sent")
            moved.write(b".")
            number += 1


where = (sys.argv[2], int(sys.argv[3]))
if sys.argv[1] == "serve":
    serve(where)
else:
    ask(where, sys.argv[4])
