#!/usr/bin/python3
"""slow.py [-n ROUNDS] [-t TIMES] [--inside] [PROGRAM...] - snippets that take more than TIMES
(3) times as long preloaded as on the kernel alone.

In each round every snippet runs on the kernel alone and then preloaded in each mode: on TCP by
policy, by the default policy, never earned, cut over at once. What is measured is a whole run of
its program, from exec to the end of the process: the library's start, the counter file, the
thread, the first link and the fallback are in it. With --inside, what the snippet itself takes
in a process that has had a connection before; there the waits for the cut are not counted, and a
snippet of 0.1 ms that has to fall back to TCP takes several times as long. Of the ROUNDS (5) the
best counts: noise only adds. B: where the build is. SHIM: the library. Exit status 1: a snippet
is slower than that, without --inside."""
import argparse
import os
import subprocess
import sys
import tempfile
import time

MODES = {"off": "mode off\n", "default": "", "young": "earn_bytes 1000G\nearn_rounds 4000000000\n",
         "cut": "earn_bytes 0\nearn_rounds 0\n"}


def whole(program, env, names, null):
    """snippet -> milliseconds"""
    found = {}
    actions = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    for name in names:
        since = time.monotonic()
        pid = os.posix_spawn(program, [program, name], env, file_actions=actions)
        os.waitpid(pid, 0)
        found[name] = (time.monotonic() - since) * 1000
    return found


def inside(program, env):
    """snippet -> milliseconds"""
    env = {**env, "SNIP_WARM": "1"}
    if env.get("RDMASHIM_CONF", "").endswith("/cut.conf"):
        env["SNIP_WAIT_CUT"] = "1"
    got = subprocess.run([program], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         text=True, errors="replace")
    found = {}
    for line in got.stderr.splitlines():
        name, _, rest = line.partition(": took ")
        if rest:
            found[name] = int(rest.split()[0]) / 1000
    return found


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("-n", type=int, default=5, help="rounds (5)")
    args.add_argument("-t", type=float, default=3, help="how many times as long is too slow (3)")
    args.add_argument("--inside", action="store_true", help="the snippet alone, not its process")
    args.add_argument("program", nargs="*")
    args = args.parse_args()
    build, here = os.path.abspath(os.environ.get("B", "build")), os.path.dirname(
        os.path.abspath(__file__))
    shim = os.path.abspath(os.environ.get("SHIM", f"{build}/librdmashim.so"))
    programs = args.program or sorted(f[:-2] for f in os.listdir(here) if f.endswith(".c"))
    best = {mode: {} for mode in ("bare", *MODES)}
    null = os.open("/dev/null", os.O_WRONLY)
    os.setpgid(0, 0)        # a snippet may signal its group

    with tempfile.TemporaryDirectory(dir="/dev/shm") as tmp:    # where the counters are by default
        os.mkdir(f"{tmp}/stat", 0o700)
        for mode, policy in MODES.items():
            with open(f"{tmp}/{mode}.conf", "w") as f:
                f.write(policy)
        for n in range(args.n):
            for name in programs:
                print(f"\rround {n + 1} of {args.n}: {name}      ", end="", file=sys.stderr,
                      flush=True)
                program = f"{build}/snippets/{name}"
                names = [line.split(":")[0] for line in subprocess.run([program, "list"],
                    stdout=subprocess.PIPE, text=True).stdout.splitlines()]
                for mode in best:
                    env = dict(os.environ)
                    if mode != "bare":
                        env |= {"LD_PRELOAD": shim, "RDMASHIM_CONF": f"{tmp}/{mode}.conf",
                                "RDMASHIM_STAT_DIR": f"{tmp}/stat"}
                    found = inside(program, env) if args.inside else whole(program, env, names,
                        null)
                    for snippet, ms in found.items():
                        key = f"{name}/{snippet}"
                        best[mode][key] = min(ms, best[mode].get(key, ms))
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)

    slow, looked = [], 0
    for mode in MODES:
        both = {key: (best["bare"][key], ms) for key, ms in best[mode].items()
                if best["bare"].get(key)}
        ratios = sorted(ms / bare for bare, ms in both.values())
        looked += len(ratios)
        slow += [(ms / bare, f"{mode} {key}: {bare:.2f} ms on the kernel alone, {ms:.2f} ms here: "
                  f"{ms / bare:.1f}x") for key, (bare, ms) in both.items() if ms > args.t * bare]
        print(f"{mode}: {len(ratios)} snippets, median {ratios[len(ratios) // 2]:.2f}x, one in a "
              f"hundred above {ratios[-1 - len(ratios) // 100]:.2f}x, the slowest "
              f"{ratios[-1]:.2f}x")
    for _, line in sorted(slow, reverse=True):
        print(line)
    print(f"slower than {args.t:g} times: {len(slow)} of {looked}")
    return 1 if slow and not args.inside else 0


sys.exit(main())
