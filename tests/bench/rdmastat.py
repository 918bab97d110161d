#!/usr/bin/env python3
"""How long rdmastat takes on a machine with many processes under the library: 100 servers and
100 clients with 100 connections each, on shared memory (20,000 rows). Each command some
rounds, in turn; the median and the worst as a table, exit status 1 if a median is above the
limit; and the processor time, which says on a machine with other work what the command needs
by itself. At last all clients are killed while two commands are run over and over: each
answer has to be whole.

usage: rdmastat.py [PAIRS [CONNECTIONS [ROUNDS]]]       environment: B build directory, SHIM the
library, LIMIT_MS (200)
"""
import fcntl
import json
import os
import pty
import resource
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time

B, LIMIT = os.environ.get("B", "build"), float(os.environ.get("LIMIT_MS", "200"))
PAIRS, CONNS, ROUNDS = ([int(a) for a in sys.argv[1:4]] + [100, 100, 5][len(sys.argv) - 1:])
TMP = tempfile.mkdtemp(prefix="rdmashim-bench-rdmastat.")
RDMASTAT, IDLE = shutil.copy(B + "/rdmastat", TMP), os.path.abspath(B + "/apps/idle")
SHIM = shutil.copy(os.environ.get("SHIM", B + "/librdmashim.so"), TMP + "/librdmashim.so")
BARE = dict(os.environ, RDMASHIM_STAT_DIR=TMP + "/stat", RDMASHIM_CONF=TMP + "/conf",
            LC_ALL="C.UTF-8", TERM="xterm")
BARE.pop("LD_PRELOAD", None)
started = []


def start(*args):
    p = subprocess.Popen([IDLE, *args], env=dict(BARE, LD_PRELOAD=SHIM),
                         stdout=open(f"{TMP}/log.{len(started)}", "w"), stderr=subprocess.STDOUT)
    started.append(p)
    return p


def until(what, seconds, happened):
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def free_ports(n):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def json_of(*args):
    return json.loads(subprocess.run([RDMASTAT, *args, "--json"], env=BARE, capture_output=True,
                                     check=True).stdout)


def set_up():
    os.mkdir(TMP + "/stat", 0o700)
    with open(TMP + "/conf", "w") as f:
        # on a busy machine the other end answers late
        f.write("earn_bytes 0\nearn_rounds 0\ndiscovery 60s\n")
    ports, fifos = free_ports(PAIRS), []
    for p in ports:
        start("server", "epoll", str(p))
    listens = lambda: sum(1 for line in open("/proc/net/tcp") if line.split()[3] == "0A"
                          and int(line.split()[1][9:], 16) in ports)
    until("servers that listen", 60, lambda: listens() == PAIRS)
    for n, p in enumerate(ports):
        os.mkfifo(f"{TMP}/fifo.{n}")
        start("client", "poll", str(p), str(CONNS), f"{TMP}/fifo.{n}")
        fifos.append(os.open(f"{TMP}/fifo.{n}", os.O_RDWR))
    said = lambda n, word: word in open(f"{TMP}/log.{PAIRS + n}").read()
    for n, fd in enumerate(fifos):
        until("a client's connections", 60, lambda: said(n, "connected"))
        os.write(fd, b"go 4\n")
    for n in range(PAIRS):
        until("a client's answers", 60, lambda: said(n, "done 4"))
    fast = lambda: sum(c["tx_path"] == c["rx_path"] == "shm"
                       for c in json_of("conn")["connections"])
    end, rounds = time.monotonic() + 60, 4
    while fast() < 2 * PAIRS * CONNS and time.monotonic() < end:
        rounds += 1
        for fd in fifos:
            os.write(fd, b"go 1\n")
        for n in range(PAIRS):
            until("a client's answers", 60, lambda: said(n, f"done {rounds}\n"))
    print(f"{fast() // 2} of {PAIRS * CONNS} connections on shared memory", flush=True)
    quiet = lambda: [os.times(), time.sleep(0.5), os.getloadavg()[0]][2] < 1.0
    end = time.monotonic() + 30
    # what set all this up has ended; others may have work of their own
    while not quiet() and time.monotonic() < end:
        pass


