"""Names that steer a terminal, in all places where somebody else can write one, against every
command: nothing but text comes out, on lines of our own, and what is to be JSON is JSON.

usage: names.py RDMASTAT RDMARUN SHIM DIR	DIR: empty, for this test alone
"""
import json
import os
import socket
import subprocess
import sys

RDMASTAT, RDMARUN, SHIM, TMP = sys.argv[1:5]
#       colour, a line of its own, C1 as a byte and in UTF-8, invalid, DEL, right to left
EVIL = b"a\x1b[31mb\nNL-c\x9bd\xc2\x9be\xff\x7ff\xe2\x80\xaeg"
WORD = EVIL.replace(b"\n", b"\x0b")		# where a newline ends what is read
BIDI = {0x061c, 0x200e, 0x200f, 0xfeff, *range(0x2028, 0x202f), *range(0x2066, 0x206a)}
TMPB = os.fsencode(TMP)
runs = failed = 0


def path(name):
    return os.path.join(TMPB, name)


def write(name, *lines, mode=0o600):
    with open(path(name), "wb") as f:
        f.write(b"\n".join(lines) + b"\n")
    os.chmod(path(name), mode)
    return path(name)


def wrong(out):
    try:
        text = out.decode()
    except UnicodeDecodeError as e:
        return f"not UTF-8: {e}"
    for c in text:
        if (ord(c) < 0x20 and c != "\n") or 0x7f <= ord(c) < 0xa0 or ord(c) in BIDI:
            return f"U+{ord(c):04X}"
    return "a line of theirs" if any(line.startswith("NL-") for line in text.split("\n")) else None


def look(what, out):
    global failed
    bad = wrong(out)
    if bad:
        failed += 1
        print(f"{what!r}: {bad}: {out[:300]!r}")


def run(*args, env=None, is_json=False, program=RDMASTAT):
    global runs, failed
    p = subprocess.run([program, *args], env={**BASE, **(env or {})}, stdin=subprocess.DEVNULL,
                       capture_output=True, timeout=60)
    runs += 1
    look(args, p.stdout)
    look(args, p.stderr)
    if p.returncode < 0:
        failed += 1
        print(f"{args!r}: ended by signal {-p.returncode}")
    if is_json and (p.stdout or not p.returncode):  # what fails may say so on stderr alone
        try:
            json.loads(p.stdout)
        except ValueError as e:
            failed += 1
            print(f"{args!r}: not JSON: {e}: {p.stdout[:200]!r}")
    return p


BASE = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "RDMASHIM_CONF": "/dev/null",
        "RDMASHIM_STAT_DIR": f"{TMP}/none"}


def both(*args, env=None):
    run(*args, env=env)
    run(*args, "--json", env=env, is_json=True)


def policies():
    """Files whose own names, and words, are evil."""
    os.mkdir(path(b"inc"), 0o700)
    os.mkdir(path(b"bad"), 0o700)
    write(b"inc/" + EVIL + b".conf", b"program *", b"use shm both *:*")
    write(b"bad/" + EVIL + b".conf", b"what is this")
    return [
        write(b"good" + EVIL, b"mode on", b"program *", b"use shm both *:*", b"use shm both *:*"),
        write(b"wrong" + EVIL, b"mode " + WORD),
        write(b"key" + EVIL, WORD + b" 1"),
        write(b"rule" + EVIL, b"program " + WORD, b"use " + WORD + b" both *:*"),
        write(b"prog" + EVIL, b"program " + WORD, b"use shm both *:*  # " + WORD),
        write(b"including" + EVIL, b"include " + TMPB + b"/inc/*"),
        write(b"including-bad" + EVIL, b"include " + TMPB + b"/bad/*"),
        write(b"include-word" + EVIL, b"include " + TMPB + b"/" + WORD),
        write(b"files" + EVIL, b"key_file " + TMPB + b"/" + WORD,
              b"discovery_dir " + TMPB + b"/" + WORD, b"discovery_port 9"),
        write(b"open" + EVIL, b"mode on", mode=0o666),
        path(b"missing" + EVIL),
        TMPB,
    ]


def policy_commands(files):
    for f in files:
        both("policy", "check", f)
        both("policy", "show", "-f", f)
        both("policy", "explain", "-f", f, "--program", EVIL)
        both("doctor", "--no-transfer", env={"RDMASHIM_CONF": f})
        run("policy", "set", "-f", f, "earn_rounds", EVIL)
        run("policy", "unset", "-f", f, "earn_bytes")
        run("policy", "set", "-f", f, "earn_bytes", "1K")
        run("policy", "set", "-f", f, EVIL, "1")
        run("--policy", f, "/bin/true", program=RDMARUN)
        run("policy", "import", f)
    vma = write(b"vma" + EVIL, b"application-id " + WORD + b" *", b"use vma " + WORD,
                b"use os tcp_client " + WORD + b":" + WORD)
    run("policy", "import", vma)


