#!/usr/bin/env python3
# unread.py reader PORT FILE SECS | writer PORT FILE SECS A writer that sends until TCP, and
# whatever lies beside it, takes no more, and says in FILE how much was taken; a reader that reads
# a little and then, SECS after FILE.killed has appeared, all there is. Prints "N bytes, then
# WHAT".
import mmap, os, random, socket, struct, sys, time

who, port, path, secs = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
BLOCK = bytes(random.Random(7).randrange(256) for _ in range(65521))


def writer():
    with open(path, "wb") as f:
        f.write(bytes(8))
    with open(path, "r+b") as f:
        count = mmap.mmap(f.fileno(), 8)
    s = socket.create_connection(("127.0.0.1", port))
    sent = 0
    while True:
        at = sent % len(BLOCK)
        if sent < 300000:  # time to be upgraded
            time.sleep(0.005)
        sent += s.send(BLOCK[at:at + random.randrange(1, 30000)])
        count[:] = struct.pack("<Q", sent)


def reader():
    listener = socket.create_server(("127.0.0.1", port))
    s, _ = listener.accept()
    got, how = 0, "the end"
    while True:
        if got > 300000:
            while not os.path.exists(path + ".killed"):
                time.sleep(0.01)
            time.sleep(secs if got < 400000 else 0)
        try:
            b = s.recv(100000)
        except OSError as e:
            how = e.strerror
            break
        if not b:
            break
        for i in range(0, len(b), len(BLOCK)):
            at = (got + i) % len(BLOCK)
            part = b[i:i + len(BLOCK)]
            if part != (BLOCK + BLOCK)[at:at + len(part)]:
                print("wrong byte near", got + i)
                sys.exit(1)
        got += len(b)
    print(f"{got} bytes, then {how}")


{"reader": reader, "writer": writer}[who]()
