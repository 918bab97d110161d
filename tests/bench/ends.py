#!/usr/bin/env python3
"""What the library costs where only one end has it, so that it cannot help: three pairs of a
server and a client take turns: in "onebare" neither end has it, in "client" and "server" that
one. A cost of a hundredth is looked for, on machines whose pace changes by a third within
seconds; so each pair keeps its connection and measures for some 20 ms at a time. All on one
processor: on two the scheduler's choice alone makes TCP several times slower or faster. Where
the kernel puts a pair's buffers is worth 6 % of stream_65536 to it: each set has new pairs,
and is worth one value, the median of its turns.

usage: ends.py SOCKBENCH SETS NAME=VALUE...	the environment of who has the library; prints "WAY
						FIGURE VALUE UNIT"
"""
import os
import socket
import statistics
import subprocess
import sys

FIGURES = os.environ.get("FIGURES", "rtt_64 stream_64 stream_65536 connections").split()
WAYS = ["onebare", "client", "server"]
BREAK_IN, TURNS = 15, 12    # after the first the search for the other end is over
SOCKBENCH, SETS = sys.argv[1], int(sys.argv[2])
WITH = dict(os.environ, **dict(a.split("=", 1) for a in sys.argv[3:]))


def start(has, *args):
    return subprocess.Popen(["taskset", "-c", "0", SOCKBENCH, *args], env=WITH if has
                            else os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)


def serve(has):
    """A server that listens, and its port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    p = start(has, "-s", port)
    while not subprocess.run(["ss", "-Hltn", "sport = :" + port], capture_output=True).stdout:
        if p.poll() is not None:
            sys.exit("ends.py: a server ended")
    return p, port


def answer(client):
    """(figure, value, unit) of it and of the CPU time."""
    lines = [client.stdout.readline().split() for _ in range(2)]
    if not all(lines):
        sys.exit("ends.py: a client ended")
    return lines


def measure(figure):
    servers = {way: serve(way == "server") for way in WAYS}
    ways = [(way, start(way == "client", "-u", "-i", "-t", "0.02", "-f", figure, "-c", "127.0.0.1",
                        servers[way][1])) for way in WAYS]
    values, units = {}, {}
    for turn in range(BREAK_IN + TURNS):
        for way, client in ways:
            if turn:
                print("again", file=client.stdin, flush=True)
            for name, value, unit in answer(client):
                units[name] = unit
                if turn >= BREAK_IN:
                    values.setdefault((way, name), []).append(float(value))
        ways.append(ways.pop(0))
    for _, client in ways:
        client.stdin.close()
        client.wait()
    for server, _ in servers.values():
        server.wait()
    for (way, name), got in values.items():
        print(way, name, statistics.median(got), units[name], flush=True)


for i in range(SETS):
    if i % 5 == 0:
        print(f"one end only, {i + 1} of {SETS}", file=sys.stderr)
    for figure in FIGURES:
        measure(figure)
