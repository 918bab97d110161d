# serve ADDR PORT: sends back what comes.
# ask ADDR PORT DIR [late]: small messages until DIR/go is there, then large ones, on that
# connection or on one that is made then, each compared; makes DIR/small after the first, and
# DIR/done of DIR/go at the end. All memory that this takes is there before the first one.
import os
import select
import socket
import sys
import time

LARGE = 100_000


def serve(address):
    block = memoryview(bytearray(LARGE))
    with socket.create_server(address) as listener:
        streams = [listener]
        while streams:
            for stream in select.select(streams, [], [])[0]:
                if stream is listener:
                    streams.append(listener.accept()[0])
                elif n := stream.recv_into(block):
                    stream.sendall(block[:n])
                else:
                    sys.exit()


def ask(address, where, late):
    go, out, back = where + "/go", memoryview(bytearray(os.urandom(LARGE))), memoryview(
        bytearray(LARGE))
    stream = socket.create_connection(address)

    def once(n):
        stream.sendall(out[:n])
        at = 0
        while at < n:
            at += stream.recv_into(back[at:n])
        if back[:n] != out[:n]:
            sys.exit("other bytes came back")

    once(64)
    os.close(os.open(where + "/small", os.O_WRONLY | os.O_CREAT, 0o600))
    while not os.access(go, os.F_OK):
        once(64)
        time.sleep(0.01)
    if late:
        first, stream = stream, socket.socket()
        stream.connect(address)
    for _ in range(100):
        once(LARGE)
        time.sleep(0.01)
    os.rename(where + "/go", where + "/done")


if sys.argv[1] == "serve":
    serve((sys.argv[2], int(sys.argv[3])))
else:
    ask((sys.argv[2], int(sys.argv[3])), sys.argv[4], len(sys.argv) > 5)
