#!/usr/bin/env python3
"""What the counters and probes cost on the hot path: of the instructions of a message
(tests/bench/hot: both ends in one thread, on shared memory, nothing waits), how many belong
to source lines that count or trace. Callgrind counts them, with two numbers of messages; the
difference between the two has no start or end of a program in it. Exit status 1 if they are
more than LIMIT percent.

usage: counters.py [SIZE...]       environment: B build directory, SHIM the library, LIMIT (1.0)
"""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
B, LIMIT = os.environ.get("B", "build"), float(os.environ.get("LIMIT", "1.0"))
FEW, MANY = 5000, 15000
SIZES = [int(a) for a in sys.argv[1:]] or [64, 1024, 16384]
COUNTS = re.compile(r"\bstat_\w+\(|\bcount\(|\bcount_move\(|\bTRACE\d\(")
BODIES = {"shim/conn/stream_io.h": r"^static inline void count\(", "policy/stat.h": r"^static "
          r"inline .*\bstat_\w+\("}


def counting_lines():
    """(file, line) of all source lines that count or trace: where it is called for, and where it
    is done."""
    found = set()
    for path in glob.glob(TOP + "/shim/*/*.[ch]") + glob.glob(TOP + "/rdma/*/*.[ch]") + glob.glob(
        TOP + "/policy/stat.[ch]") + [TOP + "/policy/stat_file.c"]:
        name, inside = os.path.relpath(path, TOP), False
        for n, text in enumerate(open(path), 1):
            inside = inside and text != "}\n"
            if name in ("policy/stat.c", "policy/stat_file.c") or inside or COUNTS.search(text):
                found.add((name, n))
            if name in BODIES and re.match(BODIES[name], text) and ";" not in text:
                inside = True
    return found


def costs(path):
    """Instructions by (object, file, line), each line's own, from a file of callgrind's."""
    names, cost = {}, collections.Counter()
    ob = fl = ""
    line = 0
    called = False
    for text in open(path):
        m = re.match(r"(ob|fl|fi|fe|fn|cob|cfi|cfl|cfn)=(\(\d+\))(?: (.*))?$", text)
        if m:
            what, kind = m[1], "ob" if m[1].endswith("ob") else "fn" if m[1].endswith(
                "fn") else "fl"
            if m[3]:
                names[kind, m[2]] = m[3]
            if what == "ob":
                ob = names[kind, m[2]]
            elif what in ("fl", "fi", "fe"):
                fl = names[kind, m[2]]
            continue
        if text.startswith("calls="):
            called = True
            continue
        m = re.match(r"(\d+|[+-]\d+|\*) (\d+)$", text)
        if m:
            line = line if m[1] == "*" else line + int(m[1]) if m[1][0] in "+-" else int(m[1])
            if not called:      # else: what the callee cost
                cost[ob, fl, line] += int(m[2])
            called = False
    return cost


def run(tmp, n, size):
    env = dict(os.environ, LD_PRELOAD=tmp + "/librdmashim.so", RDMASHIM_CONF=tmp + "/conf",
               RDMASHIM_STAT_DIR=tmp + "/stat")
    out = f"{tmp}/cg.{n}.{size}"
    p = subprocess.run(["valgrind", "-q", "--tool=callgrind", "--separate-threads=yes",
                        "--callgrind-out-file=" + out, B + "/bench/hot", str(n), str(size)],
                       env=env, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"hot: status {p.returncode}: {p.stderr[-2000:]}")
    return costs(out + "-01")   # the program's own thread


def main():
    tmp = tempfile.mkdtemp(prefix="rdmashim-counters.")
    try:
        lib = os.path.realpath(shutil.copy(os.environ.get("SHIM", B + "/librdmashim.so"), tmp))
        os.mkdir(tmp + "/stat", 0o700)
        with open(tmp + "/conf", "w") as f:
            f.write("earn_bytes 0\nearn_rounds 0\n")
        counting, bad = counting_lines(), False
        print(f"{'size':>6} {'instructions a message':>23} {'of them in the library':>23} "
              f"{'counters, probes':>17} {'share':>7}")
        for size in SIZES:
            few, many = run(tmp, FEW, size), run(tmp, MANY, size)
            many.subtract(few)
            per = lambda wanted: sum(c for k, c in many.items() if wanted(k)) / (MANY - FEW)
            source = lambda k: os.path.relpath(k[1], TOP) if os.path.isabs(
                k[1]) else os.path.normpath(k[1])
            mine = lambda k: os.path.realpath(k[0]) == lib
            all_of_it, own, counted = per(lambda k: True), per(mine), per(lambda k: mine(k)
                and (source(k), k[2]) in counting)
            if not counted:
                sys.exit("no instruction was found to count: was the library built with -g?")
            print(f"{size:6} {all_of_it:23.1f} {own:23.1f} {counted:17.1f} "
                  f"{100 * counted / all_of_it:6.2f}%", flush=True)
            if os.environ.get("V"):
                for k, c in sorted(many.items(), key=lambda i: -i[1])[:400]:
                    if mine(k) and (source(k), k[2]) in counting and c:
                        print(f"\t{source(k)}:{k[2]} {c / (MANY - FEW):.1f}")
            bad = bad or 100 * counted / all_of_it > LIMIT
        return 1 if bad else 0
    finally:
        shutil.rmtree(tmp)


if __name__ == "__main__":
    sys.exit(main())
