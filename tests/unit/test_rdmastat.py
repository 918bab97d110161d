#!/usr/bin/env python3
"""rdmastat from outside: views, sums, exit codes, suggestions, damaged input, closed output.

usage: test_rdmastat.py path/to/rdmastat

Counter files are packed here by hand, so that the layout is checked against a second opinion.
"""
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

RDMASTAT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/rdmastat"
HEADER, ROW, ROWS = 2568, 152, 16384
CALLS, CALL_NAME, BLOCKS = 128, 48, 64
SITES, SITE, SITE_NAME = 64, 1024, 208
CALLS_AT = HEADER + ROWS * ROW
SITES_AT = CALLS_AT + CALLS * CALL_NAME + BLOCKS * CALLS * 16
HISTORY_AT = SITES_AT + SITES * SITE
HISTORY = 8 + 16 * 24
MOVES_AT = HISTORY_AT + ROWS * HISTORY
MOVES = 16
LINKS_AT = MOVES_AT + MOVES + ROWS * 2 * 8 * MOVES
LINKS, LINK = 1024, 164
SIZE = LINKS_AT + 8 + LINKS * LINK


def start_time(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[19])


def header(pid, program=b"prog", rows_used=0, counters=(), reasons=(), tx=(0, 0, 0), rx=(0, 0, 0),
           magic=0x5453444D48535331, version=10,
           start=None, pid_ns=None, build=b"0.2 (abc)", mode=1, link_errors=(), rings=(0, 0, 0),
           go=b""):
    h = struct.pack("<QIIIIIIQQ64s40s192sII", magic, version, HEADER, ROW, ROWS, pid, os.getuid(),
                    start or start_time(pid),
                    pid_ns or os.stat("/proc/self/ns/pid").st_ino, program, build, b"/etc/p.conf",
                    mode, rows_used)
    h += struct.pack("<64Q", *(list(counters) + [0] * (64 - len(counters))))
    r = [0] * 96
    for k, v in reasons:
        r[k] = v
    e = [0] * 96
    for k, v in link_errors:
        e[k] = v
    h += struct.pack("<96Q3Q3Q96Q3Q96s", *r, *tx, *rx, *e, *rings, go)
    assert len(h) == HEADER
    return h


def row(fd, local, peer, tx_path, rx_path, tx, rx, family=socket.AF_INET, state=2, reason=0, cuts=0,
        rewinds=0,
        fulls=0, overflows=0, ring=0, qp=0, bases=(0, 0)):
    la = socket.inet_pton(family or socket.AF_INET, local[0]).ljust(16, b"\0")
    pa = socket.inet_pton(family or socket.AF_INET, peer[0]).ljust(16, b"\0")
    r = struct.pack("<IIHHHBB16s16sBBBBIII3Q3QIIIIIIQQ", state, fd, family, local[1], peer[1], 1,
                    reason, la, pa,
                    tx_path, rx_path, 3, 2, 12, cuts, rewinds, *tx, *rx, 1, 0, fulls, overflows,
                    ring, qp, *bases)
    assert len(r) == ROW
    return r


def history(n, events, gen=1):
    """events: {number: (kind, reason, arg, time)}; numbers from 16 on share ten places."""
    h = bytearray(struct.pack("<II", n, 0) + bytes(16 * 24))
    for k, (kind, reason, arg, when) in events.items():
        at = 8 + 24 * (k if k < 16 else 6 + (k - 6) % 10)
        h[at:at + 24] = struct.pack("<QQQ", when, (gen & 0xFFFF) << 48 | (k & 0xFFFF) << 32
                                    | reason << 8 | kind, arg)
    return bytes(h)


def links(*one):
    """The queue pairs, as they lie behind everything else."""
    b = struct.pack("<II", len(one), 0) + b"".join(one)
    return b.ljust(8 + LINKS * LINK, b"\0")


def link(qpn, peer_qpn, streams, rtt=0, phase=1, kind=2, port=1, mtu=1024, device=b"rxe0",
         gids=("::ffff:10.0.0.1", "fe80::2"), ends=("10.0.0.1", "10.0.0.2"), family=socket.AF_INET,
         state=2):
    l = struct.pack("<IIBBBBHH5I", state, 1, phase, kind, port, family, 4791, 5000, qpn, peer_qpn,
                    mtu, streams, rtt)
    l += b"".join(socket.inet_pton(family, e).ljust(16, b"\0") if family else bytes(16)
                  for e in ends)
    l += b"".join(socket.inet_pton(socket.AF_INET6, g) if g else bytes(16) for g in gids)
    l += device.ljust(64, b"\0")
    assert len(l) == LINK
    return l