def cpu():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def run(args):
    t = time.perf_counter()
    with open(TMP + "/out", "wb") as out:
        p = subprocess.run([RDMASTAT, *args], env=BARE, stdout=out, stderr=subprocess.PIPE)
    t = time.perf_counter() - t
    if p.returncode or os.path.getsize(TMP + "/out") < 100:
        sys.exit(f"{args}: status {p.returncode}: {p.stderr.decode()}")
    return t


def run_top(args):
    """Until its first screen is there: its foot is the last that it draws."""
    t, out = time.perf_counter(), b""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.execve(RDMASTAT, [RDMASTAT, *args], BARE)
    while b"h help" not in out:
        if not select.select([fd], [], [], 20)[0]:
            sys.exit(f"{args}: no screen: {out}")
        out += os.read(fd, 65536)
    t = time.perf_counter() - t
    os.write(fd, b"q")
    while True:
        try:
            if not os.read(fd, 65536):
                break
        except OSError:
            break
    os.waitpid(pid, 0)
    os.close(fd)
    return t


def measure():
    pid = started[-1].pid
    commands = [(), ("--json",), ("conn",), ("conn", "--json"), ("conn", "pid", "=", str(pid)),
                ("conn", "-s", "bytes", "-o", "all"), ("link",), ("calls",), ("mr",),
                ("why", str(pid)), ("why", f"{pid}:5"), ("prometheus",), ("top",),
                ("top", "path", "shm")]
    times, used = {c: [] for c in commands}, {c: [] for c in commands}
    for _ in range(ROUNDS):
        for c in commands:
            before = cpu()
            times[c].append(1000 * (run_top if "top" in c else run)(c))
            used[c].append(1000 * (cpu() - before))
    bad = 0
    print(f"{2 * PAIRS} processes, {PAIRS * CONNS} connections, {ROUNDS} rounds, load "
          f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n{'command':40} {'median ms':>10} "
          f"{'worst ms':>10} {'cpu ms':>10}")
    for c, t in times.items():
        slow = statistics.median(t) > LIMIT
        bad += slow
        name = " ".join(("rdmastat", *c)).replace(str(pid), "PID") + (", its first screen"
            if "top" in c else "")
        print(f"{name:40} {statistics.median(t):10.0f} {max(t):10.0f} "
              f"{statistics.median(used[c]):10.0f}{'   MORE THAN %.0f' % LIMIT if slow else ''}",
              flush=True)
    return bad


def kill_while_reading():
    clients, read = started[PAIRS:], 0
    loops = [subprocess.Popen(["sh", "-c", 'while "$0" "$@" >"$OUT" || exit 1; do echo >>"$OUT.n"; '
                               'done', RDMASTAT, *args],
                              env=dict(BARE, OUT=f"{TMP}/loop.{n}"),
                              stderr=open(f"{TMP}/loop.{n}.err", "w"), preexec_fn=os.setpgrp)
             for n, args in enumerate((("conn",), ("link",)))]
    for p in clients:
        p.kill()
        p.wait()
        j = json_of("conn")         # a whole document each time
        read += len(j["connections"]) >= 0
    until("only the servers", 60, lambda: len(json_of("--all")["processes"]) == PAIRS)
    for n, p in enumerate(loops):
        alive = p.poll() is None
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        err = open(f"{TMP}/loop.{n}.err").read()
        if not alive or err:
            sys.exit(f"rdmastat gave up while processes died: {err}")
    print(f"{len(clients)} processes killed while it read: "
          f"{read + sum(len(open(f'{TMP}/loop.{n}.n').read()) for n in (0, 1))} answers, all whole")


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        set_up()
        bad = measure()
        kill_while_reading()
    finally:
        for p in started:
            p.kill()
        for p in started:
            p.wait()
        shutil.rmtree(TMP)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
