#!/usr/bin/env python3
"""What it costs on the hot path that a peer may lie: the library against a build of a copy of
its sources in which what the peer wrote is believed (each `if (...) return -EPROTO;` of FILES
is taken out; what it calls is still called). Never installed: it lies in a temporary
directory. tests/bench/hot sends and receives messages of 64 bytes, both ends in one thread,
so that nothing waits:
  instructions of a message, by callgrind, the difference between two numbers of messages;
  time of a message, ROUNDS pairs of runs in the order ABBA: the median of the pairs' ratios, and
  the quartiles.
Exit status 1 if the instructions are more than LIMIT percent.

usage: validation.py [ROUNDS]      environment: B build directory, SHIM the library, LIMIT (2.0),
MESSAGES a timed run, SIZE
"""
import glob
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

import counters

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
B, LIMIT = os.environ.get("B", "build"), float(os.environ.get("LIMIT", "2.0"))
ROUNDS, MESSAGES, SIZE = int((sys.argv + ["20"])[1]), os.environ.get("MESSAGES",
    "1000000"), os.environ.get("SIZE", "64")
FILES = ["rdma/shm/ring.h", "shim/conn/stream_send.c", "shim/conn/stream_recv.c",
         "shim/conn/stream_direct.c"]
CHECK = re.compile(r"^(\t+)if \((.*(?:\n\t+ .*)*)\)(?:\n\t+| )return -EPROTO;", re.M)


def believing(tmp):
    """The library without the checks."""
    src = tmp + "/src"
    os.mkdir(src)
    for d in ("shim", "rdma", "policy", "tools", "tests"):
        shutil.copytree(f"{TOP}/{d}", f"{src}/{d}", ignore=shutil.ignore_patterns("corpus"))
    shutil.copy(TOP + "/Makefile", src)
    for name in FILES:
        text = open(f"{src}/{name}").read()
        text, n = CHECK.subn(r"\1(void)(\2);", text)
        if not n:
            sys.exit(f"{name}: no check to take out")
        print(f"{name}: {n} checks taken out")
        open(f"{src}/{name}", "w").write(text)
    env = {k: v for k, v in os.environ.items() if k not in ("MAKELEVEL", "MAKEFLAGS",
                                                            "MAKEOVERRIDES", "B", "SHIM")}
    env["CFLAGS"] = "-Wno-unused-value"
    p = subprocess.run(["make", "-s", "-C", src, f"-j{os.cpu_count()}", "build/librdmashim.so"],
                       env=env, capture_output=True, text=True)
    if p.returncode:
        sys.exit(p.stderr[-3000:])
    return src + "/build/librdmashim.so"


def place(tmp, name, lib):
    """A directory with the library and what a run of it wants."""
    d = f"{tmp}/{name}"
    os.makedirs(d + "/stat", 0o700)
    os.chmod(d + "/stat", 0o700)
    shutil.copy(lib, d + "/librdmashim.so")
    open(d + "/conf", "w").write("earn_bytes 0\nearn_rounds 0\n")
    return d


def timed(d):
    """User and system time of a run, in ns a message."""
    env = dict(os.environ, LD_PRELOAD=d + "/librdmashim.so", RDMASHIM_CONF=d + "/conf",
               RDMASHIM_STAT_DIR=d + "/stat")
    pid = os.posix_spawn(B + "/bench/hot", ["hot", MESSAGES, SIZE], env)
    _, status, use = os.wait4(pid, 0)
    if status:
        sys.exit(f"hot: status {status}")
    return (use.ru_utime + use.ru_stime) / int(MESSAGES) * 1e9


def instructions(d):
    few, many = counters.run(d, counters.FEW, int(SIZE)), counters.run(d, counters.MANY, int(SIZE))
    return (sum(many.values()) - sum(few.values())) / (counters.MANY - counters.FEW)


def main():
    tmp = tempfile.mkdtemp(prefix="rdmashim-validation.")
    try:
        a = place(tmp, "checks", os.environ.get("SHIM", B + "/librdmashim.so"))
        b = place(tmp, "believes", believing(tmp))
        with_checks, without = instructions(a), instructions(b)
        share = 100 * (with_checks - without) / without
        print(f"instructions of a message of {SIZE} bytes: {with_checks:.1f}, without the checks "
              f"{without:.1f}: {share:+.2f} %", flush=True)
        ratios = []
        for i in range(ROUNDS):
            first, second = (a, b) if i % 2 == 0 else (b, a)
            x, y = timed(first), timed(second)
            ratios.append(x / y if first is a else y / x)
        if ratios:
            q = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            print(f"time: median {100 * (q[1] - 1):+.2f} %, quartiles {100 * (q[0] - 1):+.2f} "
                  f"{100 * (q[2] - 1):+.2f} %, {ROUNDS} pairs ABBA of {MESSAGES} messages")
        return share > LIMIT
    finally:
        shutil.rmtree(tmp)


if __name__ == "__main__":
    sys.exit(main())
