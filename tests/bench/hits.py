"""hits.py FIGURES MUST MUST_HOGS FLOOR - the table of hits.sh. A line of FIGURES is "PROGRAM HOGS
MODE SECONDS", behind it for both ends preloaded "HITRATE BYTES CUTS REASONS"."""
import statistics
import sys

path, must, must_hogs, floor = sys.argv[1], *map(float, sys.argv[2:])
runs = {}
for line in open(path):
    app, hogs, mode, seconds, *rest = line.split()
    runs.setdefault(app, {}).setdefault((int(hogs), mode), []).append((float(seconds), rest))


def hits(got):
    return [float(rest[0]) for _, rest in got]


def cell(app, hogs):
    """What is printed of one program, quiet or beside hogs, and what is missed there."""
    bare, both = runs[app].get((hogs, "bare")), runs[app].get((hogs, "both"))
    if not both:
        return "%34s" % "", []
    h = hits(both)
    mid = statistics.median(h)
    t0, t1 = (statistics.median(s for s, _ in x) for x in (bare, both))
    missed = []
    if mid < (must_hogs if hogs else must):
        missed.append("%s, %d beside it: hit rate %.1f %%" % (app, hogs, mid))
    if t0 / t1 < floor:
        missed.append("%s, %d beside it: %.2f of bare's speed" % (app, hogs, t0 / t1))
    return "%7.1f %6.1f %6.1f %6.1f %6.2f" % (mid, min(h), h[0], 1e3 * t1, t0 / t1), missed


most = max((h for app in runs.values() for h, _ in app), default=0)
print("%-13s %6s | %7s %6s %6s %6s %6s | with %d computing" % (
    "program", "MB", "hit %", "least", "first", "ms", "ratio", most))
missed = []
for app in runs:
    size = statistics.median(float(rest[1]) for _, rest in runs[app][0, "both"]) / 2e6
    cells = []
    for hogs in (0, most) if most else (0,):
        text, m = cell(app, hogs)
        cells.append(text)
        missed += m
    print("%-13s %6.1f | %s" % (app, size, " | ".join(cells)))
for m in missed:
    print("MISSED: " + m)
print("%d missed" % len(missed))
sys.exit(len(missed) > 0)