def forged():
    """Counter files with evil names in them, in a directory of an evil name."""
    d = path(b"stat" + EVIL)
    os.mkdir(d, 0o700)
    forge = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stat_forge.py")
    words = ["1000000000", "2", "8", "8", "rich", "names"]
    subprocess.run([sys.executable, "-S", "-E", forge, d, *words], check=True)
    for name, what in ((b"77", b"damaged"), (b"78", b"")):
        with open(os.path.join(d, name), "wb") as f:
            f.write(what)
    for e in os.listdir(d):
        os.chmod(os.path.join(d, e), 0o600)
    return d


VIEWS = ["overview", "conn", "link", "calls", "dev", "qp", "mr", "staging"]


def counters(d):
    env = {"RDMASHIM_STAT_DIR": d}
    for view in VIEWS:
        both(view, env=env)
        both(view, "-P", EVIL, env=env)
    for view in ("overview", "conn", "link", "qp"):
        run(view, "-o", "all", env=env)
    both("why", "1000000000", env=env)
    both("why", "1000000000:3", env=env)
    run("prometheus", env=env)
    run("prometheus", "-O", path(b"prom" + EVIL), env=env)
    run("record", path(b"rec" + EVIL), "-n", "2", env=env)
    both("report", path(b"rec" + EVIL), env=env)
    if b"NL-" not in run("report", path(b"rec" + EVIL), env=env).stdout:
        sys.exit("the forged process is not in the record")
    run("report", path(b"rec" + EVIL), "--svg", path(b"svg" + EVIL), env=env)
    both("doctor", "--no-transfer", env=env)
    both("reset", env=env)
    os.chmod(d, 0o755)
    both("overview", env=env)
    both("doctor", "--no-transfer", env=env)
    both("reset", env=env)


def words():
    """What somebody pasted."""
    for view in VIEWS:
        run(view, "-s", EVIL)
        run(view, "-o", EVIL)
        run(view, "--root", EVIL)
    for args in ((EVIL,), (b"--" + EVIL,), (b"--json=" + EVIL,), ("conn", EVIL),
                 ("conn", b"program = " + EVIL), ("why", EVIL), ("-p", EVIL), ("watch", EVIL),
                 ("report", EVIL), ("record", b"/none/" + EVIL), ("prometheus", "--listen", EVIL),
                 ("prometheus", "--listen", b"127.0.0.1:0", "--host", EVIL, "-n", EVIL),
                 ("prometheus", "--show", EVIL), ("prometheus", "-O", b"/none/" + EVIL),
                 ("doctor", EVIL), ("doctor", "--lib", EVIL, "--no-transfer"),
                 ("doctor", "--root", EVIL),
                 ("policy", EVIL), ("policy", "check", "--x", EVIL), ("policy", "keys", EVIL),
                 ("policy", "explain", "--peer", EVIL), ("policy", "explain", "--role", EVIL),
                 ("reasons", EVIL), ("top", EVIL), ("--color", EVIL)):
        run(*args)
    for args in ((EVIL,), (b"--" + EVIL,), ("--lib", EVIL, "true"), ("--stat", EVIL),
                 ("-n", EVIL, "true")):
        run(*args, program=RDMARUN)
    process = {"pid": 1, "uid": 1, "start_time": 1, "program": WORD.decode("latin1") + "\nNL-"}
    sample = json.dumps({"schema": 1, "time": 1.0, "processes": [process]})
    both("report", write(b"report" + EVIL, sample.encode(), WORD, b"{" + WORD))


CONNECT = """
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
a = s.accept()[0]
c.sendall(b"x")
a.recv(1)
"""


def python(env):
    return run("-S", "-E", "-c", CONNECT, env=env, program=sys.executable)


def log(files):
    """The library's own lines, on stderr and in a file."""
    some = 0
    for f in files:
        env = {"LD_PRELOAD": SHIM, "RDMASHIM_LOG": "4", "RDMASHIM_CONF": f}
        p = python(env)
        some += p.stderr.count(b"rdmashim")
        name = path(b"log" + EVIL)
        python({**env, "RDMASHIM_LOG_FILE": name})
        if os.path.exists(name):
            with open(name, "rb") as g:
                out = g.read()
            look(("log file", f), out)
            some += out.count(b"rdmashim")
            os.unlink(name)
        python({**env, "RDMASHIM_LOG_FILE": TMPB + b"/inc/" + EVIL + b".conf/x"})
    if not some:
        sys.exit("the library has logged nothing")


def main():
    os.mkdir(path(b"none"), 0o700)
    os.chdir(TMPB)
    files = policies()
    log(files)
    policy_commands(files)
    counters(forged())
    words()
    if failed:
        sys.exit(f"{failed} of {runs} runs let something through")
    print(f"{runs} runs, nothing but text")


main()
