#!/usr/bin/env python3
"""rdmastat with wrong arguments, on damaged and vanishing counter files; record and report,
reset; that each key of its JSON is documented.

usage: test_damage.py path/to/rdmastat
"""
import json
import os
import random
import re
import stat
import struct
import subprocess
import sys
import threading
import time
import unittest
import warnings
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_rdmastat as base  # takes the program's path off sys.argv
import test_tools as tools
from test_rdmastat import HEADER, HISTORY_AT, LINKS_AT, header, history, link, links, row

RDMASTAT = base.RDMASTAT
L, S = "127.0.0.1", 6379


class Damage(tools.Tools):
    """The tests of the base classes run in their own files."""

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
                    + '{"schema":1,"time":3.0,"processes":[7,null,[],{},'
                    '{"pid":"x","bytes":7,"program":3},{"bytes":{"shm":-1}}]}\n')
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


for name in dir(tools.Tools):
    if name.startswith("test_"):
        setattr(Damage, name, None)  # not twice

if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    unittest.main(warnings="ignore")
