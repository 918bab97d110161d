#!/usr/bin/env python3
"""Takes each rule of tests/mutants/rules.py out of a copy of the sources, builds that, and wants
the named test to fail.

	run.py [NAME...]	in the repository's top level; exit status 1 if a mutant survives
	run.py --texts		only sees that the sources have each rule's text, once
"""
import filecmp
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rules import MUTANTS  # noqa: E402

WORK = os.path.join("build", "mutants")


def sh(command, cwd, seconds):
    """Exit status, or None after the time is up: a hang."""
    p = subprocess.Popen(["bash", "-c", command], cwd=cwd, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out = p.communicate(timeout=seconds)[0].decode(errors="replace")
        return p.returncode, out
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, 15)
        out = p.communicate()[0].decode(errors="replace")
        return None, out


def fresh_copy():
    """The sources as they are now. A file that is the same already is left alone: make compiles
    only what differs."""
    for top, dirs, files in os.walk("."):
        dirs[:] = [d for d in dirs if d not in ("build", ".git")]
        os.makedirs(os.path.join(WORK, top), exist_ok=True)
        for name in files:
            src, dst = os.path.join(top, name), os.path.join(WORK, top, name)
            if not os.path.exists(dst) or not filecmp.cmp(src, dst, shallow=False):
                shutil.copyfile(src, dst)
                shutil.copymode(src, dst)


def build():
    rc, out = sh("make -j2 CFLAGS=-Wno-error fuzz_bins= tests", WORK, 300)
    if rc:
        sys.exit("the mutant does not build:\n" + out[-3000:])


def without(name, path, old, new):
    """The file's text without the rule. White space in it may be any: where lines end says
    nothing."""
    with open(path) as src:
        text = src.read()
    pattern = r"\s+".join(re.escape(w) for w in old.split())
    n = len(re.findall(pattern, text))
    if n != 1:
        sys.exit(f"{name}: {path} has the rule's text {n} times, wanted once: "
                 "tests/mutants/rules.py is behind the code")
    return re.sub(pattern, lambda m: new, text)


def try_mutant(name, path, old, new, what, test, tries):
    fresh_copy()
    f = os.path.join(WORK, path)
    text = without(name, f, old, new)
    with open(f, "w") as dst:
        dst.write(text)
    build()
    if test.startswith("TESTS="):
        test = f"make CFLAGS=-Wno-error check '{test}'"
    for i in range(tries):
        rc, out = sh(test, WORK, 120)
        if rc != 0:
            print(f"{name:15} {what:90} {'hangs' if rc is None else 'caught'}, run {i + 1}",
                  flush=True)
            return True
    print(f"{name:15} {what:90} SURVIVES {tries} runs of: {test}", flush=True)
    return False


def main():
    names = sys.argv[1:]
    if names == ["--texts"]:
        for m in MUTANTS:
            without(*m[:4])
        print(f"{len(MUTANTS)} rules")
        return
    chosen = [m for m in MUTANTS if not names or m[0] in names]
    if not chosen or not os.path.exists("shim"):
        sys.exit("run.py [NAME...] in the top level; names: " + " ".join(m[0] for m in MUTANTS))
    began = time.time()
    bad = sum(not try_mutant(*m) for m in chosen)
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"{len(chosen) - bad} caught, {bad} not caught, {time.time() - began:.0f} s")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
