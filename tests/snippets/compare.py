#!/usr/bin/python3
"""compare.py DIR KNOWN ROUNDS PROGRAMS MODES - what the snippets printed in each mode against
the bare run.

DIR/MODE.PROGRAM holds lines "snippet: what"; a snippet's lines come ROUNDS times in the mode
"forced". A mode that has a bare run of its own, DIR/bare-MODE.PROGRAM, is held against that.
KNOWN has lines "MODE PROGRAM/SNIPPET reason"; MODE may be "*". Exit status 1: a difference that
is not known, or nothing to compare."""
import fnmatch
import os
import sys

where, known_file, rounds, programs, modes = sys.argv[1:]
rounds = int(rounds)


def runs(mode, program):
    """snippet -> its runs, each a list of lines. The runner names each run in a line
    "== snippet"."""
    found, lines = {}, None
    with open(f"{where}/{mode}.{program}", errors="replace") as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith("== "):
                lines = []
                found.setdefault(line[3:], []).append(lines)
            elif lines is not None:
                lines.append(line)
    return found


def read_known():
    known = []
    with open(known_file) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                mode, snippet, reason = line.split(None, 2)
                known.append((mode, snippet, reason.strip()))
    return known


known = read_known()
# in these each connection is waited for until it is on a fast path
CUT = ("cut", "back", "thread", "signal", "fork")
bad = same = excused = 0
uncut = {}
for program in programs.split():
    bares = {"bare": runs("bare", program)}
    for mode in modes.split():
        if os.path.exists(f"{where}/bare-{mode}.{program}"):
            bares[mode] = runs(f"bare-{mode}", program)
    for where_run, bare in bares.items():
        for name, r in bare.items():
            for line in r[0]:
                if any(w in line for w in (": HANGS", ": KILLED by", ": BROKEN", ": waited 5 s",
                                           " bytes arrive")):
                    print(f"FAILED: on the kernel alone ({where_run}): {line}")
                    bad += 1
    for mode in modes.split():
        bare = bares.get(mode, bares["bare"])
        here = runs(mode, program)
        if mode in CUT:
            uncut[mode] = uncut.get(mode, 0) + sum("not on a fast path" in line
                                                   for line in open(f"{where}/{mode}.{program}.err",
                                                       errors="replace"))
        for name, r in bare.items():
            want, got = r[0], here.get(name, [])
            times = rounds if mode == "forced" else 1
            if len(got) != times:
                print(f"FAILED: {mode} {program}/{name}: ran {len(got)} times, not {times}")
                bad += 1
            odd = [g for g in got if g != want]
            if not odd:
                same += 1
                continue
            why = [k for k in known if fnmatch.fnmatchcase(mode, k[0])
                   and fnmatch.fnmatchcase(f"{program}/{name}", k[1])]
            if why:
                print(f"known: {mode} {program}/{name}: {why[0][2]}")
                excused += 1
                continue
            bad += 1
            print(f"FAILED: {mode} {program}/{name}, {len(odd)} of {len(got)} runs; bare (<), here "
                  f"(>)")
            for i in range(max(len(want), len(odd[0]))):
                w = want[i] if i < len(want) else "-"
                g = odd[0][i] if i < len(odd[0]) else "-"
                if w != g:
                    print(f"    < {w}\n    > {g}")
stayed = ", ".join(f"{n} in the mode {m}" for m, n in uncut.items()) or "none waited for"
print(f"{same} the same, {excused} known, {bad} differ; connections that stayed on TCP: {stayed}")
sys.exit(1 if bad or not (same or not modes.split()) else 0)
