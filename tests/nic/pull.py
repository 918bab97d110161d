"""pull.py - streams of large blocks that move by blocking calls, each from memory, and into memory,
that is of another mapping every time: written over and unmapped as soon as the call has returned.

	pull.py listen PORT HOW BYTES FILE     accepts one connection
	pull.py connect PORT HOW BYTES FILE    makes it

HOW: plain; signals = one every 2 ms; forks = children all the time, which write over what they
have of the buffers; reader = its sends are small; shut, close = another thread than those that send
and receive does that in the middle.
Says its pid. FILE has the bytes sent and received so far, 8 each. Ends with 0: all was right and
came; 3: the connection was lost, and what came was right; 1: a wrong byte.
"""
import collections
import mmap
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

PERIOD = 1048573
TABLE = random.Random(1).randbytes(PERIOD) * 5
LARGEST = 3 << 20
PAGE = 4096


def pattern(off, n):
    return TABLE[off % PERIOD:off % PERIOD + n]


class End:
    def __init__(self, sock, how, total, path, seed):
        self.sock, self.how, self.total, self.seed = sock, how, total, seed
        with open(path, "wb") as f:
            f.write(bytes(16))
        self.fd = os.open(path, os.O_RDWR)
        self.progress = mmap.mmap(self.fd, 16)
        self.live = []          # buffers, for children to write over
        self.wrong = []
        self.lost = False

    def size(self, rnd):
        if self.how == "reader":
            return rnd.randrange(1, 30000)
        return rnd.choice((rnd.randrange(1, 3000), rnd.randrange(100000, LARGEST),
                           rnd.randrange(500000, 1500000)))

    def buffer(self, n, rnd):
        m = mmap.mmap(-1, n + 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.live.append(m)
        return m, rnd.randrange(PAGE)

    def drop(self, m):
        self.live.remove(m)
        m.close()

    def sends(self):
        rnd, off = random.Random(self.seed), 0
        while off < self.total and not self.wrong:
            n = min(self.size(rnd), self.total - off)
            m, at = self.buffer(n, rnd)
            m[at:at + n] = pattern(off, n)
            v = memoryview(m)[at:at + n]
            r = self.sock.send(v)
            v[:] = b"\xff" * n
            v.release()
            self.drop(m)
            off += r
            self.progress[0:8] = struct.pack("=Q", off)
        self.sock.shutdown(socket.SHUT_WR)

    def receives(self):
        rnd, off, old = random.Random(self.seed + 1), 0, collections.deque()
        while True:
            n = rnd.randrange(1, 70000) if rnd.random() < 0.2 else rnd.randrange(65536, LARGEST)
            m, at = self.buffer(n, rnd)
            v = memoryview(m)[at:at + n]
            v[:] = b"\x11" * n
            r = self.sock.recv_into(v)
            if v[:r] != pattern(off, r):
                self.wrong.append(self.where(v, off, r))
            v[:] = b"\xee" * n
            v.release()
            old.append((m, at, n))
            if len(old) > 3:    # nobody writes there any more
                m, at, n = old.popleft()
                if m[at:at + n] != b"\xee" * n:
                    self.wrong.append(f"bytes of a receive before {off} came after it")
                self.drop(m)
            off += r
            self.progress[8:16] = struct.pack("=Q", off)
            if not r or self.wrong:
                return

    def where(self, v, off, n):
        bad = [k for k in range(n) if v[k] != TABLE[(off + k) % PERIOD]]
        there = bytes(v[bad[0]:bad[0] + 16])
        return (f"{len(bad)} wrong bytes in [{off}, {off + n}), from {off + bad[0]} to "
                f"{off + bad[-1]}: {there.hex()}, of offset {TABLE.find(there)} perhaps")

    def guarded(self, what):
        try:
            what()
        except OSError as e:
            self.lost = True
            self.why = f"{what.__name__}: {e}"

    def run(self):
        ts = [threading.Thread(target=self.guarded, args=(f,)) for f in (self.sends, self.receives)]
        for t in ts:
            t.start()
        while any(t.is_alive() for t in ts):
            if self.how == "forks":
                self.fork()
            elif self.how in ("shut", "close") and self.sent() > self.total // 2:
                self.ends()
            time.sleep(0.02)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sent, got = struct.unpack("=QQ", self.progress[:])
        print(f"sent {sent}, received {got}", *self.wrong, self.why if self.lost else "")
        if self.wrong:
            return 1
        return 3 if self.lost else 0

    def sent(self):
        return struct.unpack("=QQ", self.progress[:])[0]

    def ends(self):
        if self.how == "shut":
            self.sock.shutdown(socket.SHUT_WR)
        else:
            self.sock.close()
        self.how = "plain"

    def fork(self):
        pid = os.fork()
        if not pid:
            for m in list(self.live):
                try:
                    m[:] = b"\xdd" * len(m)
                except (BufferError, ValueError):
                    pass
            os._exit(0)
        os.waitpid(pid, 0)


def main():
    role, port, how, total, path = sys.argv[1:6]
    print(os.getpid(), flush=True)
    if role == "listen":
        l = socket.create_server(("127.0.0.1", int(port)))
        s, _ = l.accept()
        l.close()
    else:
        s = socket.create_connection(("127.0.0.1", int(port)))
    if how == "signals":
        signal.signal(signal.SIGALRM, lambda *a: None)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    return End(s, how, int(total), path, 10 if role == "listen" else 20).run()


sys.exit(main())
