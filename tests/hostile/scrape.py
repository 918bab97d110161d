#!/usr/bin/env python3
"""Clients of `rdmastat prometheus --listen` that want to keep it from others, and one that wants
the counters meanwhile.

usage: scrape.py RDMASTAT SCENE...

Each scene has as many clients of its kind as said here, made anew when they are thrown out, while a
scrape is made again and again. It must be answered within 100 ms, and the server may not hold more
than 4 MiB for its clients.
"""
import itertools
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../unit"))
program, scenes = sys.argv[1], sys.argv[2:]
sys.argv[1:] = []
from test_rdmastat import SIZE, header

L = "127.0.0.1"
BOUND, MEMORY, ROUNDS, CLIENTS, PROCESSES = 0.100, 4 << 10, 30, 200, 150
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"


def counter_file(directory, pid):
    """A process without connections, of another pid namespace: nobody can say that it is gone."""
    head = header(pid, start=1, pid_ns=1)
    with os.fdopen(os.open(f"{directory}/{pid}", os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(head)
        f.truncate(SIZE)


class Server:
    def __init__(self, rdmastat, *more, files=1024):
        with socket.socket() as s:
            s.bind((L, 0))
            self.port = s.getsockname()[1]
        self.dir = tempfile.mkdtemp(prefix="scrape.", dir="/dev/shm")
        for k in range(PROCESSES):
            counter_file(self.dir, 100000 + k)
        self.process = subprocess.Popen(
            [rdmastat, "prometheus", "--listen", str(self.port), *more],
            env=dict(os.environ, RDMASHIM_STAT_DIR=self.dir),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
        end = time.time() + 15
        while True:
            try:
                self.connect().close()
                return
            except ConnectionRefusedError:
                if time.time() > end or self.process.poll() is not None:
                    self.close()
                    raise AssertionError("nobody listens")

    def connect(self, window=None):
        s = socket.socket()
        if window:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        s.settimeout(10)
        try:
            s.connect((L, self.port))
        except OSError:
            s.close()
            raise
        return s

    def ask(self, head, late=0):
        """The status of an answer, and its body; status 0: none came. `late`: as from afar, s."""
        with self.connect() as s:
            time.sleep(late)
            s.sendall(head)
            got = b""
            try:
                while more := s.recv(1 << 16):
                    got += more
            except (ConnectionResetError, socket.timeout):
                return 0, got
        top, _, body = got.partition(b"\r\n\r\n")
        return int(top.split()[1]) if top.startswith(b"HTTP/1.1 ") else 0, body

    def memory(self):
        for line in open(f"/proc/{self.process.pid}/smaps_rollup"):
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1])

    def close(self):
        self.process.kill()
        self.process.wait()
        for name in os.listdir(self.dir):
            os.unlink(f"{self.dir}/{name}")
        os.rmdir(self.dir)


class Attack(threading.Thread):
    """Keeps CLIENTS connections, says one of `first` on each, and a byte more if slow."""

    def __init__(self, server, first, slow=False, window=None):
        super().__init__(daemon=True)
        self.server, self.first = server, itertools.cycle(first)
        self.slow, self.window, self.made, self.mine = slow, window, 0, []
        self.ready, self.stop = threading.Event(), threading.Event()

    def one(self):
        while True:
            try:
                s = self.server.connect(self.window)
            except ConnectionError:  # thrown out already
                continue
            try:
                s.sendall(next(self.first))
                break
            except ConnectionError:
                s.close()
        s.setblocking(False)
        self.made += 1
        return s

    def thrown_out(self, s):
        try:
            if self.slow:
                s.send(b"x")
            # Those who are to read nothing look at the state of the connection only.
            if self.window:
                return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1
            return s.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def run(self):
        self.mine = [self.one() for _ in range(CLIENTS)]
        self.ready.set()
        while not self.stop.wait(0.05):
            # This is about clients that stay, not about a flood of new ones.
            for k in [k for k, s in enumerate(self.mine) if self.thrown_out(s)][:40]:
                self.mine[k].close()
                self.mine[k] = self.one()
        for s in self.mine:
            s.close()


SCENES = {
    "silent": dict(first=[b"G"]),
    "slow": dict(first=[GET + b"X: "], slow=True),
    "unread": dict(first=[GET + b"\r\n"], window=2048),
    "endless": dict(first=[GET + b"X: " + b"x" * 100000]),
    "few-files": dict(first=[b"G"], files=16),
    "from-afar": dict(first=[b"G"], files=16, late=0.2),
    "mixed": dict(first=[b"G", GET + b"\r\n"], window=2048),
}


def scene(rdmastat, name):
    how = dict(SCENES[name])
    late = how.pop("late", 0)
    server = Server(rdmastat, files=how.pop("files", 1024))
    try:
        status, body = server.ask(GET + b"\r\n")
        assert status == 200 and b"rdmashim_processes %d\n" % PROCESSES in body, status
        before = server.memory()
        attack = Attack(server, **how)
        attack.start()
        attack.ready.wait(5)
        took, grown = [], 0
        for _ in range(ROUNDS):
            begin = time.monotonic()
            status, body = server.ask(GET + b"\r\n", late)
            took.append(time.monotonic() - begin - late)
            assert status == 200 and len(body) > 250000, \
                f"status {status}, {len(body)} bytes, {took[-1]:.1f} s"
            grown = max(grown, server.memory() - before)
            time.sleep(0.1)  # so that places, deadlines and pages change meanwhile
        attack.stop.set()
        attack.join()
        middle = statistics.median(took)
        print(f"{name}: {attack.made} clients; scrapes took {middle * 1e3:.1f} ms in the middle,",
              f"{max(took) * 1e3:.1f} at most; {grown} kB more")
        # A tenth may have met this machine's other work, and not the others' clients.
        assert middle <= BOUND and sorted(took)[-4] <= BOUND, f"{max(took):.3f} s at most"
        # A sanitizer keeps for a while what was freed.
        assert grown <= MEMORY or os.environ.get("SAN"), f"{grown} kB for {CLIENTS} clients"
        assert attack.made > CLIENTS, "none was thrown out: this tried nothing"
        assert server.process.poll() is None, "the server ended"
    finally:
        server.close()


def hosts(rdmastat):
    """Asked by address, as localhost, by a name that the user gave; else a browser went astray."""
    def get(host, version=b"1.1", path=b"/metrics"):
        line = b"".join(b"Host: %s\r\n" % h for h in host)
        return b"GET %s HTTP/%s\r\n%s\r\n" % (path, version, line)
    ours = [b"localhost", b"LocalHost:9101", b"127.0.0.1", b"10.0.0.1:9101", b"[::1]:9101",
            b"[2001:db8::1]"]
    foreign = [b"evil.example", b"evil.example:80", b"localhost.evil.example", b"xlocalhost",
               b"localhost.", b"127.0.0.1.evil.example:9101", b"127.0.0.1:9101@evil.example",
               b"127.0.0.1:80:80", b"1.2.3",
               b"[::1", b"[localhost]", b"[::1]x", b"", b":9101", b"a" * 300, b"\xff", b"*"]
    named = [b"node7.cluster.example:9101", b"MONITOR"]
    with_names = Server(rdmastat, "--host", "*.cluster.example,Monitor")
    plain = Server(rdmastat)
    wrong = []

    def expect(server, head, status):
        got, body = server.ask(head)
        if got != status or (status != 200 and b"rdmashim_" in body):
            wrong.append((head[:100], got, status))
    try:
        for h in ours:
            expect(plain, get([h]), 200)
            expect(with_names, get([h]), 200)
        for h in foreign:
            expect(plain, get([h]), 421)
            expect(with_names, get([h]), 421)
        for h in named:
            expect(plain, get([h]), 421)
            expect(with_names, get([h]), 200)
        expect(plain, get([], b"1.0"), 200)
        expect(plain, get([], b"1.1"), 400)
        expect(plain, get([b"localhost", b"evil.example"]), 400)
        expect(plain, get([b"evil.example", b"localhost"]), 400)
        expect(plain, get([b"localhost"], path=b"http://evil.example/metrics"), 404)
        expect(plain, b"GET /metrics HTTP/1.1\r\nX: y\r\nhOST:\tlocalhost \r\n\r\n", 200)
        expect(plain, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n", 400)
        expect(plain, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405)
        expect(plain, b"\n\n", 400)
    finally:
        plain.close()
        with_names.close()
    for head, got, status in wrong:
        print(f"{head!r}: status {got}, expected {status}")
    assert not wrong
    print(f"hosts: {len(ours)} of ours, {len(foreign)} foreign, {len(named)} named ones")


for what in scenes or list(SCENES) + ["hosts"]:
    try:
        hosts(program) if what == "hosts" else scene(program, what)
    except AssertionError as e:
        sys.exit(f"{what}: {e}")
