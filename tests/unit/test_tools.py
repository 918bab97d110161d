#!/usr/bin/env python3
"""rdmastat's commands on made-up counter files: conn and its filters, link, why, prometheus,
record and report, reset, columns, colours, narrow terminals, top on a pseudo terminal, and
every command with wrong arguments.

usage: test_tools.py path/to/rdmastat
"""
import errno
import fcntl
import http.client
import json
import os
import pty
import random
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest
import warnings
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_rdmastat as base  # takes the program's path off sys.argv
from test_rdmastat import HEADER, HISTORY_AT, LINKS_AT, ROW, ROWS, header, history, link, links, row

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
                           ("path shm )", "closes nothing"), ("path udp", "tcp, shm or rdma"),
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
        line = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rdmastat; printf "%s\\n" "${COMPREPLY[@]}"'
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
        for part in "==== rdmastat doctor", "==== /proc/self/limits", "127.0.0.1:5001", "key_file", "redis-cli":
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
                     'rdma_link_streams{PROC,device="mlx?5\\"",port="2",qpn="1193046",peer_qpn="6636321"} 1000'):
            self.assertIn("rdmashim_" + want.replace("PROC",
                                                     f'pid="{self.pid}",uid="{os.getuid()}",program="srv"') + "\n", text)
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
                m = re.fullmatch(r'([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\})? (\d+(?:\.\d+)?)', line)
                self.assertTrue(m, line)
                self.assertIn(m.group(1), names)
        return names

    def test_prometheus(self):
        s, c = self.two()
        text = self.run_it("prometheus").stdout
        names = self.check_exposition(text)
        self.assertEqual((names["rdmashim_bytes_total"], names["rdmashim_connections_live"]),
                         ("counter", "gauge"))
        self.assertIn(f'rdmashim_bytes_total{{pid="{s}",uid="{os.getuid()}",program="redis-server",direction="tx",path="shm"}} {900 + (7 << 20)}\n', text)
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

    def test_record_report(self):
        self.two()
        path = os.path.join(self.dir, "rec")
        self.run_it("record", "-n", "2", path)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        lines = [json.loads(x) for x in open(path)]
        self.assertEqual(len(lines), 2)
        self.assertEqual({p["program"] for p in lines[0]["processes"]},
                         {"redis-server", "redis-cli"})
        self.assertGreaterEqual(lines[1]["time"] - lines[0]["time"], 0.9)
        with open(path, "w") as f:
            f.write(self.sample_line(100.5, 1000, 500) + self.sample_line(101.5, 4000, 500)
                    + self.sample_line(104.5, 10000, 1500))
        svg = os.path.join(self.dir, "c.svg")
        out = self.run_it("report", "--svg", svg, path).stdout
        self.assertRegex(out, r"(?s)^4\.0 s, 3 samples\n.*web +1 +90 +1000 +8\.8K +0 +2\.4K "
                         r"+90\.0%\ntotal ")
        d = xml.dom.minidom.parse(svg)
        self.assertTrue({"path", "text", "line"} <= {n.nodeName
                                                     for n in d.documentElement.childNodes})
        j = json.loads(self.run_it("report", "-j", path).stdout)
        self.assertEqual((j["programs"][0]["bytes"], j["total"]["seconds"], j["samples"]),
                         ({"tcp": 1000, "shm": 9000, "rdma": 0}, 4.0, 3))
        # a process that came, and one whose number was taken again by another
        with open(path, "w") as f:
            f.write(self.sample_line(1.0, 10, 0) + self.sample_line(2.0, 70, 0, pid=6)
                    + self.sample_line(3.0, 5, 0, start=10))
        j = json.loads(self.run_it("report", "-j", path).stdout)
        self.assertEqual((j["total"]["bytes"]["shm"], j["total"]["processes"]), (75, 3))

    def test_report_damaged(self):
        path = os.path.join(self.dir, "rec")
        good = self.sample_line(1.0, 10, 0) + self.sample_line(2.0, 70, 0)
        for bad in ("{", "[]", "null", '{"schema":1,"time":"x","processes":[]}',
                    '{"schema":1,"time":3.0,"processes":{}}',
                    '{"schema":2,"time":3.0,"processes":[]}',
                    "\0\0", "x" * 100000, "[" * 5000, self.sample_line(-5.0, 1, 1).strip(),
                    good[:60]):
            with open(path, "w") as f:
                f.write(good + bad + "\n")
            p = self.run_it("report", path)
            self.assertIn("left out", p.stderr)
            self.assertIn("2 samples", p.stdout)
        with open(path, "w") as f:
            f.write(good
                    + '{"schema":1,"time":3.0,"processes":[7,null,[],{},{"pid":"x","bytes":7,"program":3},{"bytes":{"shm":-1}}]}\n')
        self.assertIn("3 samples", self.run_it("report", path).stdout)
        with open(path, "w") as f:
            f.write(self.sample_line(1.0, 1, 1))
        self.assertIn("two are needed", self.run_it("report", path, rc=1).stderr)
        self.assertIn("No such file", self.run_it("report", self.dir + "/none", rc=1).stderr)
        for cmd in ("record", "report"):
            self.assertIn("name one file", self.run_it(cmd, rc=2).stderr)
        self.assertIn("No such file", self.run_it("record", self.dir + "/none/x", rc=1).stderr)

    # ---- reset
    def test_reset(self):
        s, c = self.two()
        total = lambda *a: json.loads(self.run_it("--json", *a).stdout)["total"]
        before = total()
        self.assertIn("2 processes", self.run_it("reset").stdout)
        t = total()
        self.assertEqual((t["bytes"], t["connections"], t["reasons"], t["live"]),
                         ({"tcp": 0, "shm": 0, "rdma": 0}, 0, [], 6))
        self.assertEqual(total("--absolute"), before)
        self.put(header(s, program=b"redis-server", rows_used=0, counters=(5, 2, 4),
                        tx=(600, 900 + (7 << 20), 0), rx=(61, 95, 0)))
        t = total()
        self.assertEqual((t["bytes"], t["connections"]), ({"tcp": 0, "shm": 5, "rdma": 0}, 2))
        # another process under the same number starts at zero; a damaged baseline is none
        base_file = os.path.join(self.dir, "baseline")
        text = open(base_file).read()
        open(base_file, "w").write(text.replace(f"{s} ", f"{s} 9", 1))
        self.assertEqual(total("-p", str(s))["connections"], 5)
        for junk in ("", "x\n" + text, text[:len(text) // 2], text.replace(" ", " z"), "\0" * 100):
            open(base_file, "w").write(junk)
            self.run_it()
        os.unlink(base_file)
        os.symlink("/etc/passwd", base_file)
        self.assertEqual(total(), total("--absolute"))
        os.unlink(base_file)
        # the calls too
        calls = lambda n, *a: (self.put(header(s, program=b"x").ljust(base.CALLS_AT, b"\0")
                                        + b"send".ljust(48 * 128, b"\0") + struct.pack("<2Q", n,
                                            2 * n)),
                               [(c["tcp"], c["fast"]) for c in json.loads(self.run_it("calls",
                                   "--json", *a).stdout)["calls"]])[1]
        self.assertEqual(calls(5), [(5, 10)])
        self.run_it("reset")
        self.assertEqual(calls(5), [])
        self.assertEqual(calls(7), [(2, 4)])
        self.assertEqual(calls(7, "--absolute"), [(7, 14)])
        os.unlink(base_file)
        j = json.loads(self.run_it("reset", "--json").stdout)
        self.assertEqual(j["reset"], 2)

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

    # ---- the command line
    def test_every_command_wrong(self):
        for args, word in ((("con",), "did you mean conn?"), (("tpo",), "did you mean top?"),
                           (("xyzzy",), "--help lists them"), (("link", "x"), "unexpected word"),
                           (("reset", "x"), "unexpected word"),
                           (("overview", "x"), "unexpected word"), (("prometheus", "x"),
                               "unexpected word"),
                           (("link", "--svg", "x"), "does not go with link"), (("conn", "-O", "x"),
                               "does not go with conn"),
                               (("top", "--json"), "does not go with top"),
                           (("record", "--json", "x"), "does not go with record"),
                           (("reset", "-w", "1"), "does not go with reset"), (("conn", "--sort"),
                               "needs a value"),
                           (("watch", "0"), "whole number"), (("watch", "1", "con"),
                               "did you mean conn?"), (("doctor", "--jsn"), "did you mean --json?"),
                           (("doctor", "a", "b"), "one peer"), (("doctor-loop",), "only"),
                           (("doctor-cuda",), "only"), (("reasons", "x"), "no more words"),
                           (("-s", "pid", "doctor"), "unknown option -s"),
                           (("policy", "keys", "x"), "no more words"), (("policy", "show", "x"),
                               "unexpected word"), (("policy", "set", "spin"), "KEY VALUE"),
                           (("policy", "unset"), "KEY"), (("policy", "set", "spni", "1"),
                                                          "did you mean spin?"),
                                                          (("policy", "set", "use", "1"), "editor"),
                           (("policy", "import", "a", "b"), "FILE"), (("policy", "imprt"),
                               "did you mean policy import?")):
            p = self.run_it(*args, rc=2)
            self.assertIn(word, p.stderr, args)
            self.assertEqual(p.stdout, "", args)
        for c in re.findall(r"(?m)^  ([a-z]+) .*", self.run_it("--help").stdout.split("Options:")[
            0]):
            self.assertIn("usage: rdmastat", self.run_it(c, "--help").stdout)

    def test_only_files_are_replaced(self):
        """A device, a pipe or a directory keeps its place: /dev/null, for root."""
        self.two()
        pipe = os.path.join(self.dir, "pipe")
        os.mkfifo(pipe)
        for name in pipe, self.dir:
            for args in ("policy", "set", "-f", name, "spin", "1us"), ("policy", "unset", "-f",
                name, "spin"), ("prometheus", "-O", name):
                p = self.run_it(*args, rc=1)
                self.assertIn(f"{name} is not a regular file; name one", p.stderr, args)
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))

    def test_every_argument_wrong(self):
        """Every option of every command with a value that it cannot have, every option that a
        command does not take, a word too many."""
        self.two()
        values = {"--watch": ("0", "-1", "x", "1.5", "", "86401", "99999999999999999999"),
                  "--count": ("0", "x", "", "4294967296"),
                  "--pid": ("0", "x", "-5", "", "2147483648"), "--sort": ("nonsense", "", "pid:x",
                      ":r"), "--columns": ("nonsense", "", "pid,,fd", ","),
                  "--color": ("blue", ""), "--listen": ("x", "", "0", "65536", "nowhere:99",
                                                        "1.2.3.4:"), "--output": (self.dir
                                                            + "/none/x",),
                  "--svg": (self.dir + "/none/x",), "--root": (self.dir + "/none", "/dev/null", "")}
        usage = self.run_it("--help").stdout
        commands = re.findall(r"(?m)^  ([a-z]+) .*", usage.split("Options:")[0])
        own = {"doctor", "policy", "reasons"}
        rec = os.path.join(self.dir, "rec")
        with open(rec, "w") as f:
            f.write(self.sample_line(1.0, 10, 0) + self.sample_line(2.0, 70, 0))
        words = {"why": (f"{self.pid}:7",), "record": ("-",), "report": (rec,),
                 "watch": ("1", "overview", "-n", "1")}
        every = {m[0]: bool(m[1]) for m in re.findall(r"(?m)^  (?:-[a-zA-Z],|   ) (--[a-z-]+)( "
            r"[A-Z\[])?", usage)}
        self.assertGreater(len(every), 12)
        tried = 0
        for c in commands:
            if c in own:
                continue
            takes = set(re.findall(r"(?m)^  (?:-[a-zA-Z],|   ) (--[a-z-]+)",
                                   self.run_it(c, "--help").stdout)) | {"--color"}
            for o, has_value in every.items():
                if o in ("--help", "--version"):
                    continue
                if o not in takes and c != "watch":
                    p = self.run_it(c, *words.get(c, ()), o, *(["1"] if has_value and o != "--color"
                        else ["auto"] if o == "--color" else []), rc=2)
                    self.assertIn(f"{o} does not go with {c}", p.stderr)
                    tried += 1
                    continue
                for v in values.get(o, ()) if c != "watch" else ():
                    args = (c, *words.get(c, ()), o, v,
                            *(("-n", "1") if o not in ("--count", "--watch") and "--count" in takes
                              else ()))
                    p = subprocess.run([RDMASTAT, *args], env=dict(os.environ,
                        RDMASHIM_STAT_DIR=self.dir), capture_output=True, text=True, timeout=20)
                    self.assertIn(p.returncode, (1, 2), f"{args}: {p.stdout}{p.stderr}")
                    self.assertRegex(p.stderr, r"^rdmastat: ", args)
                    self.assertEqual((len(p.stderr.splitlines()), p.stdout if o != "--svg" else ""),
                                     (1, ""), args)
                    tried += 1
                if has_value:
                    self.assertIn("needs a value", self.run_it(c, *words.get(c, ()), o,
                        rc=2).stderr)
                elif c != "watch":
                    self.assertIn("takes no value", self.run_it(c, *words.get(c, ()), o + "=1",
                        rc=2).stderr)
                tried += 1
        self.assertGreater(tried, 150)
        for args in (("policy", "explain", "--role", "x"), ("policy", "explain", "--local", "x"),
                     ("policy", "explain", "--peer", ""), ("policy", "explain", "--nope"),
                     ("policy", "explain", "word"), ("policy", "explain", "--program"),
                     ("policy", "check", "a", "b"), ("policy", "check", "--nope"),
                     ("policy", "show", "-f"),
                     ("policy", "keys", "--nope"), ("policy", "set"), ("policy", "set", "spin"),
                     ("policy", "set", "spin", "1us", "x"), ("policy", "set", "", "x"),
                     ("policy", "unset", "a", "b"), ("policy", "unset", ""), ("policy", "import",
                         "--nope"), ("policy", ""), ("reasons", "--nope"), ("doctor", "--lib"),
                         ("doctor", "--root", self.dir + "/none"),
                     ("doctor", "--nope"), ("doctor", "--json=1"), ("", ), ("--", "nope")):
            p = subprocess.run([RDMASTAT, *args], env=dict(os.environ, RDMASHIM_STAT_DIR=self.dir),
                               capture_output=True, text=True, timeout=20)
            self.assertEqual(p.returncode, 2, f"{args}: {p.stdout}{p.stderr}")
            self.assertRegex(p.stderr, r"^rdmastat: ", args)
            self.assertEqual(p.stdout, "", args)
        for c in ("check", "explain", "show", "keys", "set", "unset", "import"):
            self.assertIn("usage: rdmastat policy", self.run_it("policy", c, "--help").stdout)
        self.assertIn("usage: rdmastat reasons", self.run_it("reasons", "-h").stdout)

    def test_every_view_lost(self):
        """Each command with an output that takes nothing, and with none at all."""
        self.two()
        for args in ((), ("conn",), ("link",), ("listen",), ("calls",), ("dev",), ("qp",), ("mr",),
                     ("staging",), ("why", f"{self.pid}:7"), ("why", str(self.pid)),
                     ("prometheus",), ("reset",), ("reasons",),
                     ("policy", "keys"), ("policy", "show"), ("policy", "explain"),
                     ("record", "-n", "1", "-"), ("doctor", "--no-transfer"), ("--help",),
                     ("conn", "-o", "help")):
            env = dict(os.environ, RDMASHIM_STAT_DIR=self.dir, RDMASHIM_CONF="/dev/null")
            with open("/dev/full", "w") as full:
                p = subprocess.run([RDMASTAT, *args], stdout=full, stderr=subprocess.PIPE,
                                   text=True, env=env)
            self.assertEqual(p.returncode, 1, args)
            self.assertIn("cannot write", p.stderr, args)
            p = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', RDMASTAT, *args], env=env,
                               capture_output=True)
            self.assertEqual(p.returncode, 1, args)

    VIEWS = ((), ("conn",), ("link",), ("listen",), ("calls",), ("dev",), ("qp",), ("mr",),
             ("staging",), ("prometheus",), ("--json",), ("conn", "--json"), ("staging", "--json"))

    def any_view(self, n, **kw):
        """The nth of the views: an answer or a complaint, nothing else."""
        args = (*self.VIEWS, ("why", f"{self.pid}:7"), ("why", "--json", str(self.pid)))[
            n % (len(self.VIEWS) + 2)]
        p = subprocess.run([RDMASTAT, *args], env=dict(os.environ, RDMASHIM_STAT_DIR=self.dir),
                           capture_output=True, timeout=20, **kw)
        self.assertIn(p.returncode, (0, 1), f"{args}: {p.returncode} {p.stderr[-2000:]}")
        self.assertNotIn(b"\x1b", p.stdout + p.stderr)
        if p.returncode == 0 and "--json" in args:
            json.loads(p.stdout)
        return p

    def test_malicious(self):
        """Counter files with anything in them: each view answers or complains, and lets no
        control character through."""
        rnd = random.Random(7)
        whole = (header(self.pid, program=b"A" * 60, rows_used=3, counters=(3, 2, 4),
                        reasons=((6, 1),)) + row(7, (L, S), (L, 5001), 1, 1, (100, 900, 0),
                                                 (10, 90, 0), cuts=2)
                 + row(8, (L, S), (L, 5002), 0, 0, (500, 0, 0), (50, 0, 0), reason=6)).ljust(
                     HISTORY_AT, b"\0") + history(3, {k: (k + 1, 0, 5, 7) for k in range(3)})
        whole = whole.ljust(LINKS_AT, b"\0") + links(link(1, 2, 3), link(4, 5, 6))
        for n in range(104):
            data = bytearray(whole)
            spot = rnd.choice(((0, HEADER), (48, 112), (340, 360), (HEADER, HEADER + 240),
                               (base.CALLS_AT, base.CALLS_AT + 6144), (base.SITES_AT, base.SITES_AT
                                   + 1536), (HISTORY_AT, HISTORY_AT + 392),
                                   (LINKS_AT, LINKS_AT + 336)))
            for _ in range(rnd.choice((1, 8, 200))):
                at = rnd.randrange(*spot)
                data[at:at + 8] = rnd.choice((b"\xff" * 8, b"\x1b[31m\n\r\x07", rnd.randbytes(8),
                                              bytes(8)))
            if spot[0]:
                data[:48] = whole[:48]      # else it is not looked at any further
            self.put(bytes(data))
            self.any_view(n)

    def test_not_a_counter_file(self):
        """A link, a pipe, a directory, files of others or that others may write, under the name
        of a process: left out, and nothing waits for them."""
        good = os.path.join(self.dir, "good")
        self.put(header(self.pid, rows_used=0), name="good")
        path = os.path.join(self.dir, str(self.pid))
        makes = [lambda: os.symlink("good", path), lambda: os.mkfifo(path, 0o600),
                 lambda: os.mkdir(path, 0o700), lambda: os.symlink(path, path),
                 lambda: (os.link(good, path), os.chmod(path, 0o666))]
        if os.getuid() == 0:
            makes.append(lambda: (self.put(header(self.pid)), os.chown(path, 1, 1)))
        for make in makes:
            make()
            for n in range(len(self.VIEWS) + 2):
                self.any_view(n)
            self.assertEqual(json.loads(self.run_it("--json").stdout)["processes"], [],
                             f"{os.lstat(path)}")
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
            os.chmod(good, 0o600)
        os.rename(good, path)
        self.assertEqual(len(json.loads(self.run_it("--json").stdout)["processes"]), 1)
        # the directory itself: open to others, another's, gone, a file
        os.chmod(self.dir, 0o755)
        for n in range(len(self.VIEWS) + 2):
            self.assertNotIn(b"prog ", self.any_view(n).stdout)
        os.chmod(self.dir, 0o700)
        mine = self.dir
        for self.dir in (mine + "/none", path, "/dev/null", ""):
            for n in range(len(self.VIEWS) + 2):
                self.any_view(n)
        self.dir = mine

    def test_vanishing(self):
        """Files that are cut short, lengthened, replaced and removed while they are read."""
        whole = header(self.pid, rows_used=300) + b"".join(row(i, (L, S), (L, 5001 + i), 1, 1,
            (100, 900, 0), (10, 90, 0)) for i in range(300))
        stop = threading.Event()
        done = [0]

        def disturb():
            path, rnd = os.path.join(self.dir, str(self.pid)), random.Random(3)
            while not stop.is_set():
                with open(path + ".new", "wb") as f:
                    os.fchmod(f.fileno(), 0o600)
                    f.write(whole)
                    f.truncate(base.SIZE)
                os.rename(path + ".new", path)
                for _ in range(5):
                    os.truncate(path, rnd.choice((0, 100, HEADER, HEADER + 1000, base.SIZE - 1,
                                                  base.SIZE)))
                os.unlink(path)
                done[0] += 1
        t = threading.Thread(target=disturb)
        t.start()
        try:
            for n in range(10 * (len(self.VIEWS) + 2)):
                self.any_view(n)
        finally:
            stop.set()
            t.join()
        self.assertGreater(done[0], 10)

    def test_watch_command(self):
        self.two()
        out = self.run_it("watch", "1", "link", "--json", "-n", "2").stdout.splitlines()
        self.assertEqual([len(json.loads(x)["links"]) for x in out], [3, 3])

    def test_run_directory(self):
        """What rdmarun --stat puts below the directory is seen; the dead are kept while it runs,
        then forgotten."""
        child = subprocess.Popen(["sleep", "60"])
        sub = os.path.join(self.dir, f"run.{os.getpid()}")
        os.mkdir(sub, 0o700)
        self.put(header(child.pid, program=b"mine", tx=(5, 0, 0)),
                 name=f"run.{os.getpid()}/{child.pid}")
        os.mkdir(os.path.join(sub, "run.1"), 0o700)
        progs = lambda *a: [p["program"] for p in json.loads(self.run_it("--json", *a).stdout)[
            "processes"]]
        self.assertEqual(progs(), ["mine"])
        child.kill()
        child.wait()
        self.assertEqual((progs(), progs("--all"), os.path.exists(f"{sub}/{child.pid}")),
                         ([], ["mine"], True))
        os.rmdir(os.path.join(sub, "run.1"))
        os.rename(sub, os.path.join(self.dir, f"run.{child.pid}"))
        self.assertEqual(progs("--all"), ["mine"])
        self.assertEqual(os.listdir(self.dir), [])

    def test_many(self):
        """200 processes with 50 connections each."""
        kids = [subprocess.Popen(["sleep", "60"]) for _ in range(200)]
        try:
            for n, k in enumerate(kids):
                rows = b"".join(row(i, (L, 20000 + n), (L, 1 + i), 1, 1, (1, 2, 3), (4, 5, 6))
                                for i in range(50))
                self.put(header(k.pid, rows_used=50) + rows, name=k.pid)
            times = []
            for args in ((), ("conn",), ("link",), ("mr",), ("conn", "--json"), ("--json",)):
                t = time.perf_counter()
                out = self.run_it(*args).stdout
                times.append(time.perf_counter() - t)
                self.assertGreater(len(out.splitlines()), 200)
            print("200 processes, 10,000 connections: " + ", ".join("%.0f ms" % (1000 * t)
                for t in times))
        finally:
            for k in kids:
                k.kill()
            for k in kids:
                k.wait()

    # ---- documents
    def test_json_documented(self):
        """Every field that is printed stands in docs/json.md."""
        s, c = self.two()
        rec = os.path.join(self.dir, "rec")
        with open(rec, "w") as f:
            f.write(self.sample_line(1.0, 10, 0) + self.sample_line(2.0, 70, 0))
        doc = open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../docs/json.md")).read()
        known = set(re.findall(r"`([a-z_]+)`", doc))
        names = set()
        with open(os.path.join(self.dir, str(c)), "r+b") as f:
            f.seek(LINKS_AT)
            f.write(links(link(1, 2, 3)))

        def walk(o):
            if isinstance(o, dict):
                for k, v in o.items():
                    names.add(k)
                    walk(v)
            elif isinstance(o, list):
                for v in o:
                    walk(v)
        for args in ((), ("conn",), ("link",), ("listen",), ("calls",), ("dev",), ("qp",), ("mr",),
                     ("staging",), ("why", f"{s}:7"), ("why", str(s)), ("report", rec), ("reset",),
                     ("reasons",), ("policy", "keys"), ("policy", "show"),
                     ("policy", "explain"), ("policy", "check"), ("doctor", "--no-transfer")):
            p = subprocess.run([RDMASTAT, *args, "--json"], env=dict(os.environ,
                RDMASHIM_STAT_DIR=self.dir, RDMASHIM_CONF="/dev/null"), capture_output=True,
                text=True)
            def once(pairs):
                self.assertEqual(len(pairs), len(dict(pairs)), f"{args}: a key twice in {pairs}")
                return dict(pairs)
            j = json.loads(p.stdout, object_pairs_hook=once)
            self.assertEqual(j["schema"], 1, args)
            walk(j)
        self.assertEqual(names - known, set())


for name in dir(base.Rdmastat):
    if name.startswith("test_"):
        setattr(Tools, name, None)  # not twice

if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    unittest.main(warnings="ignore")
