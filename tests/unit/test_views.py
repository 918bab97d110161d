#!/usr/bin/env python3
"""What rdmastat's views make of counter files: what is ranked, folded and summed, and by what name
a connection is found.

usage: test_views.py path/to/rdmastat
"""
import json
import os
import re
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_rdmastat as base  # takes the program's path off sys.argv
import test_tools as tools
from test_rdmastat import header, row

L, S = "127.0.0.1", 6379


def plain(b):
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\(B", b"", b).decode("utf-8", "replace")


class Views(tools.Tools):
    """The tests of the base classes run in their own files."""

    def test_address(self):
        """An address alone is that of either end."""
        self.put(header(self.pid, rows_used=3)
                 + row(7, (L, S), (L, 5001), 1, 1, (0, 0, 0), (0, 0, 0))
                 + row(8, ("10.0.0.1", 5002), (L, S), 0, 0, (0, 0, 0), (0, 0, 0))
                 + row(9, ("::1", 80), ("fe80::2", 81), 0, 0, (0, 0, 0), (0, 0, 0), family=10))
        for expr, want in ((f"{L}:{S}", [7, 8]), (f"{L}:5001", [7]), ("10.0.0.0/8", [8]),
            ("[::1]:80", [9]),
                           ("[fe80::2]", [9]), (f"{L}:{S} tx tcp", [8]), (f"not {L}:{S}", [9]),
                           ("10.0.0.1 or [::1]:*", [8, 9]), (f"{L}:1", []), ("*:81", [9])):
            self.assertEqual(self.fds(*expr.split()), want, expr)
            self.assertEqual(self.fds(expr), want, expr)
        for bad, word in (("127.0.0.1:x", "port"), ("1.2.3", "IPv4"), ("127.0.0.1:", "port")):
            self.assertIn(word, self.run_it("conn", bad, rc=2).stderr)
    def test_ranked_by_live_bytes(self):
        """Ten thousand short connections matter less than one that moves bytes now."""
        self.put(header(self.pid, rows_used=4, counters=(11000, 3), reasons=((1, 10000), (6, 1),
            (10, 900)))
                 + row(7, (L, S), (L, 5001), 0, 0, (3 << 20, 0, 0), (1 << 20, 9, 0), reason=6)
                 + row(8, (L, S), (L, 5002), 0, 0, (100, 0, 0), (0, 0, 0), reason=1)
                 + row(9, (L, S), (L, 5003), 1, 1, (1 << 30, 0, 0), (0, 0, 0))
                 + row(10, (L, S), (L, 5004), 0, 0, (1 << 40, 0, 0), (0, 0, 0), reason=10, state=3))
        r = json.loads(self.run_it("--json").stdout)["total"]["reasons"]
        self.assertEqual([(x["reason"], x["connections"], x.get("live_bytes")) for x in r],
                         [("peer-no-shim", 1, 4 << 20), ("not-earned", 10000, 100),
                             ("shared-by-fork", 900, 0)])
        self.assertRegex(self.run_it().stdout,
            r"(?s)4\.0M +1 peer-no-shim .* 100 +10000 not-earned .* - +900 shared-by-fork ")
        self.assertRegex(self.run_it("why", str(self.pid)).stdout,
                         r"(?s)1 connection, peer-no-shim \(4\.0M in open ones\): .*10000 "
                         r"connections, not-earned \(100 in open ones\): ")
        rows = b"".join(row(20 + i, (L, S), (L, 5001 + i), 0, 0, (i % 7 * 1000 + i, 0, 0), (0, 0,
            0), reason=6) for i in range(30))
        self.put(header(self.pid, rows_used=30, counters=(30,), reasons=((6, 30),)) + rows)
        shown = [int(x) for x in re.findall(rf"(?m)^{self.pid}:(\d+) ", self.run_it("why",
            str(self.pid)).stdout)]
        self.assertEqual(shown, [20 + i for i in (27, 20, 13, 6, 26, 19, 12, 5, 25, 18)])
        self.assertRegex(self.run_it("-o", "pid,reason").stdout,
            rf"(?m)^ *{self.pid} peer-no-shim$")

    def test_slow_reader(self):
        """Its connection is on the fast path again, and still that is why bytes went by TCP."""
        self.put(header(self.pid, rows_used=1, counters=(1, 1, 13, 12, 0, 0, 0, 0, 0, 12),
            reasons=((1, 0),))
                 + row(7, (L, S), (L, 5001), 1, 1, (5 << 20, 9 << 20, 0), (0, 0, 0), cuts=13,
                     rewinds=12))
        want = r"overflow.*reader too slow 12 times: the ring was full(?s:.*)raise ring_size"
        self.assertRegex(self.run_it().stdout, want)
        self.assertRegex(self.run_it("why", str(self.pid)).stdout, want)
        self.assertEqual([x["reason"] for x in
            json.loads(self.run_it("--json").stdout)["total"]["reasons"]], ["overflow"])
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
        lines = [l.split() for l in self.run_it("--all", "-o",
            "pid,program,mode,conns,tcp,shm").stdout.split("\n\n")[0].splitlines()]
        self.assertEqual(sorted(lines[1:]), sorted([
            [str(self.pid), "server", "on", "5", "0", "70"], ["30", "ended", "server", "dead",
                "60", "300", "2.9K"],
            [str(alone), "other", "dead", "7", "3", "0"], ["total", "72", "303", "3.0K"]]))
        self.assertEqual(os.listdir(self.dir), [str(self.pid)])
        for i in range(3):
            self.dead(b"server", tx=(10, 100, 0))
        self.assertEqual(len(json.loads(self.run_it("--json", "--all").stdout)["processes"]), 4)

    def test_top_keeps_the_ended(self):
        """A child that ends takes nothing away from what is shown, its bytes are no new ones."""
        child = subprocess.Popen(["sleep", "60"])
        self.put(header(child.pid, program=b"server", counters=(5, 5), tx=(0, 7 << 20, 0)),
            name=child.pid)
        end = lambda: (child.kill(), child.wait())
        out, rc = self.on_terminal(("top", "-w", "1", "-n", "20"), keys=((b"1 process,", end),
            (b"1 ended", b"q")))
        self.assertEqual(rc, 0)
        self.assertNotRegex(plain(out), r"\d[KM]")  # nothing has moved
        self.assertIn("100.0%", plain(out))
        # its file is not ours to remove while rdmarun looks after it: it is counted once
        sub = os.path.join(self.dir, f"run.{os.getpid()}")
        os.mkdir(sub, 0o700)
        for i in range(4):
            os.rename(os.path.join(self.dir, str(p := self.dead(b"run", tx=(0, 1 << 20, 0)))),
                f"{sub}/{p}")
        out, rc = self.on_terminal(("top", "-w", "1", "-n", "3"))
        self.assertRegex(plain(out), r"4 ended run")
        self.assertNotRegex(plain(out), r"\b([1-35-9]|[1-9]\d+) ended run|\b8")

    def test_under_way(self):
        """What one end has sent less what the other has read, in the connection's own bytes:
        their counters may have begun at different ones."""
        child = subprocess.Popen(["sleep", "60"])
        self.addCleanup(lambda: (child.kill(), child.wait()))
        def put(sent, read, back=0, ring=1 << 16, path=1, far=None):
            by = lambda n: tuple(n if k == path else 0 for k in range(3))
            self.put(header(self.pid, program=b"here", rows_used=1)
                     + row(7, (L, S), (L, 5001), path, path, by(sent), by(10), bases=(1000, 3000),
                         ring=ring, fulls=4, overflows=2))
            self.put(header(child.pid, program=b"there", rows_used=1)
                     + row(9, (L, 5001), (L, S), path if far is None else far,
                         path if far is None else far, by(back), by(read),
                           bases=(3010, 1500)), name=child.pid)
        def conn():
            return {c["fd"]: c for c in json.loads(self.run_it("conn",
                "--json").stdout)["connections"]}
        put(8000, 500)
        c = conn()
        self.assertEqual((c[7]["send_queue"], c[9]["receive_queue"], c[9]["send_queue"]), (7000,
            7000, 0))
        self.assertEqual((c[7]["ring_bytes"], c[7]["ring_full"], c[7]["overflows"],
            c[9]["ring_full"]), (1 << 16, 4, 2, 0))
        text = self.run_it("conn", "-p", str(self.pid), "-o",
            "fd,sendq,recvq,ring,fill,full,slow,rtt").stdout.splitlines()
        self.assertEqual(text[1].split(), ["7", "6.8K", "0", "64.0K", "10.7%", "4", "2", "-"])
        self.assertEqual([l.split()[0] for l in self.run_it("conn", "-s", "sendq", "-o",
            "fd").stdout.splitlines()[1:]], ["7", "9"])
        why = self.run_it("why", f"{self.pid}:7").stdout
        self.assertRegex(why,
            r"(?m)^under way +6\.8K sent that the other end has not read \(10\.7% of a ring of "
            r"64\.0K\), 0 of its not read here$")
        self.assertRegex(why,
            r"of these 2 since the reader was too slow, found its ring too full 4 times")
        put(100, 9000)  # the other file was read later
        self.assertEqual(conn()[7]["send_queue"], 0)
        for k in ({"far": 0}, {"far": 2}):  # not yet, or no longer, on that path
            put(8000, 500, **k)
            self.assertIsNone(conn()[7]["send_queue"])
        put((1 << 59), 0)  # nonsense
        self.assertIsNone(conn()[7]["send_queue"])
        self.put(header(child.pid), name=child.pid)
        self.assertEqual((conn()[7]["send_queue"], conn()[7]["receive_queue"]), (None, None))

    def test_round_trip(self):
        """Of the queue pair that the connection is on."""
        rows = (row(7, (L, S), (L, 5001), 2, 2, (0, 0, 1), (0, 0, 1), qp=2)
                + row(8, (L, S), (L, 5002), 2, 2, (0, 0, 1), (0, 0, 1), qp=1) + row(9, (L, S), (L,
                    5003), 2, 2, (0, 0, 1), (0, 0, 1), qp=9))
        self.put((header(self.pid, rows_used=3) + rows).ljust(base.LINKS_AT, b"\0")
                 + base.links(base.link(1, 2, 1, rtt=0), base.link(3, 4, 1, rtt=12345)))
        c = {c["fd"]: c["rtt_ns"] for c in json.loads(self.run_it("conn",
            "--json").stdout)["connections"]}
        self.assertEqual(c, {7: 12345, 8: None, 9: None})
        self.assertRegex(self.run_it("why", f"{self.pid}:7").stdout,
            r"round trip +12\.3us, by the queue pair")

    def test_kernel_queues(self):
        """On TCP the kernel says what waits, and how long a round is."""
        with socket.create_server((L, 0)) as srv, socket.create_connection(srv.getsockname()) as a:
            b, _ = srv.accept()
            with b:
                a.sendall(b"x" * 777)
                ends = a.getsockname(), b.getsockname()
                self.put(header(self.pid, rows_used=2) + row(a.fileno(), ends[0], ends[1], 0, 0,
                    (777, 0, 0), (0, 0, 0), reason=6)
                         + row(b.fileno(), ends[1], ends[0], 0, 0, (0, 0, 0), (0, 0, 0), reason=6))
                c = {c["fd"]: c for c in json.loads(self.run_it("conn",
                    "--json").stdout)["connections"]}
                self.assertEqual((c[b.fileno()]["receive_queue"], c[a.fileno()]["receive_queue"]),
                    (777, 0))
                self.assertGreater(c[a.fileno()]["rtt_ns"], 0)
                self.assertIn("by the kernel on its TCP connection", self.run_it("why",
                    f"{self.pid}:{a.fileno()}").stdout)

    def test_link_errors(self):
        self.put(header(self.pid, counters=(9, 1, 0, 0, 5, 2, 0, 0, 0, 0, 3, 1, 0, 0, 0, 4),
            link_errors=((7, 3), (35, 12))))
        text = self.run_it("link", env={"COLUMNS": "100"}).stdout
        self.assertIn("5 links made, 2 ended, 4 by RDMA died; 3 requests of others refused, 1 "
                      "dropped", text)
        self.assertRegex(text, r"(?m)^ +3 peer-refused: the library .*\n +-> look at")
        self.assertRegex(text, r"(?m)^ +12 wrong-key: ")
        j = json.loads(self.run_it("link", "--json").stdout)
        self.assertEqual([(e["reason"], e["times"]) for e in j["errors"]], [("peer-refused", 3),
            ("wrong-key", 12)])
        self.assertEqual([j[k] for k in ("links_made", "links_ended", "paths_lost", "refused",
            "bad_peer")], [5, 2, 4, 3, 1])
        self.run_it("reset")
        self.assertEqual(json.loads(self.run_it("link", "--json").stdout)["errors"], [])

    def test_rings_and_waits(self):
        """Of connections that are closed, and of those that are open."""
        counters = [0] * 22
        counters[7], counters[8], counters[19], counters[20], counters[21] = 30, 10, 5, 3, 8
        self.put(header(self.pid, rows_used=1, counters=counters) + row(7, (L, S), (L, 5001), 1, 1,
            (0, 1, 0), (0, 1, 0), fulls=4))
        p = json.loads(self.run_it("--json").stdout)["processes"][0]
        self.assertEqual((p["waits_polled"], p["counters"]["ring_full"]), (0.25, 9))
        self.assertEqual(self.run_it("-o",
            "polled,full,enlarged,reused").stdout.splitlines()[1].split(), ["25.0%", "9", "3", "8"])
        why = self.run_it("why", str(self.pid)).stdout
        self.assertRegex(why, r"(?m)^waits +25\.0% of them ")
        self.assertRegex(why,
            r"(?m)^rings +9 times too full for a send, 3 made larger, 8 used again$")

    def test_memory_of_rings(self):
        counters = [0] * 24
        counters[22], counters[23] = 11, 12
        self.put(header(self.pid, counters=counters, rings=(3, 3 << 20, 1 << 30)))
        p = json.loads(self.run_it("--json").stdout)["processes"][0]
        self.assertEqual([p[k] for k in ("rings_held", "ring_bytes", "ring_budget")],
            [3, 3 << 20, 1 << 30])
        line = self.run_it("-o", "rings,ring-bytes,rested").stdout.splitlines()[1]
        self.assertEqual(line.split(), ["3", "3.0M", "11"])
        self.assertRegex(self.run_it("why", str(self.pid)).stdout, r"(?m)^memory +3 rings with "
            r"3\.0M of at most 1\.0G; given back unused 11 times, refused 12$")
        self.assertIn("ring_budget_bytes{", self.run_it("prometheus").stdout)

    def named(self, program, *argv, rows=(), **kw):
        """A live process of that name in the counter files, with these arguments."""
        child = subprocess.Popen(argv, **kw)
        self.addCleanup(lambda: (child.kill(), child.wait()))
        sleep = os.path.realpath("/bin/sleep")
        while os.path.realpath(f"/proc/{child.pid}/exe") != sleep:
            pass  # exec has not happened yet
        self.put(header(child.pid, program=program, rows_used=len(rows)) + b"".join(rows),
            name=child.pid)
        return child.pid

    def test_what_tells_them_apart(self):
        """Where several have one name: the port that they serve, else arguments."""
        served = [row(7, (L, S), (L, 5001), 1, 1, (0, 1, 0), (0, 1, 0)), row(8, (L, S), (L, 5002),
            1, 1, (0, 1, 0), (0, 1, 0)),
                  row(9, (L, 6380), (L, 5003), 1, 1, (0, 1, 0), (0, 1, 0))]
        pids = {self.named(b"sleep", "sleep", "600", rows=served): ":6379 :6380",
            self.named(b"sleep", "sleep", "601", "0"): "601 0",
                self.named(b"sleep", "evil\033[31m: idle", "602",
                    executable="/bin/sleep"): "evil?[31m: idle 602"}
        other = self.named(b"other", "sleep", "603")
        wide = {"COLUMNS": "120"}
        def what(*args, env=wide):
            lines = self.run_it(*args, env=env).stdout.split("\n\n")[0].splitlines()
            if "WHAT" not in lines[0]:
                return None
            at = lines[0].index("WHAT")
            end = lines[0].index("MODE") if "MODE" in lines[0] else None
            return {int(l.split()[0]): l[at:end].strip() for l in lines[1:] if not l.split()[0] ==
                "total"}
        self.assertEqual(what(), {**pids, other: ""})
        self.assertEqual(what("-o", "pid,what", env={}), {**pids, other: "sleep 603"})
        self.assertIsNone(what(env={}))
        self.assertIsNone(what("-o", "all"))  # a bundle has that
        self.assertIsNone(what("-P", "other"))
        self.assertNotIn("601 0", self.run_it("--json").stdout)
        out, rc = self.on_terminal(("top", "-n", "1"), cols=120)
        for text in ("WHAT", ":6379 :6380", "601 0", "evil?[31m: idle 602"):
            self.assertIn(text, plain(out))
        self.assertNotIn("WHAT", plain(self.on_terminal(("top", "-n", "1"), cols=80)[0]))
        self.assertNotIn("WHAT", plain(self.on_terminal(("top", "-n", "1", "-P", "other"),
            cols=120)[0]))

    def test_listen(self):
        """Where it listens: what waits there, and what came in, whoever has it now."""
        six = socket.socket(socket.AF_INET6)
        with socket.create_server((L, 0)) as srv, six:
            six.bind(("::", 0))
            six.listen()
            port, port6 = srv.getsockname()[1], six.getsockname()[1]
            child = subprocess.Popen(["sleep", "60"])
            self.addCleanup(lambda: (child.kill(), child.wait()))
            self.put(header(self.pid, program=b"srv", rows_used=2) + row(70, (L, port), (L, 5001),
                1, 0, (0, 0, 0), (0, 0, 0))
                     + row(71, (L, port6), (L, 5002), 0, 0, (0, 0, 0), (0, 0, 0)))
            self.put(header(child.pid, program=b"srv", rows_used=2) + row(7, (L, port), (L, 5003),
                0, 0, (0, 0, 0), (0, 0, 0))
                     + row(8, ("10.0.0.1", port), (L, 5004), 1, 1, (0, 0, 0), (0, 0, 0)),
                         name=child.pid)
            with socket.create_connection((L, port)), socket.create_connection((L, port)):
                j = json.loads(self.run_it("listen", "--json").stdout)["listeners"]
                want = [(self.pid, srv.fileno(), f"{L}:{port}", 2, 2, 1), (self.pid, six.fileno(),
                    f"[::]:{port6}", 0, 1, 0)]
                self.assertEqual(sorted((x["pid"], x["fd"], x["address"], x["waiting"], x["live"],
                    x["fast"]) for x in j), sorted(want))
                self.assertEqual({x["program"] for x in j}, {"srv"})
                text = self.run_it("listen", "-s", "waiting", "-o",
                    "address,waiting,live,fast").stdout.splitlines()
                self.assertEqual(text[1].split(), [f"{L}:{port}", "2", "2", "1"])
            six.close()
            self.assertEqual(len(json.loads(self.run_it("listen", "--json").stdout)["listeners"]),
                1)
            self.assertEqual(json.loads(self.run_it("listen", "--json", "-p",
                str(child.pid)).stdout)["listeners"], [])


for name in dir(tools.Tools):
    if name.startswith("test_"):
        setattr(Views, name, None)  # not twice

if __name__ == "__main__":
    unittest.main()
