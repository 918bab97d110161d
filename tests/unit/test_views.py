#!/usr/bin/env python3
"""What rdmastat's views make of counter files: what is ranked, folded and summed, and by what name
a connection is found.

usage: test_views.py path/to/rdmastat
"""
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_rdmastat as base  # takes the program's path off sys.argv
import test_tools as tools
from test_rdmastat import header, row

L, S = "127.0.0.1", 6379


class Views(tools.Tools):
    """The tests of the base classes run in their own files."""

    def test_address(self):
        """An address alone is that of either end."""
        self.put(header(self.pid, rows_used=3)
                 + row(7, (L, S), (L, 5001), 1, 1, (0, 0, 0), (0, 0, 0))
                 + row(8, ("10.0.0.1", 5002), (L, S), 0, 0, (0, 0, 0), (0, 0, 0))
                 + row(9, ("::1", 80), ("fe80::2", 81), 0, 0, (0, 0, 0), (0, 0, 0), family=10))
        for expr, want in ((f"{L}:{S}", [7, 8]), (f"{L}:5001", [7]), ("10.0.0.0/8", [8]), ("[::1]:80", [9]),
                           ("[fe80::2]", [9]), (f"{L}:{S} tx tcp", [8]), (f"not {L}:{S}", [9]),
                           ("10.0.0.1 or [::1]:*", [8, 9]), (f"{L}:1", []), ("*:81", [9])):
            self.assertEqual(self.fds(*expr.split()), want, expr)
            self.assertEqual(self.fds(expr), want, expr)
        for bad, word in (("127.0.0.1:x", "port"), ("1.2.3", "IPv4"), ("127.0.0.1:", "port")):
            self.assertIn(word, self.run_it("conn", bad, rc=2).stderr)
    def test_ranked_by_live_bytes(self):
        """Ten thousand short connections matter less than one that moves bytes now."""
        self.put(header(self.pid, rows_used=4, counters=(11000, 3), reasons=((1, 10000), (6, 1), (10, 900)))
                 + row(7, (L, S), (L, 5001), 0, 0, (3 << 20, 0, 0), (1 << 20, 9, 0), reason=6)
                 + row(8, (L, S), (L, 5002), 0, 0, (100, 0, 0), (0, 0, 0), reason=1)
                 + row(9, (L, S), (L, 5003), 1, 1, (1 << 30, 0, 0), (0, 0, 0))
                 + row(10, (L, S), (L, 5004), 0, 0, (1 << 40, 0, 0), (0, 0, 0), reason=10, state=3))
        r = json.loads(self.run_it("--json").stdout)["total"]["reasons"]
        self.assertEqual([(x["reason"], x["connections"], x.get("live_bytes")) for x in r],
                         [("peer-no-shim", 1, 4 << 20), ("not-earned", 10000, 100), ("shared-by-fork", 900, 0)])
        self.assertRegex(self.run_it().stdout, r"(?s)4\.0M +1 peer-no-shim .* 100 +10000 not-earned .* - +900 shared-by-fork ")
        self.assertRegex(self.run_it("why", str(self.pid)).stdout,
                         r"(?s)1 connection, peer-no-shim \(4\.0M in open ones\): .*10000 connections, not-earned \(100 in open ones\): ")
        rows = b"".join(row(20 + i, (L, S), (L, 5001 + i), 0, 0, (i % 7 * 1000 + i, 0, 0), (0, 0, 0), reason=6) for i in range(30))
        self.put(header(self.pid, rows_used=30, counters=(30,), reasons=((6, 30),)) + rows)
        shown = [int(x) for x in re.findall(rf"(?m)^{self.pid}:(\d+) ", self.run_it("why", str(self.pid)).stdout)]
        self.assertEqual(shown, [20 + i for i in (27, 20, 13, 6, 26, 19, 12, 5, 25, 18)])
        self.assertRegex(self.run_it("-o", "pid,reason").stdout, rf"(?m)^ *{self.pid} peer-no-shim$")

    def test_slow_reader(self):
        """Its connection is on the fast path again, and still that is why bytes went by TCP."""
        self.put(header(self.pid, rows_used=1, counters=(1, 1, 13, 12, 0, 0, 0, 0, 0, 12), reasons=((1, 0),))
                 + row(7, (L, S), (L, 5001), 1, 1, (5 << 20, 9 << 20, 0), (0, 0, 0), cuts=13, rewinds=12))
        want = r"overflow.*reader too slow 12 times: the ring was full(?s:.*)raise ring_size"
        self.assertRegex(self.run_it().stdout, want)
        self.assertRegex(self.run_it("why", str(self.pid)).stdout, want)
        self.assertEqual([x["reason"] for x in json.loads(self.run_it("--json").stdout)["total"]["reasons"]], ["overflow"])
        self.put(header(self.pid, counters=(1, 1, 1, 1, 0, 0, 0, 0, 0, 1)))
        self.assertIn("too slow 1 time:", self.run_it().stdout)
        self.put(header(self.pid, counters=(1, 1, 1, 1)))
        self.assertNotIn("overflow", self.run_it().stdout)

    def dead(self, program, **kw):
        child = subprocess.Popen(["true"])
        pid = child.pid
        start = base.start_time(pid)
        child.wait()
        self.put(header(pid, program=program, start=start, **kw), name=pid)
        return pid

    def test_ended_children_folded(self):
        """What a server's children did is one line; what ended alone keeps its number."""
        for i in range(30):
            self.dead(b"server", counters=(2, 1), reasons=((1, 1),), tx=(10, 100, 0))
        alone = self.dead(b"other", counters=(7,), tx=(3, 0, 0))
        self.put(header(self.pid, program=b"server", counters=(5, 5), tx=(0, 70, 0)))
        lines = [l.split() for l in self.run_it("--all", "-o", "pid,program,mode,conns,tcp,shm").stdout.split("\n\n")[0].splitlines()]
        self.assertEqual(sorted(lines[1:]), sorted([
            [str(self.pid), "server", "on", "5", "0", "70"], ["30", "ended", "server", "dead", "60", "300", "2.9K"],
            [str(alone), "other", "dead", "7", "3", "0"], ["total", "72", "303", "3.0K"]]))
        self.assertEqual(os.listdir(self.dir), [str(self.pid)])
        for i in range(3):
            self.dead(b"server", tx=(10, 100, 0))
        self.assertEqual(len(json.loads(self.run_it("--json", "--all").stdout)["processes"]), 4)

    def test_top_keeps_the_ended(self):
        """A child that ends takes nothing away from what is shown, and its bytes are no new ones."""
        plain = lambda b: re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\(B", b"", b).decode("utf-8", "replace")
        child = subprocess.Popen(["sleep", "60"])
        self.put(header(child.pid, program=b"server", counters=(5, 5), tx=(0, 7 << 20, 0)), name=child.pid)
        end = lambda: (child.kill(), child.wait())
        out, rc = self.on_terminal(("top", "-w", "1", "-n", "20"), keys=((b"1 process,", end), (b"1 ended", b"q")))
        self.assertEqual(rc, 0)
        self.assertNotRegex(plain(out), r"\d[KM]")  # nothing has moved
        self.assertIn("100.0%", plain(out))
        # its file is not ours to remove while rdmarun looks after it: it is counted once
        sub = os.path.join(self.dir, f"run.{os.getpid()}")
        os.mkdir(sub, 0o700)
        for i in range(4):
            os.rename(os.path.join(self.dir, str(p := self.dead(b"run", tx=(0, 1 << 20, 0)))), f"{sub}/{p}")
        out, rc = self.on_terminal(("top", "-w", "1", "-n", "3"))
        self.assertRegex(plain(out), r"4 ended run")
        self.assertNotRegex(plain(out), r"\b([1-35-9]|[1-9]\d+) ended run|\b8")


for name in dir(tools.Tools):
    if name.startswith("test_"):
        setattr(Views, name, None)  # not twice

if __name__ == "__main__":
    unittest.main()
