#!/usr/bin/env python3
"""rdmastat's commands on made-up counter files: conn and its filters, link, why, prometheus,
columns, colours, narrow terminals, top on a pseudo terminal.

usage: test_tools.py path/to/rdmastat
"""
import errno
import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_rdmastat as base  # takes the program's path off sys.argv
from test_rdmastat import HISTORY_AT, LINKS_AT, header, history, link, links, row

RDMASTAT = base.RDMASTAT
L, S = "127.0.0.1", 6379


class Tools(base.Rdmastat):
    """Helpers only; the tests of the base class run in its own file."""

    def two(self):
        """A client and a server with three connections between them, one of them on TCP, and one
        to nobody known."""
        self.child = subprocess.Popen(["sleep", "60"])
        self.addCleanup(lambda: (self.child.kill(), self.child.wait()))
        c, s = self.child.pid, self.pid
        self.put(header(s, program=b"redis-server", rows_used=3, counters=(3, 2, 4),
                        reasons=((6, 1),))
                 + row(7, (L, S), (L, 5001), 1, 1, (100, 900, 0), (10, 90, 0), cuts=2)
                 + row(8, (L, S), (L, 5002), 0, 0, (500, 0, 0), (50, 0, 0), reason=6)
                 + row(9, (L, S), (L, 5003), 1, 0, (0, 7 << 20, 0), (1, 0, 0), cuts=3, rewinds=1))
        self.put(header(c, program=b"redis-cli", rows_used=3, counters=(3, 2, 4), reasons=((2, 1),))
                 + row(4, (L, 5001), (L, S), 1, 1, (10, 90, 0), (100, 900, 0), cuts=2)
                 + row(5, (L, 5003), (L, S), 0, 1, (1, 0, 0), (0, 7 << 20, 0), cuts=3)
                 + row(6, ("10.0.0.1", 5004), ("10.0.0.7", 443), 0, 0, (3, 0, 0), (4, 0, 0),
                       reason=2), name=c)
        return s, c

    def fds(self, *expr):
        j = json.loads(self.run_it("conn", "--json", *expr).stdout)
        return [c["fd"] for c in j["connections"]]

    # ---- conn
    def test_conn_filters(self):
        s, c = self.two()
        for expr, want in (
                ("sport = 6379", [7, 8, 9]), ("sport=6379 and path tcp", [8, 9]),
                ("sport = 6379 path shm", [7, 9]),
                ("dport = 443 or sport = 6379 and tx shm", [7, 9, 6]),
                ("(dport = 443 or sport = 6379) and rx tcp", [8, 9, 6]),
                ("not sport = 6379 ! path shm", [6]), (f"pid = {c} rx shm", [4, 5]),
                ("program redis-s*", [7, 8, 9]),
                ("program != redis-s* dst 127.0.0.0/8", [4, 5]), ("dst 10.0.0.7:443", [6]),
                ("dst 10.0.0.8", []), ("src 10.0.0.0/8", [6]),
                ("reason peer-no-shim", [8]), ("rewinds > 0", [9]), ("cuts ge 3", [9, 5]),
                ("bytes > 1M", [9, 5]), ("bytes <= 7", [6]),
                ("fd != 7 sport :6379", [8, 9]), ("role client", []),
                ("dport < 5003 && dport >= 5001 || dport eq 443", [7, 8, 6]),
                ("path != shm", [8, 6]), ("state established", [7, 8, 9, 4, 5, 6]),
                ("state connected sport = 6379", [7, 8, 9])):
            order = {7: 0, 8: 1, 9: 2, 4: 3, 5: 4, 6: 5}
            self.assertEqual(sorted(self.fds(*expr.split()), key=order.get), want, expr)
            self.assertEqual(sorted(self.fds(expr), key=order.get), want, expr)

    def test_conn_bad_filters(self):
        self.two()
        for expr, word in (("dprt = 1", "did you mean dport"), ("dport = x", "not a number"),
                           ("dport =", "missing at the end"), ("(path shm", ") is missing"),
                           ("path shm )", "closes nothing"), ("path udp", "tcp shm rdma"),
                           ("state listening", "only established"),
                           ("reason polcy", "did you mean policy"), ("dst nonsense", "IPv4"),
                           ("dport = 1 or", "missing at the end"), ("path > tcp", "only = and !="),
                           ("dport = 99999999999999999999", "not a number"),
                           ("(" * 100 + "pid = 1", "brackets"), ("pid = 1 " * 300, "too long"),
                           ("and", "not something"), ("pid = \x1b[31m", "not a number")):
            e = self.run_it("conn", expr, rc=2).stderr
            self.assertIn(word, e)
            self.assertNotIn("\x1b", e)
            self.assertRegex(e, r"\n +\^\n$")

    def test_conn_sort_columns(self):
        s, c = self.two()
        self.assertEqual(set(self.fds("-s", "bytes")[:2]), {9, 5})
        self.assertEqual(set(self.fds("--sort=bytes:r")[-2:]), {9, 5})
        self.assertEqual(self.fds("-s", "fd:r"), [4, 5, 6, 7, 8, 9])
        self.assertEqual(self.fds("-s", "reason")[-2:], [8, 6])
        fast = lambda *a: [(x["fast"], x["program"]) for x in json.loads(self.run_it("link", "-j",
            "-s", *a).stdout)["links"]]
        self.assertEqual([f for f, _ in fast("fast")], [2, 0, 0])
        self.assertEqual([f for f, _ in fast("fast:r")], [0, 0, 2])
        self.assertEqual(fast("peer-program:r")[0][0], 2)
        out = self.run_it("conn", "-o", "fd,hit,rule,remedy", "sport = 6379", "-s",
                          "fd:r").stdout.splitlines()
        self.assertRegex(out[0], r"^ +FD +HIT RULE +REMEDY$")
        self.assertRegex(out[1], r"^ +7 +90\.0% 12 ")
        self.assertRegex(out[2], r"^ +8 +0\.0% .*load librdmashim.so into the other")
        self.assertIn("remedy ", self.run_it("conn", "-o", "help").stdout)
        self.assertIn("REMEDY", self.run_it("conn", "-o", "all").stdout)
        self.assertIn("did you mean peer?", self.run_it("conn", "-o", "pid,pier", rc=2).stderr)
        self.assertIn("did you mean cuts?", self.run_it("conn", "-s", "cut", rc=2).stderr)
        self.assertIn("cuts:r", self.run_it("conn", "-s", "cuts:x", rc=2).stderr)
        # without an order: by process, then by descriptor, wherever in the file the connections are
        self.put(header(s, program=b"redis-server", rows_used=3)
                 + b"".join(row(n, (L, S), (L, 5001), 1, 1, (1, 0, 0), (1, 0, 0)) for n in (9, 3,
                     12)))
        self.assertEqual(self.fds(f"pid = {s}"), [3, 9, 12])

    def test_overview_sort(self):
        s, c = self.two()
        pids = lambda *a: re.findall(r"^ *(\d+) redis", self.run_it(*a).stdout, re.M)
        self.assertEqual(pids("-s", "program"), [str(c), str(s)])
        self.assertEqual(pids("-s", "program:r"), [str(s), str(c)])
        self.assertEqual(pids("-P", "*-cli"), [str(c)])
        self.assertEqual(self.run_it("-o", "pid,reason", "-p", str(s)).stdout.splitlines()[1].split(
            ), [str(s), "peer-no-shim"])
        # a reason for which there is no remedy, and none is needed
        self.put(header(s, counters=(1, 0, 0), reasons=((11, 1),)))
        for a in ("overview", "-p", str(s)), ("why", str(s)):
            self.assertRegex(self.run_it(*a).stdout, r"(?s) fd-passed.*-> nothing to do: it works "
                             r"as without the library\n")

    # ---- link
    def test_link(self):
        s, c = self.two()
        j = json.loads(self.run_it("link", "--json").stdout)["links"]
        a, b = min(s, c), max(s, c)
        both = [x for x in j if x["peer_pid"]]
        self.assertEqual([(x["pid"], x["peer_pid"], x["connections"], x["fast"]) for x in both],
                         [(a, b, 2, 2)])
        self.assertEqual(both[0]["bytes"], {"tcp": 111, "shm": 990 + (7 << 20), "rdma": 0})
        alone = sorted((x["program"], x["connections"], x["fast"]) for x in j if not x["peer_pid"])
        self.assertEqual(alone, [("redis-cli", 1, 0), ("redis-server", 1, 0)])
        self.assertEqual(len(json.loads(self.run_it("link", "--json", "-p", str(c)).stdout)[
            "links"]), 2)
        self.assertRegex(self.run_it("link").stdout, r"redis-server +- +- +1 +0 ")

    # ---- completion
    def complete(self, *words):
        """What bash offers for the last word."""
        page = os.path.join(os.path.dirname(RDMASTAT), "../tools/completion/rdmastat.bash")
        env = dict(os.environ, RDMASHIM_STAT_DIR=self.dir,
                   PATH=os.path.dirname(os.path.abspath(RDMASTAT)) + ":" + os.environ["PATH"])
        line = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rdmastat; ' \
            'printf "%s\\n" "${COMPREPLY[@]}"'
        out = subprocess.run(["bash", "--norc", "-c", f'. "{page}"; {line}', "bash", *words],
                             env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        return sorted(out.stdout.split())

    def test_completion(self):
        s, c = self.two()
        self.assertEqual(self.complete("rdmastat", "why", ""), sorted((str(s), str(c))))
        self.assertEqual(self.complete("rdmastat", "-p", ""), sorted((str(s), str(c))))
        self.assertEqual(self.complete("rdmastat", "why", str(c), ":"), ["4", "5", "6"])
        self.assertEqual(self.complete("rdmastat", "why", str(s), ":", "9"), ["9"])
        self.assertEqual(self.complete("rdmastat", "why", "$(echo 1)", ":", ""), [])

    # ---- bundle
    def test_bundle(self):
        s, c = self.two()
        v6 = "2001:db8::17"
        self.put(header(s, rows_used=2, counters=(2, 0, 0)) + row(7, (v6, 80), (v6, 81), 0, 0,
            (1, 0, 0), (1, 0, 0), family=socket.AF_INET6)
                 + row(8, ("10.0.0.7", 443), ("10.0.0.1", 5004), 0, 0, (1, 0, 0), (1, 0, 0)))
        conf = os.path.join(self.dir, "bundle.conf")
        with open(conf, "w") as f:
            f.write("mode on\nuse tcp both 10.0.0.7:443\nkey_file /etc/secret.key\n")
        os.chmod(conf, 0o600)
        env = {"RDMASHIM_CONF": conf}
        out = self.run_it("bundle", env=env).stdout
        for a in "10.0.0.7", "10.0.0.1", v6:
            self.assertNotIn(a, out)
        for part in ("==== rdmastat doctor", "==== /proc/self/limits", "127.0.0.1:5001",
                     "key_file", "redis-cli"):
            self.assertIn(part, out)
        # the same number for the same address, in whatever command, with its port behind it
        n = re.search(r"address-(\d+):443 +address-(\d+):5004", out)
        self.assertRegex(out, rf"address-{n[2]}:5004 +address-{n[1]}:443")
        self.assertRegex(out, r"address-(\d+)\]:80 +\[address-\1\]:81")
        self.assertIn("10.0.0.7", self.run_it("bundle", "--addresses", env=env).stdout)
        file = os.path.join(self.dir, "report.txt")
        self.run_it("bundle", "-O", file, env=env)
        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
        self.assertIn("name another", self.run_it("bundle", "-O", file, rc=1).stderr)

    # ---- why
    def test_why_end(self):
        s, c = self.two()
        # its own end comes first, then the other's; several are listed
        self.assertRegex(self.run_it("why", "127.0.0.1:5001").stdout, rf"connection +{c}:4 ")
        self.assertRegex(self.run_it("why", "127.0.0.1:5002").stdout, rf"connection +{s}:8 ")
        self.assertRegex(self.run_it("why", "[::ffff:10.0.0.7]:443").stdout, rf"connection +{c}:6 ")
        self.assertEqual(json.loads(self.run_it("why", "-j", "*:5003").stdout)["connections"][0][
            "fd"], 5)
        e = self.run_it("why", "127.0.0.1:6379", rc=2).stderr
        self.assertIn("3 connections have the end 127.0.0.1:6379", e)
        for fd in 7, 8, 9:
            self.assertIn(f"  {s}:{fd}  127.0.0.1:6379 -> 127.0.0.1:", e)
        self.assertIn("no process", self.run_it("why", "127.0.0.1:5009", rc=1).stderr)
        self.assertIn("port", self.run_it("why", "127.0.0.1:", rc=2).stderr)
        self.assertIn("rdmastat", self.run_it("why", "1.2.3.4.5:1", rc=2).stderr)

    def test_options_first(self):
        self.assertEqual(self.run_it("--json", "reasons").stdout, self.run_it("reasons",
            "--json").stdout)
        self.run_it("--sort", "pid", "reasons", rc=2)

    def test_why(self):
        s, c = self.two()
        out = self.run_it("why", f"{s}:8").stdout
        self.assertRegex(out, r"reason +peer-no-shim: ")
        self.assertRegex(out, r"to change it .*rdmarun .*ss -tnp 'src 127\.0\.0\.1:5002 and dst "
                         r"127\.0\.0\.1:6379'")
        self.assertRegex(out, r"history +nothing is recorded")
        out = self.run_it("why", f"{s}:7").stdout
        self.assertRegex(out, rf"other end +{c}:4, program redis-cli, on shm/shm")
        self.assertRegex(out, r"so far +cut over 2 times, went back to TCP 0 times")
        out = self.run_it("why", str(s)).stdout
        self.assertRegex(out, rf"(?s)process .*on TCP +1 connection, peer-no-shim.*-> load.*{s}:8 "
                         rf"+127\.0\.0\.1:6379")
        j = json.loads(self.run_it("why", "--json", f"{s}:7").stdout)["connections"][0]
        self.assertEqual((j["other_end"]["pid"], j["other_end"]["fd"], j["reason"]), (c, 4, "-"))
        self.assertEqual(len(json.loads(self.run_it("why", "-j", str(s)).stdout)["connections"]), 3)

    def test_why_rule(self):
        path = os.path.join(self.dir, "p.conf")
        with open(path, "w") as f:
            f.write("mode on\n" + "\n" * 10 + "use tcp both *:80 # \x1b[31m\n")
        data = header(self.pid, rows_used=1) + row(7, (L, 80), (L, 9), 0, 0, (1, 0, 0), (0, 0, 0),
                                                   reason=2)
        data = data.replace(b"/etc/p.conf\0".ljust(192, b"\0")[:192], path.encode().ljust(192,
            b"\0"), 1)
        self.put(data)
        out = self.run_it("why", f"{self.pid}:7").stdout
        self.assertIn(f"decided by   {path}:12: use tcp both *:80", out)
        self.assertIn(f"permitted    tcp, by {path}:12", out)
        self.assertIn(f"to change it change {path}:12: use tcp both *:80", out)
        self.assertNotIn("\x1b", out)
        with open(path, "w") as f:
            f.write("mode on\nuse shm both *:80\n")
        out = self.run_it("why", f"{self.pid}:7").stdout
        self.assertIn(f"permitted    tcp shm, by {path}:2 (the file was changed since this was "
                      f"decided)", out)
        with open(path, "w") as f:
            f.write("mdoe on\n")
        self.assertRegex(self.run_it("why", f"{self.pid}:7").stdout, r"policy +.* cannot be used: "
                         r".*did you mean 'mode'")

    def test_why_history(self):
        def put(h):
            self.put((header(self.pid, rows_used=1) + row(7, (L, 80), (L, 9), 1, 1, (1, 5, 0),
                                                          (0, 9, 0), cuts=2)).ljust(HISTORY_AT,
                                                              b"\0") + h)
            return self.run_it("why", f"{self.pid}:7", env={"TZ": "UTC"}).stdout
        t = 1_700_000_000_000_000
        out = put(history(7, {0: (1, 1, 0, t), 1: (2, 0, 0, t + 5), 2: (3, 0, 12, t + 6),
                              3: (4, 0, 1, t + 7), 4: (5, 0, 4711, t + 8),
                              5: (6, 0, 1 << 40, t + 9), 6: (1, 2, 12, 0)}))
        self.assertEqual(re.findall(r"(?m)^(?:history|       ) +(.*)",
                                    out.split("to change it")[1]), [
            "22:13:20.000000 on TCP: not-earned, too few bytes or rounds so far",
            "22:13:20.000005 has earned its upgrade",
            "22:13:20.000006 the policy was asked: decided by /etc/p.conf:12",
            "22:13:20.000007 began to look for the process at the other end, on another host",
            "22:13:20.000008 found it: process 4711", "22:13:20.000009 sending left TCP at byte "
            "1099511627776", "- on TCP: policy, by /etc/p.conf:12"])
        j = json.loads(self.run_it("why", "-j", f"{self.pid}:7").stdout)["connections"][0][
            "history"]
        self.assertEqual([(e["event"], e["reason"], e["arg"]) for e in j][:3],
                         [("reason", "not-earned", 0), ("earned", None, 0), ("rule", None, 12)])
        # the first six, and the last ten of a hundred
        out = put(history(100, {k: (8, 0, k, t + k) for k in (*range(6), *range(90, 100))}))
        self.assertIn("(84 more events; ", out)
        self.assertEqual(out.count("sending is back on TCP"), 16)
        # what a liar, or a writer in the middle of it, puts there
        for h in (history(2**32 - 1, {k: (8, 0, k, t) for k in range(16)}),
                  history(16, {k: (8, 0, k, t) for k in range(16)}, gen=2),
                  history(1, {0: (0, 0, 0, t)}), history(1, {0: (200, 0, 0, t)}),
                  history(1, {0: (1, 250, 0, t)}), history(1, {0: (1 | 1 << 20, 0, 0, t)}),
                  b"\xff" * 392):
            out = put(h)
            self.assertNotIn("?", out.split("to change it")[1])
            self.assertLess(out.count("\n"), 18)
        self.assertIn("nothing is recorded", put(history(1, {0: (200, 0, 0, t)})))
        # earned, but the other end is still looked for: more bytes are no remedy
        waits = (header(self.pid, rows_used=1) + row(7, (L, 80), (L, 9), 0, 0, (1, 0, 0), (0, 0, 0),
                                                     reason=1)).ljust(HISTORY_AT, b"\0")
        for events, said in (({0: (1, 1, 0, t)}, "it earns its upgrade at"),
                             ({0: (1, 1, 0, t), 1: (2, 0, 0, t), 2: (4, 0, 0, t)},
                              "has earned its upgrade, and the process at"),
                             ({0: (2, 0, 0, t), 1: (1, 1, 0, t)}, "it earns its upgrade at")):
            self.put(waits + history(len(events), events))
            out = self.run_it("why", f"{self.pid}:7").stdout
            self.assertIn(said, re.search(r"(?ms)^to change it (.*)^history", out)[1])
            self.assertEqual("too few bytes" in re.search(r"(?m)^reason .*", out)[0],
                             "earns its" in said)
        # the command that is named changes the file that this process reads
        self.assertIn("rdmastat policy set -f /etc/p.conf earn_bytes 0", re.sub(r"\n +", " ",
            self.run_it("why", f"{self.pid}:7", env={"RDMASHIM_CONF": "/etc/other.conf"}).stdout))
        self.assertIn("rdmastat policy set earn_bytes 0", re.sub(r"\n +", " ",
            self.run_it("why", f"{self.pid}:7", env={"RDMASHIM_CONF": "/etc/p.conf"}).stdout))

    def test_why_bad(self):
        self.two()
        for args, word in (((), "name a process"), (("1", "2"), "name a process"),
                           (("x",), "whole number"), ((f"{self.pid}:",), "whole number"),
                           ((f"{self.pid}:x",), "whole number"),
                           (("99999999999",), "whole number")):
            self.assertIn(word, self.run_it("why", *args, rc=2).stderr)
        self.assertIn("no counters", self.run_it("why", "1", rc=1).stderr)
        self.assertIn("no TCP connection on descriptor 77", self.run_it("why", f"{self.pid}:77",
            rc=1).stderr)

    # ---- dev, mr
    def tree(self, files):
        root = os.path.join(self.dir, "root")
        for name, text in files.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
        return root

    def test_dev(self):
        none = self.tree({"proc/x": ""})
        self.assertIn("No RDMA device here", self.run_it("dev", "--root", none).stdout)
        p = "sys/class/infiniband/mlx5_0/ports/1/"
        q = "sys/class/infiniband/rxe0/ports/1/"
        root = self.tree({p + "state": "4: ACTIVE\n", p + "rate": "100 Gb/sec (4X EDR)\n",
                          p + "link_layer": "Ethernet\n", p + "gid_attrs/ndevs/0": "eth4\n",
                          p + "counters/port_xmit_data": "256\n",
                          p + "counters/port_rcv_data": "junk\n", q + "state": "1: DOWN\x1b[31m\n",
                          q + "rate": "\n",
                          q + "counters/port_xmit_data": str(1 << 63) + "\n",
                          "sys/class/infiniband/rxe0/device/net/eth9/mtu": "1500\n",
                          "sys/class/infiniband/empty/node_type": "1\n"})
        self.put(header(self.pid, rows_used=3, counters=[0] * 15 + [3, 5])
                 + row(7, (L, 1), (L, 2), 2, 0, (0, 0, 100), (1, 0, 0)) + row(8, (L, 1), (L, 3), 0,
                     2, (1, 0, 0), (0, 0, 24)) + row(9, (L, 1), (L, 4), 1, 1, (0, 9, 0), (0, 0, 0)))
        j = json.loads(self.run_it("dev", "--json", "--root", root).stdout)
        a, b = j["devices"]
        self.assertEqual(a, {"device": "mlx5_0", "port": "1", "state": "ACTIVE",
                             "link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)", "net": "eth4",
                             "sent_bytes": 1024, "received_bytes": None, "links": 0, "streams": 0})
        self.assertEqual((b["device"], b["net"], b["sent_bytes"]), ("rxe0", "eth9", None))
        self.assertEqual(j["rdma"], {"processes": 1, "connections": 2, "bytes": 124, "links": 5,
                                     "paths_lost": 3})
        out = self.run_it("dev", "--root", root, "-s", "device").stdout
        self.assertRegex(out, r"mlx5_0 +1 ACTIVE +Ethernet +100 Gb/sec \(4X EDR\) eth4 +1\.0K +- "
                         r"+0 +0\n")
        self.assertIn("124 bytes in 1 process, 2 connections now, 5 links made, 3 paths lost", out)
        self.assertNotIn("\x1b", out)
        self.assertEqual([x["device"] for x in json.loads(self.run_it("dev", "-j", "--root", root,
            "-s", "sent:r").stdout)["devices"]], ["rxe0", "mlx5_0"])

    # ---- qp
    def six(self):
        self.put(header(self.pid, program=b"srv").ljust(LINKS_AT, b"\0") + links(
            link(17, 18, 5, rtt=12345), link(0x123456, 0x654321, 1000, port=2, mtu=4096,
                                             device=b'mlx\0335"', gids=("fe80::1", "fe80::2"),
                                             kind=1),
            link(3, 0, 7, kind=3, device=b"siw0", gids=(None, None), rtt=4294967295),
            link(0, 0, 0, phase=0, kind=0, port=0, mtu=0, device=b"", gids=(None, None), family=0),
            link(9, 10, 2, phase=2), link(1, 1, 1, state=1), link(1, 1, 1, phase=3)))

    def test_qp(self):
        self.six()
        j = json.loads(self.run_it("qp", "--json").stdout)["queue_pairs"]
        self.assertEqual(j[0], {"pid": self.pid, "program": "srv", "state": "up", "device": "rxe0",
                                "port": 1, "kind": "roce", "qpn": 17, "peer_qpn": 18,
                                "gid": "::ffff:10.0.0.1", "peer_gid": "fe80::2",
                                "address": "10.0.0.1:4791", "peer_address": "10.0.0.2:5000",
                                "mtu": 1024, "rtt_ns": 12345, "streams": 5})
        self.assertEqual([(q["qpn"], q["peer_qpn"], q["kind"], q["state"], q["streams"])
                          for q in j],
                         [(17, 18, "roce", "up", 5), (0x123456, 0x654321, "infiniband", "up", 1000),
                          (3, None, "iwarp", "up", 7), (None, None, None, "connecting", 0),
                          (9, 10, "roce", "lost", 2)])
        self.assertEqual((j[1]["device"], j[1]["gid"], j[2]["gid"], j[2]["address"], j[3]["device"],
                          j[3]["address"]), ('mlx?5"', "fe80::1", None, "10.0.0.1:4791", None,
                                             None))
        out = self.run_it("qp", "-s", "qpn").stdout
        self.assertNotIn("\x1b", out)
        lines = [x.split()[2:] for x in out.splitlines()]
        self.assertEqual(lines[0], "DEVICE PORT QPN PEER-QPN GID PEER-GID MTU RTT STREAMS "
                         "STATE".split())
        self.assertEqual(lines[1], ['mlx?5"', "2", "1193046", "6636321", "fe80::1", "fe80::2",
                                    "4096", "-", "1000", "up"])
        self.assertEqual(lines[2], ["rxe0", "1", "17", "18", "::ffff:10.0.0.1", "fe80::2", "1024",
                                    "12.3us", "5", "up"])
        self.assertEqual(lines[4], ["siw0", "1", "3", "-", "10.0.0.1", "10.0.0.2", "1024",
                                    "4294967.3us", "7", "up"])
        self.assertEqual(lines[5], ["-", "-", "-", "-", "-", "-", "-", "-", "0", "connecting"])
        self.assertEqual([x.split()[0] for x in self.run_it("qp", "-o", "state,peer-address,kind",
                                                            "-s", "state").stdout.splitlines()],
                                                            ["STATE", "connecting", "lost", "up",
                                                                "up", "up"])
        for col in [x.split()[0] for x in self.run_it("qp", "-o", "help").stdout.splitlines()]:
            self.run_it("qp", "-s", col)
            self.run_it("qp", "-s", col + ":r", "-o", "all")
        self.assertEqual(json.loads(self.run_it("qp", "-j", "-P", "other").stdout)["queue_pairs"],
                         [])

    def test_qp_elsewhere(self):
        """What dev and prometheus say of them: those that are up."""
        self.six()
        root = self.tree({f"sys/class/infiniband/{d}/ports/{p}/state": "4: ACTIVE\n" for d,
                          p in (("rxe0", 1), ("rxe0", 2), ("siw0", 1))})
        j = json.loads(self.run_it("dev", "-j", "--root", root).stdout)["devices"]
        self.assertEqual([(d["device"], d["port"], d["links"], d["streams"]) for d in j],
                         [("rxe0", "1", 1, 5), ("rxe0", "2", 0, 0), ("siw0", "1", 1, 7)])
        self.assertEqual([d["device"] for d in json.loads(self.run_it("dev", "-j", "--root", root,
            "-s", "streams").stdout)["devices"]], ["siw0", "rxe0", "rxe0"])
        text = self.run_it("prometheus").stdout
        names = self.check_exposition(text)
        self.assertEqual((names["rdmashim_rdma_link_streams"],
                          names["rdmashim_rdma_link_rtt_seconds"]), ("gauge", "gauge"))
        for want in ('rdma_link_streams{PROC,device="rxe0",port="1",qpn="17",peer_qpn="18"} 5',
                     'rdma_link_rtt_seconds{PROC,device="rxe0",port="1",qpn="17",peer_qpn="18"} '
                     '0.000012345',
                     'rdma_link_streams{PROC,device="mlx?5\\"",port="2",'
                      'qpn="1193046",peer_qpn="6636321"} 1000'):
            self.assertIn("rdmashim_" + want.replace("PROC",
                                                     f'pid="{self.pid}",uid="{os.getuid()}",'
                                                      'program="srv"') + "\n", text)
        self.assertEqual((text.count("rdma_link_streams{"), text.count("rdma_link_rtt_seconds{")),
                         (3, 2))

    def test_mr(self):
        s, c = self.two()
        root = self.tree({f"proc/{s}/status": "Name:\tx\nVmLck:\t       8 kB\nVmPin:\t    2048 "
                          "kB\n",
                          f"proc/{s}/limits": "Limit  Soft Limit  Hard Limit  Units\nMax locked "
                          "memory         65536    unlimited   bytes\n",
                          f"proc/{c}/limits": "Max locked memory         unlimited   unlimited "
                          "  bytes\n"})
        m = {x["pid"]: x for x in json.loads(self.run_it("mr", "--json", "--root", root).stdout)[
            "memory"]}
        self.assertEqual((m[s]["pinned_bytes"], m[s]["locked_bytes"], m[s]["limit_bytes"]),
                         (2 << 20, 8192, 65536))
        self.assertEqual((m[c]["pinned_bytes"], m[c]["limit_bytes"], m[c]["connections"]),
                         (None, None, 0))
        out = self.run_it("mr", "--root", root, "-s", "limit").stdout.splitlines()
        self.assertRegex(out[1], rf"^ *{c} redis-cli +- +- unlimited ")
        self.assertRegex(out[2], rf"^ *{s} redis-server +2\.0M +8\.0K +64\.0K ")
        me = [x for x in json.loads(self.run_it("mr", "-j", "-p", str(s)).stdout)["memory"]]
        self.assertEqual([x["pid"] for x in me], [s])
        self.assertEqual(me[0]["pinned_bytes"], 0)

    # ---- prometheus
    def check_exposition(self, text):
        names, last = {}, None
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                names[line.split()[2]] = line.split()[3]
            elif not line.startswith("#"):
                m = re.fullmatch(r'([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\.)*"'
                                 r'(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\})? (\d+(?:\.\d+)?)', line)
                self.assertTrue(m, line)
                self.assertIn(m.group(1), names)
        return names

    def test_prometheus(self):
        s, c = self.two()
        text = self.run_it("prometheus").stdout
        names = self.check_exposition(text)
        self.assertEqual((names["rdmashim_bytes_total"], names["rdmashim_connections_live"]),
                         ("counter", "gauge"))
        self.assertIn(f'rdmashim_bytes_total{{pid="{s}",uid="{os.getuid()}",'
                      f'program="redis-server",direction="tx",'
                      f'path="shm"}} {900 + (7 << 20)}\n', text)
        self.assertIn("rdmashim_processes 2\n", text)
        self.assertRegex(text, rf'rdmashim_tcp_connections{{pid="{s}",.*reason="peer-no-shim"}} '
                         rf'1\n')
        path = os.path.join(self.dir, "out.prom")
        self.assertEqual(self.run_it("prometheus", "-O", path).stdout, "")
        self.assertEqual(open(path).read(), text)
        self.assertEqual([f for f in os.listdir(self.dir) if "prom" in f], ["out.prom"])
        self.assertIn("cannot write", self.run_it("prometheus", "-O", self.dir + "/none/x",
                                                  rc=1).stderr)
        self.assertIn("format of its own", self.run_it("prometheus", "--json", rc=2).stderr)
        self.put(header(self.pid, program=b'a"b\\c\n'))
        self.check_exposition(self.run_it("prometheus").stdout)

    def test_prometheus_show(self):
        """Of other users' processes nothing is in what others can read, unless it is asked for."""
        s, c = self.two()
        path = os.path.join(self.dir, "out.prom")
        for args, shown in (((), 2), (("--show", "all"), 2), (("--show", "own"), 2),
                            (("-O", path), 2)):
            text = self.run_it("prometheus", *args).stdout or open(path).read()
            self.assertIn(f"rdmashim_processes_not_shown {2 - shown}\n", text)
            self.assertEqual(text.count("rdmashim_mode_on{"), shown)
        self.assertIn("neither own nor all", self.run_it("prometheus", "--show", "none",
                                                         rc=2).stderr)
        self.assertIn("goes with --listen", self.run_it("prometheus", "--host", "a", rc=2).stderr)
        if os.getuid():
            return self.skipTest("only root sees processes of others")
        os.unlink(path)
        for f in (self.dir, *(os.path.join(self.dir, f) for f in os.listdir(self.dir))):
            os.chown(f, 31337, 31337)
        path = self.tree({"x": ""}) + "/out.prom"
        for args, shown in (((), 2), (("--show", "all"), 2), (("--show", "own"), 0),
                            (("-O", path), 0), (("-O", path, "--show", "all"), 2)):
            text = self.run_it("prometheus", *args).stdout or open(path).read()
            self.check_exposition(text)
            self.assertIn(f"rdmashim_processes {shown}\n", text)
            self.assertIn(f"rdmashim_processes_not_shown {2 - shown}\n", text)
            self.assertEqual((text.count('uid="31337"') > 0, "redis" in text),
                             (shown > 0, shown > 0))
        self.assertIn('uid="31337"', self.run_it("prometheus", "-p", str(s)).stdout)

    def test_prometheus_listen(self):
        self.two()
        with socket.socket() as s:
            s.bind((L, 0))
            port = s.getsockname()[1]
        p = subprocess.Popen([RDMASTAT, "prometheus", "--listen", str(port), "-n", "5"],
                             env=dict(os.environ, RDMASHIM_STAT_DIR=self.dir))
        self.addCleanup(p.kill)
        end = time.time() + 10
        while time.time() < end:
            try:
                silent = socket.create_connection((L, port), 5)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        silent.close()  # one that says nothing does not keep it from the others
        for path, status in (("/metrics", 200), ("/metrics?x=1", 200), ("/", 404)):
            h = http.client.HTTPConnection(L, port, timeout=10)
            h.request("GET", path)
            r = h.getresponse()
            body = r.read().decode()
            self.assertEqual(r.status, status)
            if status == 200:
                self.check_exposition(body)
                self.assertIn("rdmashim_processes 2", body)
        with socket.create_connection((L, port), 5) as s:
            s.sendall(b"X" * 10000)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        self.assertEqual(p.wait(20), 0)
        self.assertIn("not an address", self.run_it("prometheus", "--listen", "nowhere:99",
                                                    rc=1).stderr)
        self.assertIn("whole number", self.run_it("prometheus", "--listen", "x", rc=1).stderr)
        self.assertIn("leave out", self.run_it("prometheus", "--listen", "1", "-w", "1",
                                               rc=2).stderr)

    # ---- record, report
    def sample_line(self, t, shm, tcp, program="web", pid=5, start=9):
        p = {"pid": pid, "start_time": start, "program": program, "connections": 1 + shm // 100,
             "bytes": {"tcp": tcp, "shm": shm, "rdma": 0}}
        return json.dumps({"schema": 1, "time": t, "processes": [p]}) + "\n"

    # ---- terminals
    def test_width_color(self):
        self.two()
        for width in (1, 7, 20, 40, 80):
            for args in ((), ("conn",), ("link",), ("listen",), ("calls",), ("dev",), ("qp",),
                         ("mr",), ("staging",), ("reasons",), ("policy", "keys"),
                         ("why", f"{self.pid}:8"), ("why", str(self.pid)),
                         ("doctor", "--no-transfer", "-l", "/none")):
                out = self.run_it(*args, env={"COLUMNS": str(width)}, rc=4 if args[:1] == ("doctor",
                    ) else 0).stdout
                if width >= 20:
                    longest = max(out.splitlines(), key=len)
                    words = max(len(w) for w in out.split())
                    self.assertLessEqual(len(longest), max(width, words + 5),
                                         f"{args} at {width}: {longest}")
        # colours take no columns: on a terminal no line is longer, and none is broken sooner
        for width in (30, 80):
            for args in (("doctor", "--no-transfer", "-l", "/none"), ("why", f"{self.pid}:8")):
                out, _ = self.on_terminal(args, cols=width)
                self.assertIn(b"\x1b[", out)
                shown = re.sub(rb"\x1b\[[0-9;]*m", b"", out).decode().replace("\r\n", "\n")
                self.assertLessEqual(len(max(shown.splitlines(), key=len)),
                                     max(width, max(len(w) for w in shown.split()) + 5), shown)
            self.assertEqual(shown, self.run_it("why", f"{self.pid}:8",
                                                env={"COLUMNS": str(width)}).stdout)
        self.assertNotIn("\x1b", self.run_it().stdout)
        self.assertIn("\x1b[1m", self.run_it("--color", "always").stdout)
        self.assertIn("none of auto", self.run_it("--color", "blue", rc=2).stderr)

    def on_terminal(self, args, rows=24, cols=80, keys=(), env={}, wait=None, seconds=15):
        """Runs rdmastat on a pseudo terminal; returns what it wrote and its exit code. keys:
        (text to wait for, bytes or size to send, or what to do)."""
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update({"RDMASHIM_STAT_DIR": self.dir, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
                              **env)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            os.execv(RDMASTAT, [RDMASTAT, *args])
        out, keys, since, end = b"", list(keys), 0, time.time() + seconds
        while time.time() < end:
            r, _, _ = select.select([fd], [], [], 0.2)
            if r:
                try:
                    data = os.read(fd, 65536)
                except OSError as e:
                    if e.errno != errno.EIO:
                        raise
                    data = b""
                if not data:
                    break
                out += data
            while keys and keys[0][0] in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\(B", b"",
                                                out[since:]):
                since = len(out)
                k = keys.pop(0)[1]
                if callable(k):
                    k()
                elif isinstance(k, tuple):
                    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *k, 0, 0))
                    os.kill(pid, signal.SIGWINCH)
                else:
                    os.write(fd, k)
        else:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(fd)
        self.assertEqual(keys, [], f"never seen: {keys[:1]} in {out[-3000:]}")
        return out, status

    def test_colors_on_terminal(self):
        self.two()
        out, rc = self.on_terminal(())
        self.assertEqual(rc, 0)
        self.assertIn(b"\x1b[1m", out)
        out, _ = self.on_terminal((), env={"NO_COLOR": "1"})
        self.assertNotIn(b"\x1b", out)
        out, _ = self.on_terminal((), env={"TERM": "dumb"})
        self.assertNotIn(b"\x1b", out)

    def test_top(self):
        self.two()
        plain = lambda b: re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\(B", b"", b).decode("utf-8",
            "replace")
        out, rc = self.on_terminal(("top", "-w", "1"), keys=((b"redis-server", b"c"),
            (b"PEER", b"/"), (b"filter:", b"path tcp\n"), (b"path tcp", b"s"),
                                                             (b"bytes", b"h"),
                                                             (b"this help", (8, 20)),
                                                             (b"2 proc 6 conn", (24, 80)),
                                                             (b"rdmashim: 2 processes, 6 "
                                                                 b"connections", b"q")))
        self.assertEqual(rc, 0, plain(out))
        self.assertIn("hit rate", plain(out))
        self.assertIn(b"\x1b[?1049l", out)  # the terminal was given back
        for rows, cols in ((1, 1), (2, 20), (5, 10), (24, 20), (3, 300)):
            _, rc = self.on_terminal(("top", "-n", "1"), rows=rows, cols=cols)
            self.assertEqual(rc, 0, f"{rows} x {cols}")
        # no figure is cut at the edge: what does not fit is left out
        for cols, hit, peer, size in ((50, False, False, False), (57, False, True, False),
                                      (63, False, True, True), (64, True, True, True),
                                      (80, True, True, True)):
            first, second = (plain(self.on_terminal(("top", "-n", "1", *filter), cols=cols)[0])
                             for filter in ((), ("bytes >= 0",)))
            self.assertEqual([w in t for w, t in (("HIT", first), ("PEER", second),
                                                  ("BYTE", second))], [hit, peer, size],
                                                  f"{cols}: {first} {second}")
        _, rc = self.on_terminal(("top", "-n", "1", "dport = 443"))
        self.assertEqual(rc, 0)
        out, rc = self.on_terminal(("top",), keys=((b"redis-server", b"\x03"),))
        self.assertEqual(rc, 0)
        self.assertIn("needs a terminal", self.run_it("top", rc=1).stderr)
        self.assertIn("did you mean dport", self.run_it("top", "dprt = 1", rc=2).stderr)
        self.assertIn("--sort", self.run_it("top", "-s", "x", rc=2).stderr)
        out, rc = self.on_terminal(("top",), env={"TERM": "nonsense"})
        self.assertEqual(rc, 1)


for name in dir(base.Rdmastat):
    if name.startswith("test_"):
        setattr(Tools, name, None)  # not twice

if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    unittest.main(warnings="ignore")
