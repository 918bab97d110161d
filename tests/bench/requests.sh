#!/bin/bash
# requests.sh [N] [COUNT...]: connections of so many requests each (1 2 5 15 30 60 100 300), one
# after the other, bare and both ends preloaded in turn, N rounds (default 5) of SECS (default 0.5)
# seconds: connections a second, and both ends' processor time for one, medians, against bare; above
# 1 is better. Beside other load the processor time is the one to look at. Exit status 1 if that is
# below FLOOR (default 0.97).
. "$(dirname "$0")/../apps/lib.sh"
N=${1:-5}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: requests.sh [N] [COUNT...]" >&2; exit 2; }
shift || true
COUNTS=("$@")
((${#COUNTS[@]})) || COUNTS=(1 2 5 15 30 60 100 300)
[[ -n $SHIM ]] || skip "no library (SHIM=)"
: >"$TMP/figures"

run() {
	local port
	begin_mode "$2"
	free_port port
	server "$B/bench/requests" server "$port"
	wait_port "$port"
	client timeout 60 "$B/bench/requests" client "$port" "$1" "${SECS:-0.5}" \
		>"$TMP/client.log" ||
		fail "$1 requests: $(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 20 || fail "the server: $(cat "$TMP/server.log")"
	echo "$1 $MODE $(tail -n 1 "$TMP/client.log") $(tail -n 1 "$TMP/server.log")" \
		>>"$TMP/figures"
}

for ((round = 1; round <= N; round++)); do
	for count in "${COUNTS[@]}"; do
		for m in bare both; do run "$count" $m; done
	done
done
python3 -S -E -c 'import sys
from collections import defaultdict
rate, cpu, low = defaultdict(list), defaultdict(list), 0
for line in open(sys.argv[1]):
    n, mode, *x = line.split()
    conns, secs, took, there, _, theirs = map(float, x)
    rate[int(n), mode].append(conns / secs)
    cpu[int(n), mode].append(1e6 * (took / conns + theirs / there))
def median(x): return sorted(x)[len(x) // 2]
print("%8s | %8s %6s | %8s %6s" % ("requests", "conns/s", "ratio", "CPU us", "ratio"))
for n in sorted({n for n, _ in rate}):
    r, c = ({m: median(x[n, m]) for m in ("bare", "both")} for x in (rate, cpu))
    low += c["bare"] / c["both"] < float(sys.argv[2])
    print("%8d | %8.0f %6.2f | %8.1f %6.2f" % (n, r["both"], r["both"] / r["bare"], c["both"],
                                                c["bare"] / c["both"]))
sys.exit(low != 0)' "$TMP/figures" "${FLOOR:-0.97}"
