# table.py FIGURES FLOORS SVG [WAY...] - the table of bench.sh. A line of FIGURES is "WAY FIGURE
# VALUE UNIT", many for each pair; of FLOORS "FIGURE WAY RATIO  # comment". Writes the chart SVG
# with gnuplot, if that is there. Exit status: 1 if a floor is missed.
import math, shutil, statistics, subprocess, sys

ALL_WAYS = ["both", "limit", "client", "server", "nospin", "onecpu", "unix", "over_unix"]
TITLES = ["both", "the limit", "client only", "server only", "no spin", "one CPU", "AF_UNIX",
          "both / AF_UNIX"]
CHART = ["both", "client", "server"]
WAYS = [w for w in ALL_WAYS if w in sys.argv[4:] or len(sys.argv) == 4]


def read(path):
    values, units, order = {}, {}, []
    for line in open(path):
        way, figure, value, unit = line.split()
        values.setdefault((figure, way), []).append(float(value))
        units[figure] = unit
        if figure not in order:
            order.append(figure)
    return {k: statistics.median(v) for k, v in values.items()}, values, units, order


def better(units, figure, x, y):
    """How much better y is than x: for times less is better, for rates more."""
    if not x or not y:
        return None
    return x / y if units[figure] in ("us", "s/GB") else y / x


def base_of(median, figure, way):
    base = {"onecpu": "onebare", "client": "onebare", "server": "onebare", "over_unix": "unix"}.get(
        way, "bare")
    if base == "onebare" and (figure, base) not in median:
        base = "bare"       # apps.sh: all ways have all processors
    return base


def ratio(median, units, figure, way):
    base = base_of(median, figure, way)
    if base == "onebare":   # runs beside each other, many: their own ratios
        own = paired(values, units, figure, way)
        return statistics.median(own) if own else None
    return better(units, figure, median.get((figure, base)),
                  median.get((figure, "both" if way == "over_unix" else way)))


def paired(values, units, figure, way):
    """The rounds' own ratios, sorted."""
    pairs = zip(values.get((figure, base_of(values, figure, way)), []), values.get((figure, way),
        []))
    return sorted(filter(None, (better(units, figure, x, y) for x, y in pairs)))


def interval(values, units, figure, way):
    """Within which the median of the rounds' own ratios lies with 90 %, by the order of the
    rounds alone (sign test). None: too few rounds."""
    got = paired(values, units, figure, way)
    n, out, tail = len(got), None, 0.0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2 ** n
        if tail > 0.05:
            break
        out = got[k], got[n - 1 - k]
    return out


def mark(r, span):
    """More than 3 % slower than TCP gets a star if that is certain, else a question mark."""
    return "-" if not r else "%.2f%s" % (r, " " if r >= 0.97 else "*" if span and span[1] < 0.97
                                         else "?")


def chart(path, order, ratios):
    rows = [f for f in order if ratios.get((f, "both"))]
    if not shutil.which("gnuplot"):
        print("no gnuplot, no chart")
        return
    data = "".join("%s %s\n" % (f.replace("_", "\\\\_"), " ".join("%.3f" % (ratios.get((f, w)) or 1)
        for w in CHART))
                   for f in rows)
    script = """set terminal svg size 1000,500 background '#ffffff'
set output '%s'
set title 'rdmashim against TCP on one host (more is better; 1 = TCP)'
set logscale y
set grid ytics
set style data histograms
set style fill solid
set xtics rotate by -35
$d << END
%sEND
plot $d using 2:xtic(1) title 'both ends', '' using 3 title 'client only', \
    '' using 4 title 'server only', 1 notitle lc 'black'
""" % (path, data)
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    print("chart: " + path)


def floors(path, ratios):
    missed = checked = 0
    for line in open(path):
        words = line.split("#")[0].split()
        if not words:
            continue
        figure, way, least = words[0], words[1], float(words[2])
        got = ratios.get((figure, way))
        if got is None:
            print("not measured: %s, %s" % (figure, way))
            continue
        checked += 1
        if got < least:
            missed += 1
            print("BELOW THE FLOOR: %s, %s: %.2f, must be at least %.2f" % (figure, way, got,
                least))
    if checked:
        print("%d floors, %d missed" % (checked, missed))
    return missed


median, values, units, order = read(sys.argv[1])
ratios = {(f, w): ratio(median, units, f, w) for f in order for w in WAYS}
spans = {(f, w): interval(values, units, f, w) for f in order for w in WAYS if w != "over_unix"}
print("%-20s %11s %11s  %-5s" % ("figure", "TCP", "shim", "unit")
      + "".join("%15s" % TITLES[ALL_WAYS.index(w)] for w in WAYS))
for f in order:
    print("%-20s %11.3f %11.3f  %-5s" % (f, median.get((f, "bare"), 0), median.get((f, "both"), 0),
                                         units[f]) +
          "".join("%15s" % mark(ratios[f, w], spans.get((f, w))) for w in WAYS))
if any(r and r < 0.97 for (f, w), r in ratios.items()):
    print("* slower by more than 3 %; ? perhaps. The median of the rounds' own ratios is, with 90 "
          "%, within:")
    for (f, w), r in ratios.items():
        if r and r < 0.97:
            print("  %s, %s: %s" % (f, TITLES[ALL_WAYS.index(w)], "%.2f to %.2f" % spans[f, w]
                                    if spans.get((f, w)) else "too few rounds (5 are needed)"))
chart(sys.argv[3], order, ratios)
sys.exit(1 if floors(sys.argv[2], ratios) else 0)