class Rdmastat(unittest.TestCase):
    def test_calls(self):
        def calls(names, blocks):
            b = b"".join(n.ljust(CALL_NAME, b"\0") for n in names).ljust(CALLS * CALL_NAME, b"\0")
            for block in range(BLOCKS):
                b += struct.pack(f"<{2 * CALLS}Q",
                                 *(blocks.get(block, [])
                                   + [0] * (2 * CALLS - len(blocks.get(block, [])))))
            return b
        names = [b"send", b"recv", b"x" * 100, b"po\033ll"]
        # A name without an end takes its neighbour's place: only what fits is there.
        names[2] = names[2][:CALL_NAME]
        self.put(header(self.pid).ljust(CALLS_AT, b"\0") +
                 calls(names, {0: [1, 20, 3, 0], 5: [100, 0, 0, 7, 0, 0, 9, 0],
                               63: [0, 1000, 0, 0, 2, 2]}))
        out = self.run_it("calls", "--json").stdout
        self.assertEqual([(c["call"], c["tcp"], c["fast"]) for c in json.loads(out)["calls"]],
                         [("send", 101, 1020), ("recv", 3, 7), ("po?ll", 9, 0),
                          ("x" * (CALL_NAME - 1), 2, 2)])
        out = self.run_it("calls").stdout
        self.assertEqual(out.split("\n")[1].split(), ["send", "101", "1020"])
        # those that are counted by connection: number 0 is recv, 2 send; the others are none, or
        # none that there is. Rows beyond the last used one do not count
        moves = struct.pack("<16B", 2, 0, 1, 200, *[0] * 12)
        for r in range(3):
            moves += struct.pack("<32Q", *[10 ** (r + 1), 5, 1, 5, *[5] * 12],
                                 *[3, 5, 1 << 63, 5, *[5] * 12])
        self.put((header(self.pid, rows_used=2).ljust(CALLS_AT, b"\0") + calls(names,
            {0: [1, 20, 3, 0]})).ljust(MOVES_AT, b"\0") + moves)
        self.assertEqual([(c["call"], c["tcp"], c["fast"]) for c in json.loads(self.run_it("calls",
            "--json").stdout)["calls"]],
                         [("send", 3, 2 ** 64 - 1), ("recv", 3 + 10 + 100, 6)])
        self.run_it("calls", "nonsense", rc=2)

    def test_staging(self):
        def site(where, copies, size, taken, why=(), rx=0, lane=1, state=2):
            w = [0] * 96
            for k, v in why:
                w[k] = v
            b = struct.pack("<IBB2xQQQQQ96Q", state, rx, lane, 0x1000, 0x2000, copies, size, taken,
                            *w) + where.ljust(SITE_NAME, b"\0")
            self.assertEqual(len(b), SITE)
            return b
        def reason(name):
            return [line.split()[0] for line in self.run_it("reasons").stdout.split("\n") if line
                    and not line[0].isspace()].index(name) + 1
        written, early = reason("device-written"), reason("device-early")
        none = self.run_it("staging").stdout
        self.assertIn("device off", none)
        self.put((header(self.pid).ljust(CALLS_AT, b"\0")).ljust(SITES_AT, b"\0") +
                 site(b"small < main", 3, 50, 0, lane=0) + site(b"gone", 1, 1, 1, state=0)
                 + site(b"late", 2, 70, 70, lane=2) + site(b"new", 1, 60, 0, lane=3) +
                 site(b"big\033[1m < main", 4, 1 << 20, 786432,
                      ((early, 1 << 16), (written, 3 << 16)), rx=1)
                      + bytes(SIZE - SITES_AT - 5 * SITE))
        s = json.loads(self.run_it("staging", "--json").stdout)["staging"]
        self.assertEqual([(x["call_site"], x["direction"], x["lane"], x["copies"], x["bytes"],
                           x["taken"], x["share"]) for x in s],
                         [("big?[1m < main", "to-device", "truthful", 4, 1 << 20, 786432, 0.75),
                          ("late", "to-host", "deferred", 2, 70, 70, 1),
                          ("new", "to-host", "?", 1, 60, 0, 0), ("small < main", "to-host", "host",
                              3, 50, 0, 0)])
        self.assertEqual([x["gpu_path"] for x in s], ["eager", "lazy", "?", "host"])
        self.assertEqual([(w["reason"], w["bytes"]) for w in s[0]["why_not"]],
                         [("device-written", 3 << 16), ("device-early", 1 << 16)])
        self.assertEqual(s[0]["last_range"], "0x1000-0x2000")
        text = self.run_it("staging").stdout
        self.assertRegex(text, rf"{self.pid} prog +to-device +1\.0M +4 +75\.0% eager +big\?\[1m < "
                         rf"main\n +last range 0x1000-0x2000\n +18\.8% device-written: ")
        self.run_it("staging", "nonsense", rc=2)

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = self.tmp.name
        self.pid = os.getpid()

    def tearDown(self):
        self.tmp.cleanup()

    def put(self, data, name=None, size=SIZE):
        path = os.path.join(self.dir, str(name or self.pid))
        with open(path, "wb") as f:
            f.write(data)
            f.truncate(size)
        os.chmod(path, 0o600)
        return path

    def run_it(self, *args, rc=0, **kw):
        env = dict(os.environ, RDMASHIM_STAT_DIR=self.dir, **kw.pop("env", {}))
        p = subprocess.run([RDMASTAT, *args], env=env, capture_output=True, text=True, timeout=20,
                           **kw)
        self.assertEqual(p.returncode, rc, f"{args}: {p.stdout}{p.stderr}")
        self.assertNotIn("runtime error", p.stderr)
        return p

    def sample(self):
        self.put(header(self.pid, rows_used=3, counters=(10, 4, 6, 2), reasons=((1, 3), (10, 5)),
                        tx=(1000, 0, 0), rx=(0, 2000, 0))
                 + row(7, ("127.0.0.1", 6379), ("127.0.0.1", 5000), 1, 0, (100, 900, 0), (0, 0, 0),
                       cuts=2, rewinds=1)
                 + row(8, ("1.1.1.1", 1), ("1.1.1.1", 2), 1, 1, (1 << 50, 0, 0), (0, 0, 0), state=3)
                 + row(9, ("::1", 80), ("fe80::2", 81), 0, 2, (0, 0, 0), (0, 0, 4000),
                       family=socket.AF_INET6, reason=10))

    def test_mode(self):
        for mode, word in enumerate(("off", "on", "bad", "off")):
            self.put(header(self.pid, mode=mode))
            self.assertRegex(self.run_it().stdout, rf"{self.pid} prog +{word} ")
            p = json.loads(self.run_it("--json").stdout)["processes"][0]
            self.assertEqual((p["mode"], p["library"]), (word, "0.2 (abc)"))

    def test_go(self):
        for go, shown in (b"", None), (b"go1.19.8, 6 stubs", "go1.19.8, 6 stubs"), \
                (b"\x1b]0;x\n" + b"y" * 90, "?]0;x?" + "y" * 89):
            self.put(header(self.pid, go=go))
            self.assertEqual(json.loads(self.run_it("--json").stdout)["processes"][0]["go"], shown)
            self.assertRegex(self.run_it("-o", "pid,go").stdout,
                             rf"{self.pid} *{re.escape(shown or '')}\n")

    def test_processes(self):
        self.sample()
        d = json.loads(self.run_it("--json").stdout)
        p, t = d["processes"][0], d["total"]
        self.assertEqual((p["pid"], p["program"], p["alive"], p["mode"]), (self.pid, "prog", True,
            "on"))
        self.assertEqual(p["bytes"], {"tcp": 1100, "shm": 2900, "rdma": 4000})
        self.assertEqual(p["tx_bytes"], {"tcp": 1100, "shm": 900, "rdma": 0})
        self.assertEqual((p["connections"], p["connections_fast"], p["live"]), (10, 4, 2))
        self.assertAlmostEqual(p["hit_bytes"], 6900 / 8000, places=5)
        self.assertAlmostEqual(p["hit_connections"], 0.4, places=5)
        self.assertEqual((p["counters"]["cuts"], p["counters"]["rewinds"]), (6, 2))
        self.assertEqual([(r["reason"], r["connections"]) for r in t["reasons"]],
                         [("shared-by-fork", 5), ("not-earned", 3)])
        text = self.run_it().stdout
        self.assertRegex(text, rf"{self.pid} prog +on +10 +2 +1\.1K +2\.8K +3\.9K +86\.2% +40\.0%")
        self.assertRegex(text, r"\n +total +10 +2 ")
        self.assertRegex(text, r"(?s)5 shared-by-fork .*-> close it.* 3 not-earned")

    def test_connections(self):
        self.sample()
        c = json.loads(self.run_it("-c", "-j").stdout)["connections"]
        self.assertEqual([x["fd"] for x in c], [7, 9])
        self.assertEqual((c[0]["local"], c[0]["peer"], c[0]["tx_path"], c[0]["rx_path"],
                          c[0]["role"]),
                         ("127.0.0.1:6379", "127.0.0.1:5000", "shm", "tcp", "server"))
        self.assertEqual((c[0]["tx_bytes"]["shm"], c[0]["cuts"], c[0]["rewinds"],
                          c[0]["rule_line"]), (900, 2, 1, 12))
        self.assertEqual((c[1]["local"], c[1]["peer"], c[1]["reason"]), ("[::1]:80", "[fe80::2]:81",
            "shared-by-fork"))
        lines = self.run_it("--connections").stdout.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[1], r"prog +7 127\.0\.0\.1:6379 +127\.0\.0\.1:5000 +server +shm "
                         r"+tcp +100 +900 +0 +2 +1 -$")

    def test_unknown_ends(self):
        self.put(header(self.pid, rows_used=1) + row(7, ("0.0.0.0", 0), ("0.0.0.0", 0), 0, 0,
                                                     (100, 0, 0), (0, 0, 0), family=0, reason=1))
        c = json.loads(self.run_it("-c", "-j").stdout)["connections"]
        self.assertEqual([(x["fd"], x["local"], x["peer"]) for x in c], [(7, "-", "-")])
        self.assertRegex(self.run_it("-c").stdout, r"prog +7 - +- +server +tcp +tcp +100 ")

    def test_nothing(self):
        self.assertIn("No process", self.run_it().stdout)
        d = json.loads(self.run_it("--json").stdout)
        self.assertEqual(d["processes"], [])
        self.assertIsNone(d["total"]["hit_bytes"])
        self.assertIn("no counters of process 1:", self.run_it("-p", "1", rc=1).stderr)

    def test_pid(self):
        self.sample()
        child = subprocess.Popen(["sleep", "60"])
        try:
            self.put(header(child.pid, program=b"other"), name=child.pid)
            self.assertEqual(len(json.loads(self.run_it("--json").stdout)["processes"]), 2)
            d = json.loads(self.run_it("--json", f"--pid={child.pid}").stdout)
            self.assertEqual([p["program"] for p in d["processes"]], ["other"])
        finally:
            child.kill()
            child.wait()

    def test_dead(self):
        child = subprocess.Popen(["sleep", "60"])
        self.put(header(child.pid, rows_used=1, program=b"late", tx=(5, 0, 0))
                 + row(7, ("127.0.0.1", 6379), ("127.0.0.1", 5000), 1, 0, (100, 900, 0), (0, 0, 0)),
                 name=child.pid)
        self.assertEqual([p["live"] for p in json.loads(self.run_it("--json").stdout)["processes"]],
                         [1])
        child.kill()
        child.wait()
        d = json.loads(self.run_it("--json", "--all").stdout)
        self.assertEqual([(p["program"], p["alive"], p["live"]) for p in d["processes"]],
                         [("late", False, 0)])
        self.assertEqual(os.listdir(self.dir), [])

    def test_damaged(self):
        for data, size, word in ((b"x" * 100, 100, "damaged"), (header(self.pid), HEADER + 5,
            "damaged"),
                                 (header(self.pid, version=99, build=b"9.9 (\x1bnew)"), SIZE,
                                  f"{self.pid} prog: a newer library, 9.9 (?new), see it with"),
                                 (header(self.pid, version=6), SIZE, f"{self.pid} prog: an older "
                                  f"library, restart it"),
                                 (header(self.pid), SIZE - 1, "damaged"),
                                 (b"", 0, "damaged"), (b"", SIZE, "damaged")):
            path = self.put(data, size=size)
            os.utime(path, (1, 1))
            p = self.run_it()
            self.assertIn(word, p.stderr)
            self.assertIn("No process", p.stdout)
        for size in 0, SIZE:    # its process is just making it
            self.put(b"", size=size)
            self.assertEqual(self.run_it().stderr, "")
        self.put(header(self.pid, program=b"\x1b[31m\n" + b"A" * 80))
        out = self.run_it().stdout
        self.assertNotIn("\x1b", out)
        self.assertIn("?[31m?A", out)

    def test_other_versions(self):
        """What a dead process left, of whatever version and length, is removed; of many files
        that are left out not each is told."""
        child = subprocess.Popen(["sleep", "60"])
        self.put(header(child.pid, version=2), name=child.pid, size=HEADER)
        self.put(header(self.pid, version=99), size=HEADER)
        e = self.run_it().stderr
        self.assertIn(f"{child.pid} prog: an older library, restart it", e)
        self.assertIn(f"{self.pid} prog: a newer library", e)
        child.kill()
        child.wait()
        self.assertNotIn("older", self.run_it().stderr)
        self.assertEqual(os.listdir(self.dir), [str(self.pid)])
        for i in range(20):
            self.put(b"junk", name=4000000 + i, size=100)
        e = self.run_it().stderr.splitlines()
        self.assertEqual((len(e), e[-1]), (6, "rdmastat: left out 16 more files in the same way"))
        self.assertEqual(len(os.listdir(self.dir)), 21)

    def test_watch(self):
        self.sample()
        out = self.run_it("-w", "1", "-n", "2", "--json").stdout.splitlines()
        self.assertEqual([len(json.loads(x)["processes"]) for x in out], [1, 1])

    def test_usage(self):
        self.assertIn("did you mean --json?", self.run_it("--jsno", rc=2).stderr)
        self.assertIn("unknown option -x", self.run_it("-x", rc=2).stderr)
        self.assertIn("did you mean policy?", self.run_it("polcy", rc=2).stderr)
        self.assertIn("needs a value", self.run_it("-w", rc=2).stderr)
        self.assertIn("takes no value", self.run_it("--json=1", rc=2).stderr)
        for bad in ("0", "-1", "x", "1.5", "99999999999999999999", ""):
            self.assertIn("whole number", self.run_it("-w", bad, rc=2).stderr)
        self.assertIn("check", self.run_it("policy", rc=2).stderr)
        self.assertIn("did you mean policy explain?", self.run_it("policy", "explan", rc=2).stderr)
        self.assertIn("--connections", self.run_it("--help").stdout)
        self.assertRegex(self.run_it("--version").stdout, r"^rdmastat \d")
        self.assertIn("-> ", self.run_it("reasons").stdout)

    def test_output_lost(self):
        self.sample()
        with open("/dev/full", "w") as full:
            p = subprocess.run([RDMASTAT], stdout=full, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, RDMASHIM_STAT_DIR=self.dir))
        self.assertEqual(p.returncode, 1)
        self.assertIn("cannot write", p.stderr)
        p = subprocess.run(f"exec {RDMASTAT} --json >&-", shell=True, env=dict(os.environ,
            RDMASHIM_STAT_DIR=self.dir))
        self.assertEqual(p.returncode, 1)

    def test_policy(self):
        path = os.path.join(self.dir, "p.conf")
        with open(path, "w") as f:
            f.write("mode on\n\n  rign_size 4K\n")
        p = self.run_it("policy", "check", path, rc=1)
        self.assertTrue(p.stderr.startswith(f"{path}:3:3: "), p.stderr)
        self.assertIn("did you mean 'ring_size'", p.stderr)
        self.assertIn("could not be read or parsed", self.run_it("policy", "explain", "-f", path,
            rc=1).stdout)
        with open(path, "w") as f:
            f.write("program redis-*\nuse tcp client [::1]:6379\n")
        self.assertIn("good, mode on, 1 rule\n", self.run_it("policy", "check", path).stdout)
        ask = ["policy", "explain", "-f", path, "--program", "redis-cli", "--role", "client",
               "--peer"]
        self.assertRegex(self.run_it(*ask, "[::1]:6379").stdout, r"(?s)paths: tcp\nrule: "
                         r" p.conf:2\ntext:  use tcp client .*why: ")
        self.assertRegex(self.run_it(*ask, "127.0.0.1:6379").stdout, r"paths: tcp shm\nrule: "
                         r" built-in default")
        self.assertIn("one address and one port", self.run_it(*ask, "10.0.0.0/8:1", rc=2).stderr)
        self.assertIn("not an IPv4 address", self.run_it(*ask, "nonsense:1", rc=2).stderr)
        self.assertIn("good, mode off", self.run_it("policy", "check",
                                                    env={"RDMASHIM_CONF": self.off()}).stdout)
        self.assertIn("no such file", self.run_it("policy", "check", "/proc/1/no/such/policy.conf",
                                                  rc=1).stderr)

    def off(self):
        path = os.path.join(self.dir, "off.conf")
        with open(path, "w") as f:
            f.write("mode off\n")
        return path


if __name__ == "__main__":
    unittest.main()
