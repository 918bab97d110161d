#!/usr/bin/env python3
"""rdmastat policy check|show|set|unset|import and the sample files in conf/.

usage: test_policy_tools.py path/to/rdmastat
"""
import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

RDMASTAT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/rdmastat"
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


class Policy(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = self.tmp.name
        self.path = os.path.join(self.dir, "p.conf")

    def tearDown(self):
        self.tmp.cleanup()

    def write(self, text, path=None):
        with open(path or self.path, "w") as f:
            f.write(text)

    def read(self):
        with open(self.path) as f:
            return f.read()

    def run_it(self, *args, rc=0, stdin=None, **env):
        p = subprocess.run([RDMASTAT, "policy", *args], capture_output=True, text=True, timeout=20,
                           input=stdin, env=dict(os.environ, **env))
        self.assertEqual(p.returncode, rc, f"{args}: {p.stdout}{p.stderr}")
        self.assertNotIn("runtime error", p.stderr)
        return p

    # ---- check
    def test_caret(self):
        self.write("mode on\n  use shm both 10.0.0.1/33:80\n")
        e = self.run_it("check", self.path, rc=1).stderr
        self.assertRegex(e, rf"^{re.escape(self.path)}:2:25: '33' is not a prefix length; write 0 "
                         rf"to 32\n" + r"      use shm both 10\.0\.0\.1/33:80\n {28}\^\n$")
        self.write("mode on\n\tuse shm both \x1b[31m:80\n")
        self.assertNotIn("\x1b", self.run_it("check", self.path, rc=1).stderr)
        self.write("x" * 5000)
        self.assertEqual(self.run_it("check", self.path, rc=1).stderr.count("\n"), 1)
        self.assertIn("directory", self.run_it("check", self.dir, rc=1).stderr)

    def test_unreadable(self):
        """A file that this user may not read: each command says so, none goes on with a policy
        of its own."""
        self.write("mode off\n")
        os.chmod(self.path, 0)
        os.chmod(self.dir, 0o755)
        program = shutil.copy(RDMASTAT, os.path.join(self.dir, "rdmastat"))
        who = dict(user=1, group=1, extra_groups=[]) if os.getuid() == 0 else {}
        for args in (("check", self.path), ("explain", "-f", self.path), ("show", "-f", self.path),
                     ("set", "-f", self.path, "mode", "on"), ("unset", "-f", self.path, "mode"),
                     ("import", self.path)):
            p = subprocess.run([program, "policy", *args], capture_output=True, text=True,
                               timeout=20, **who)
            self.assertEqual(p.returncode, 1, f"{args}: {p.stdout}{p.stderr}")
            self.assertRegex(p.stdout + p.stderr, "ermission denied|could not be read|may not",
                             args)
            self.assertNotRegex(p.stdout, r"(?m)^(mode|spin) ", args)
        os.chmod(self.path, 0o600)
        self.assertEqual(self.read(), "mode off\n")

    def test_idle_rules(self):
        self.write("use tcp both *:22\nuse shm both 10.0.0.0/8:*\nuse tcp both 10.1.0.0/16:80\n"
                   "program a\nuse tcp server *:22\nuse shm both *:*\nuse tcp client *:1\n"
                   "program b\nuse shm both *:*\nprogram *\nuse tcp client [::1]:22\nuse any both "
                   "*:*\n")
        e = self.run_it("check", self.path).stderr
        self.assertEqual([int(x) for x in re.findall(r":(\d+):1: warning", e)], [3, 5, 7, 11])
        w = json.loads(self.run_it("check", "--json", self.path).stdout)
        self.assertEqual([x["line"] for x in w["warnings"]], [3, 5, 7, 11])
        self.assertTrue(w["good"])
        self.write("use tcp server *:21\nuse tcp client *:21\nuse tcp client *:22\nuse tcp server "
                   "*:22\nuse shm both 10.0.0.0/16:1-5\nuse shm both 10.0.0.0/8:1-5\nuse tcp both "
                   "10.0.0.0/16:2-6\n")
        self.assertEqual(self.run_it("check", self.path).stderr, "")

    def test_check_json(self):
        self.write("mdoe on\n")
        j = json.loads(self.run_it("check", "-j", self.path, rc=1).stdout)
        self.assertEqual((j["good"], j["errors"][0]["line"], j["errors"][0]["column"]),
                         (False, 1, 1))

    # ---- show
    def test_show(self):
        self.write("# spin 1us\nmode off\n\n  spin 20us # here\nprogram spin\nuse tcp both *:1\n")
        j = {s["key"]: (s["value"], s["origin"]) for s in json.loads(self.run_it("show", "--json",
            "-f", self.path).stdout)["settings"]}
        self.assertEqual((j["mode"], j["spin"], j["ring_size"]), (("off", f"{self.path}:2"),
            ("20us", f"{self.path}:4"), ("256K", "default")))
        self.assertRegex(self.run_it("show", RDMASHIM_CONF=self.path).stdout,
                         rf"spin +20us +{re.escape(self.path)}:4\n")
        self.assertEqual([j[k] for k in ("key_file", "rdma_networks", "rdma_via", "discovery_dir")],
                         [(None, "default")] * 4)
        self.assertRegex(self.run_it("show", "-f", self.path).stdout, r"key_file +- +default\n")
        self.write("rdma_via 10.1.0.0/16\nkey_file /a\x1b[31m/b\nrdma_networks 10.0.0.0/8 "
                   "[2001:db8::/32]\nrdma_networks 192.168.0.1\ndiscovery_dir /run/meet\n")
        j = {s["key"]: (s["value"], s["origin"]) for s in json.loads(self.run_it("show", "--json",
            "-f", self.path).stdout)["settings"]}
        self.assertEqual([j[k] for k in ("rdma_via", "key_file", "rdma_networks", "discovery_dir")],
                         [("10.1.0.0/16", f"{self.path}:1"), ("/a?[31m/b", f"{self.path}:2"),
                         ("10.0.0.0/8 [2001:db8::/32] 192.168.0.1/32", f"{self.path}:3"),
                         ("/run/meet", f"{self.path}:5")])
        self.assertNotIn("\x1b", self.run_it("show", "-f", self.path).stdout)
        self.write("rdma_networks " + " ".join(f"[2001:db8:{n:x}::/48]" for n in range(6)) + "\n"
                   + "".join(f"rdma_networks 10.{n}.0.0/16\n" for n in range(58)))
        self.assertRegex(self.run_it("show", "-f", self.path).stdout,
                         r"rdma_networks +\[2001:db8::/48\] .* \.\.\. +")
        # every key that a file may have is shown
        self.assertEqual(set(j) - {"mode"},
                         {k["key"] for k in json.loads(self.run_it("keys", "--json").stdout)[
                             "keys"]} | {"key_file", "rdma_networks", "rdma_via", "discovery_dir",
                                         "cross_ns_dir", "peer_users"})
        self.write("spin 1x\n")
        self.assertIn(":1:7:", self.run_it("show", "-f", self.path, rc=1).stderr)

    # ---- set, unset
    def test_set(self):
        sample = open(os.path.join(TOP, "conf/rdmashim.conf")).read()
        self.write(sample)
        self.run_it("set", "-f", self.path, "spin", "20us")
        self.assertEqual(self.read(), sample.replace("#spin 50us\n", "#spin 50us\nspin 20us\n"))
        self.run_it("set", "-f", self.path, "mode", "off")
        self.assertEqual(self.read(), sample.replace("#spin 50us\n",
                                                     "#spin 50us\nspin 20us\n").replace(
                                                         "\nmode on\n", "\nmode off\n"))
        self.run_it("unset", "-f", self.path, "spin")
        self.run_it("set", "-f", self.path, "mode", "on")
        self.assertEqual(self.read(), sample)
        self.assertIn("nothing to do", self.run_it("unset", "-f", self.path, "spin").stdout)
        self.assertEqual(self.read(), sample)

    def test_set_places(self):
        for before, after in (("", "spin 1us\n"), ("mode on", "mode on\nspin 1us\n"),
                              ("mode on\nuse tcp both *:1\n", "mode on\nspin 1us\nuse tcp both "
                               "*:1\n"),
                              ("# a\nprogram x\nuse tcp both *:1\n", "# a\nspin 1us\nprogram x\n"
                               "use tcp both *:1\n"), ("  spin 9us\t# why", "  spin 1us # why"),
                              ("spin 9us", "spin 1us\n"), ("#spin 50us", "#spin 50us\nspin 1us\n"),
                              ("mode on\r\nspin 2us\r\n", "mode on\r\nspin 1us\n"),
                              ("# spin is good\n", "# spin is good\nspin 1us\n"),
                              ("spinning", None)):
            self.write(before)
            if after is None:
                self.run_it("set", "-f", self.path, "spin", "1us", rc=1)
                after = before
            else:
                self.run_it("set", "-f", self.path, "spin", "1us")
            with open(self.path, newline="") as f:
                self.assertEqual(f.read(), after.replace("\r\n", "\n") if "\r" not in before
                                 else after)

    def test_set_trust(self):
        self.write("mode on\nuse tcp both *:1\n")
        key = os.path.join(self.dir, "k") if hasattr(self, "dir") else "/etc/rdmashim.key"
        self.run_it("set", "-f", self.path, "key_file", key)
        self.run_it("set", "-f", self.path, "rdma_networks", "10.0.0.0/8", "[2001:db8::/32]")
        self.assertEqual(self.read(), f"mode on\nkey_file {key}\nrdma_networks 10.0.0.0/8 "
                         f"[2001:db8::/32]\nuse tcp both *:1\n")
        self.run_it("set", "-f", self.path, "discovery_dir", "/run/meet")
        self.assertIn("\ndiscovery_dir /run/meet\n", self.read())
        self.run_it("unset", "-f", self.path, "discovery_dir")
        self.assertNotIn("discovery_dir", self.read())
        # the lines of networks add up: the new value takes the place of all of them
        self.write("rdma_networks 10.0.0.0/8 # a\nspin 1us\nrdma_networks 192.168.0.0/16\n")
        self.run_it("set", "-f", self.path, "rdma_networks", "172.16.0.0/12 192.168.1.0/24")
        self.assertEqual(self.read(), "rdma_networks 172.16.0.0/12 192.168.1.0/24 # a\nspin 1us\n")
        self.write("rdma_networks 10.0.0.0/8\nspin 1us\nrdma_networks 192.168.0.0/16\n")
        self.run_it("unset", "-f", self.path, "rdma_networks")
        self.assertEqual(self.read(), "spin 1us\n")
        for args, word, rc in ((("key_file", "relative.key"), "absolute path", 1),
                               (("discovery_dir", "here"), "absolute path", 1),
                               (("key_file", "/a", "/b"), "KEY VALUE", 2), (("rdma_networks",),
                                   "KEY VALUE", 2),
                               (("rdma_networks", "nonsense"), "IPv4", 1),
                               (("rdma_networks", "10.0.0.0/8", ""), "as words", 2),
                               (("rdma_networks", "10.0.0.0/8#"), "as words", 2),
                               (("rdma_networks", *["10.0.0.0/8"] * 8), "one word too many", 1),
                               (("rdma_networks", "x" * 2000), "too long", 2),
                               (("rdma_network", "10.0.0.0/8"), "did you mean rdma_networks?", 2)):
            self.assertIn(word, self.run_it("set", "-f", self.path, *args, rc=rc).stderr, args)
            self.assertEqual(self.read(), "spin 1us\n")

    def test_set_refused(self):
        self.write("mode on\n")
        for key, value, word in (("spin", "9x", "not a unit"), ("mode", "maybe", "not a mode"),
                                 ("ring_size", "3K", "out of range"),
                                 ("spin", "1us # x", "one word"),
                                 ("spin", "", "one word"), ("spin", "1us\nmode off", "one word")):
            p = self.run_it("set", "-f", self.path, key, value, rc=2 if "word" in word else 1)
            self.assertIn(word, p.stderr)
            self.assertEqual(self.read(), "mode on\n")
        self.write("mode on\nuse tcp\n")  # not made worse, nor touched
        self.run_it("set", "-f", self.path, "spin", "1us", rc=1)
        self.assertEqual(self.read(), "mode on\nuse tcp\n")
        self.assertIn("No such file", self.run_it("unset", "-f", self.dir + "/none", "spin",
                                                  rc=1).stderr)
        self.assertIn("No such file", self.run_it("set", "-f", self.dir + "/none/p", "spin", "1us",
                                                  rc=1).stderr)
        self.assertEqual(os.listdir(self.dir), ["p.conf"])

    def test_set_file(self):
        """A new file; the mode of an old one; a link stays a link; the one in use."""
        self.run_it("set", "-f", self.path, "mode", "off")
        self.assertEqual(self.read(), "mode off\n")
        os.chmod(self.path, 0o640)
        link = os.path.join(self.dir, "link")
        os.symlink("p.conf", link)
        self.run_it("set", "mode", "on", RDMASHIM_CONF=link)
        self.assertEqual((self.read(), os.readlink(link), stat.S_IMODE(os.stat(self.path).st_mode)),
                         ("mode on\n", "p.conf", 0o640))

    def test_set_atomic(self):
        """Whoever reads while it is written sees one of the good files; two writers lose no
        setting."""
        self.write("mode on\n" + "# filler\n" * 20000)
        stop, bad = threading.Event(), []

        def reader():
            while not stop.is_set():
                with open(self.path) as f:
                    text = f.read()
                if text.count("# filler\n") != 20000:
                    bad.append(len(text))
        t = threading.Thread(target=reader)
        t.start()
        jobs = [subprocess.Popen([RDMASTAT, "policy", "set", "-f", self.path, k, v],
                                 stdout=subprocess.DEVNULL)
                for k, v in (("spin", "1us"), ("earn_bytes", "1K"), ("earn_rounds", "7"),
                             ("ring_size", "8K"), ("overflow", "5ms"), ("discovery", "1s"))]
        self.assertEqual([j.wait() for j in jobs], [0] * 6)
        stop.set()
        t.join()
        self.assertEqual(bad, [])
        for line in ("spin 1us", "earn_bytes 1K", "earn_rounds 7", "ring_size 8K", "overflow 5ms",
                     "discovery 1s"):
            self.assertIn(line + "\n", self.read())

    # ---- include
    def site(self, **files):
        for name, text in files.items():
            self.write(text, os.path.join(self.dir, name))

    def test_include_check(self):
        self.write("include [a-z]\n")
        self.assertIn(f":1:9: '{self.dir}/[a-z]': there is no such file", self.run_it("check",
            self.path, rc=1).stderr)
        self.write("include ?\nuse tcp both *:1\n")
        self.site(a="use tcp both *:1-5\n", b="\n  spin 1x\n")
        e = self.run_it("check", self.path, rc=1).stderr
        self.assertRegex(e, rf"^{re.escape(self.dir)}/b:2:9: spin: 'x' is not a unit.*\n      spin "
                         rf"1x\n {{12}}\^\n$")
        j = json.loads(self.run_it("check", "-j", self.path, rc=1).stdout)
        self.assertEqual((j["good"], j["errors"][0]["file"], j["errors"][0]["line"]),
                         (False, self.dir + "/b", 2))
        self.site(b="use shm both *:2\n")
        p = self.run_it("check", self.path)
        self.assertIn("good, mode on, 3 rules, with 2 included files\n", p.stdout)
        self.assertRegex(p.stderr, rf"{re.escape(self.dir)}/b:1:1: warning: this rule never "
                         rf"decides: {re.escape(self.dir)}/a:1 does, .*\n    use shm both \*:2\n "
                         rf"   \^\n{re.escape(self.path)}:2:1: ")
        j = json.loads(self.run_it("check", "-j", self.path).stdout)
        self.assertEqual((j["includes"], [w["file"] for w in j["warnings"]]),
                         ([self.dir + "/a", self.dir + "/b"], [self.dir + "/b", self.path]))

    def test_include_explain_show(self):
        self.write("mode on\ninclude a\n")
        self.site(a="spin 3us\nprogram redis-*\nuse tcp both *:6379\n")
        j = json.loads(self.run_it("explain", "-j", "-f", self.path, "--program", "redis-cli",
                                   "--role", "client", "--peer", "10.0.0.1:6379").stdout)
        self.assertEqual((j["paths"], j["file"], j["path"], j["line"], j["text"]),
                         (["tcp"], "a", self.dir + "/a", 3, "use tcp both *:6379"))
        self.assertIn(f"rule:  {self.dir}/a:3\n", self.run_it("explain", "-f", self.path,
            "--program", "redis-cli", "--peer", "10.0.0.1:6379").stdout)
        # shm is permitted to whom it does not reach; 192.0.2.1 is nobody's (RFC 5737)
        ask = lambda *a: (self.run_it("explain", "-f", self.path, *a).stdout,
                          json.loads(self.run_it("explain", "-j", "-f", self.path, *a).stdout)[
                              "peer_here"])
        for args, note, here in ((("--peer", "192.0.2.1:1"), True, False),
                                 (("--peer", "127.0.0.2:1"), False, True), (("--peer", "[::1]:1"),
                                     False, True), ((), False, None),
                                 (("--peer", "192.0.2.1:6379", "--program", "redis-cli"), False,
                                  False)):
            out, is_here = ask(*args)
            self.assertEqual(("\nnote:  the peer's address is none of this host's" in out, is_here),
                             (note, here), args)
        self.assertRegex(self.run_it("show", "-f", self.path).stdout,
                         rf"mode +on +{re.escape(self.path)}:1\n(.*\n)*spin +3us "
                         rf"+{re.escape(self.dir)}/a:1\n")

    def test_include_set(self):
        """A key is changed where it stands; a new one comes into the first file; what the whole
        would refuse is refused."""
        self.write("mode on\ninclude d/*\n")
        os.mkdir(self.dir + "/d", 0o755)
        self.site(**{"d/a": "# mine\nspin 3us # why\n", "d/b": "rdma_networks 10.0.0.0/8\n"})
        read = lambda name: open(os.path.join(self.dir, name)).read()
        self.assertRegex(self.run_it("set", "-f", self.path, "spin", "4us").stdout,
                         r"d/a: spin set to 4us \(was 3us\)")
        self.assertEqual((read("d/a"), self.read()), ("# mine\nspin 4us # why\n",
                                                      "mode on\ninclude d/*\n"))
        self.assertIn(": ring_size set to 8K (was not set)", self.run_it("set", "-f", self.path,
            "ring_size", "8K").stdout)
        self.assertEqual((read("d/a"), self.read()), ("# mine\nspin 4us # why\n",
                                                      "mode on\ninclude d/*\nring_size 8K\n"))
        self.run_it("set", "-f", self.path, "rdma_networks", "10.1.0.0/16", "10.2.0.0/16")
        self.run_it("set", "-f", self.path, "rdma_via", "10.3.0.0/16", "10.4.0.0/16")
        self.assertEqual(read("d/b"), "rdma_networks 10.1.0.0/16 10.2.0.0/16\n")
        self.assertIn("rdma_via 10.3.0.0/16 10.4.0.0/16\n", self.read())
        self.run_it("unset", "-f", self.path, "spin")
        self.assertEqual(read("d/a"), "# mine\n")
        self.assertIn("nothing to do", self.run_it("unset", "-f", self.path, "spin").stdout)
        # edited by its own name, it is not known what includes it; but what it makes of itself is
        # tried
        self.assertIn("not a unit", self.run_it("set", "-f", self.dir + "/d/a", "spin", "3x",
                                                rc=1).stderr)
        self.write("rdma_networks 10.0.0.0/8\ninclude d/*\n")
        self.assertIn("several files", self.run_it("set", "-f", self.path, "rdma_networks",
                                                   "10.1.0.0/16", rc=1).stderr)
        self.assertIn("with an editor", self.run_it("set", "-f", self.path, "include", "x",
                                                    rc=2).stderr)
        self.assertEqual(sorted(os.listdir(self.dir + "/d")), ["a", "b"])

    def test_include_sample(self):
        self.assertEqual([self.paths("site", "redis-server", "127.0.0.1:6379"),
                          self.paths("site", "redis-cli", "10.0.0.1:6379"), self.paths("site", "x",
                              "127.0.0.1:22"),
                          self.paths("site", "x", "127.0.0.1:80")], ["tcp shm", "tcp", "tcp",
                              "tcp shm"])

    # ---- import
    def test_import(self):
        p = self.run_it("import", "-", stdin="log min-level 9\napplication-id * *\nuse os "
                        "tcp_server *:5001\nuse vma tcp_client 192.168.1.7/24:*:*:*\n"
                        "use vma udp_sender *:53\napplication-id tcp_lat *\nuse os tcp_client "
                        "1.2.3.4:80-90 # c\n")
        rules = [x for x in p.stdout.splitlines() if x and x[0] != "#"]
        self.assertEqual(rules, ["mode on", "program *", "use tcp server *:5001",
                                 "use any client 192.168.1.0/24:* *:*", "program tcp_lat",
                                 "use tcp client 1.2.3.4:80-90",
                                 "program *", "use any both *:*"])
        self.assertEqual(p.stderr, "")
        self.write(p.stdout)
        self.run_it("check", self.path)

    def test_import_bad(self):
        for text, word in (("use foo tcp_server *:1", "neither vma nor os"),
                           ("use vma tcp_srver *:1", "not a role"), ("use vma tcp_server",
                               "has a transport"),
                           ("use os tcp_server *:99999", "not a port"),
                           ("use os tcp_server 1.2.3:80", "not an IPv4"),
                           ("use os tcp_server *:1:2", "an address is"),
                           ("application-id foo B1\nuse os tcp_client *:1", "VMA_|by program"),
                           ("hello", "no statement"), ("application-id [a-z] *", "only"),
                           ("use os tcp_client \x1b[3:80", "no text"),
                           ("use os tcp_client *:1:*:2:3", "an address is")):
            p = self.run_it("import", "-", stdin=text + "\n")
            self.assertRegex(p.stderr, word)
            self.assertNotIn("\x1b", p.stderr + p.stdout)
            self.write(p.stdout)
            self.run_it("check", self.path)
            self.assertEqual([x for x in p.stdout.splitlines() if x.startswith("use")],
                             ["use any both *:*"], text)
        self.assertIn("No such file", self.run_it("import", self.dir + "/none", rc=1).stderr)

    # ---- conf/
    def samples(self):
        return sorted(glob.glob(f"{TOP}/conf/*.conf") + glob.glob(f"{TOP}/conf/examples/*.conf"))

    def test_samples(self):
        self.assertGreaterEqual(len(self.samples()), 7)
        for path in self.samples():
            p = self.run_it("check", path)
            self.assertEqual(p.stderr, "", path)
            self.assertIn("good, mode on", p.stdout)

    def paths(self, sample, program, peer, role="client", local=None):
        j = json.loads(self.run_it("explain", "--json", "-f", f"{TOP}/conf/examples/{sample}.conf",
                                   "--program", program, "--role", role, "--peer", peer,
                                   *(["--local", local] if local else [])).stdout)
        return " ".join(j["paths"])

    def test_samples_mean(self):
        for want, *question in (("tcp shm", "redis", "redis-server", "127.0.0.1:9", "server",
                                 "127.0.0.1:6379"), ("tcp", "redis", "redis-cli", "127.0.0.1:22"),
                                ("tcp shm", "nginx", "nginx", "127.0.0.1:8080"),
                                ("tcp", "nginx", "nginx", "10.0.0.1:9", "server", "10.0.0.2:443"),
                                ("tcp shm", "postgresql", "psql", "[::1]:5432"),
                                ("tcp", "postgresql", "postgres", "10.0.0.1:9", "server",
                                 "10.0.0.2:5432"),
                                ("tcp shm rdma", "gpu-job", "python3", "10.1.2.3:29500"),
                                ("tcp", "gpu-job", "python3", "151.101.0.223:443"),
                                ("tcp", "gpu-job", "bash", "10.1.2.3:1"),
                                ("tcp shm rdma", "cluster", "x", "10.2.9.9:1"),
                                ("tcp", "cluster", "x", "10.2.9.9:22"), ("tcp", "cluster", "x",
                                    "8.8.8.8:53"),
                                ("tcp", "exclude", "apt-get", "127.0.0.1:1"),
                                ("tcp", "exclude", "bash", "127.0.0.1:1"), ("tcp shm", "exclude",
                                    "redis-cli", "127.0.0.1:1")):
            self.assertEqual(self.paths(*question), want, question)

    def test_kubernetes_policy(self):
        text = open(f"{TOP}/conf/kubernetes/pod.yaml").read()
        block = re.search(r"rdmashim\.conf: \|\n((?:    .*\n)+)", text).group(1)
        self.write(re.sub(r"^    ", "", block, flags=re.M))
        self.run_it("check", self.path)

    def test_slurm_prolog(self):
        lib = os.path.join(self.dir, "lib.so")
        self.write("", lib)
        run = lambda **env: subprocess.run([f"{TOP}/conf/slurm/task_prolog.sh"],
                                           env={"PATH": os.environ["PATH"], "RDMASHIM_LIB": lib,
                                                **env}, capture_output=True,
                                           text=True, check=True).stdout
        self.assertEqual(run(), "")
        self.assertIn(f"export LD_PRELOAD=/x.so:{lib}\n", run(RDMASHIM_JOB="1", LD_PRELOAD="/x.so"))
        self.assertIn(f"export LD_PRELOAD={lib}\n", run(RDMASHIM_JOB="1"))
        self.assertEqual(run(RDMASHIM_JOB="1", RDMASHIM_LIB="/none"), "")


if __name__ == "__main__":
    unittest.main(warnings="ignore")
