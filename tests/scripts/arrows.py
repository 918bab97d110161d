#!/usr/bin/env python3
"""Whether calls between the folders of the sources go only where docs/architecture.md permits
("Arrows").

	arrows.py [BUILD]	in the repository's top level, where the library is built; exit
				status 1 if not

Names are those that nm shows in the objects: functions and globals, whoever calls, reads, or
takes the address. Functions that the library exports are libc's names, and no arrows. An
#include is an arrow, too. Also looked for: folders that reach each other, more than three files
of one folder that do, and a folder's README that says "Called by A, B" of others than call it.

What is not yet so stands in tests/scripts/arrows.known, one a line: FILE NAME for a name, FILE
"HEADER" for an #include, "cycle FOLDER FILE..." for files that reach each other. A line there
that no longer is so fails as well: the list can only become shorter.
"""
import collections
import glob
import os
import re
import subprocess
import sys

B = sys.argv[1] if len(sys.argv) > 1 else "build"
KNOWN = "tests/scripts/arrows.known"
BIG = 3
bad = 0


def fail(text):
    global bad
    bad = 1
    print(text)


def folder(path):
    return os.path.dirname(path)


def permitted():
    """{folder: folders}, from the table."""
    text = open("docs/architecture.md").read().split("\n### Arrows\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| ([a-z/]+) \| ([a-z/, ]*) *\|$", text, re.M)
    return {name: set(calls.replace(" ", "").split(",")) - {""} for name, calls in rows
            if name != "folder"}


def sources():
    return [p for d in ("policy", "shim/*", "rdma/*") for p in glob.glob(d + "/*.[ch]")]


def names():
    """(file, symbol, file that has it) of the objects."""
    exported = set(re.findall(r"^\t(\w+);", open(B + "/shim.map").read(), re.M))
    has, wants = {}, collections.defaultdict(set)
    for path in sources():
        if not path.endswith(".c"):
            continue
        out = subprocess.run(["nm", "-g", f"{B}/o/{path[:-2]}.o"], check=True, capture_output=True,
                             text=True).stdout
        for line in out.splitlines():
            kind, name = line.split()[-2:]
            if kind == "U":
                wants[path].add(name)
            elif kind not in "wv" and name not in exported:
                has[name] = path
    return [(f, n, has[n]) for f in sorted(wants) for n in sorted(wants[f]) if has.get(n, f) != f]


def includes():
    """(file, header as it is named, header's path)."""
    for path in sorted(sources()):
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', open(path).read(), re.M):
            for where in (name, "shim/" + name, f"{folder(path)}/{name}"):
                if os.path.exists(where):
                    yield path, f'"{name}"', where
                    break
            else:
                fail(f'{path}: nobody knows where "{name}" is')


def knots(edges):
    """The sets of nodes that reach each other, from {node: nodes} (Tarjan's)."""
    order, low, stack, found = {}, {}, [], []

    def visit(v):
        order[v] = low[v] = len(order)
        stack.append(v)
        for w in edges.get(v, ()):
            if w not in order:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], order[w])
        if low[v] == order[v]:
            at = stack.index(v)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for v in sorted(edges):
        if v not in order:
            visit(v)
    return [k for k in found if len(k) > 1]


def readmes(used):
    """used: {folder: folders that it calls}. What comes after ";" or "(" may say more."""
    for page in glob.glob("shim/*/README.md") + glob.glob("rdma/*/README.md"):
        d = folder(page)
        said = re.search(r"Called by ([^.;(]*)", open(page).read())
        if not said:
            continue
        words = set(re.findall(r"[a-z][a-z/]*", said[1]))
        named = {f for f in used if f in words or f.startswith("shim/") and f[5:] in words}
        calls = {f for f in used if d in used[f] and f != d}
        if named != calls:
            fail(f"{page} says that it is called by {', '.join(sorted(named)) or 'nobody'}; "
                 f"it is by {', '.join(sorted(calls)) or 'nobody'}")


def main():
    may = permitted()
    for k in knots(may):
        fail(f"the table permits that these reach each other: {' '.join(k)}")
    for d in sorted({folder(p) for p in sources()} - set(may)):
        fail(f"{d} is not in the table")
    calls = names()
    if len(calls) < 500:
        fail(f"only {len(calls)} names were found in the objects")
    is_so, used = [], collections.defaultdict(set)
    inside = collections.defaultdict(lambda: collections.defaultdict(set))
    for path, name, where in calls + list(includes()):
        a, b = folder(path), folder(where)
        used[a].add(b)
        if a == b:
            if name[0] != '"':
                inside[a][path].add(where)
        elif b not in may.get(a, ()):
            is_so.append(f"{path} {name}")
    for d in sorted(inside):
        is_so += [f"cycle {d} " + " ".join(map(os.path.basename, k)) for k in knots(inside[d])
                  if len(k) > BIG]
    for a in sorted(may):
        for b in sorted(may[a] - used[a]):
            fail(f"the table permits {a} -> {b}, and nobody goes there")
    readmes(used)
    known = [line.strip() for line in open(KNOWN) if line.strip()
             and line[0] != "#"] if os.path.exists(KNOWN) else []
    for line in sorted(set(is_so) - set(known)):
        fail("not permitted: " + line)
    for line in sorted(set(known) - set(is_so)):
        fail(f"no longer so, and still in {KNOWN}: {line}")
    if len(known) != len(set(known)):
        fail(f"{KNOWN} says something twice")
    print(f"{len(calls)} names between files, {len(set(is_so))} exceptions")
    return bad


sys.exit(main())
