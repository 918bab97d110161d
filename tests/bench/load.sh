#!/bin/bash
# load.sh [N]: is the library slower than TCP when there is no processor to spare? 1, 2 and 4
# pairs of sockbench at once, alone and beside 1 and 2 programs that do nothing but compute; bare
# and with both ends preloaded in turn, N rounds (default 3), medians. A stream counts as the sum
# over the pairs, a round trip as their mean. Exit status 1 if a ratio is below FLOOR (default
# 0.97: slower than TCP by more than runs differ); figures go to $B/bench/load.txt. FIGURES,
# PAIRS, HOGS: some of them only; POLICY: a line of policy.
. "$(dirname "$0")/../apps/lib.sh"
N=${1:-3}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: load.sh [N]" >&2; exit 2; }
[[ -n $SHIM ]] || skip "no library (SHIM=)"
FIGURES=${FIGURES:-rtt_64 stream_64 stream_16384 stream_1048576}
PAIRS=${PAIRS:-1 2 4}
HOGS=${HOGS:-0 1 2}
RESULT=$B/bench/load.txt
mkdir -p "$B/bench"
[[ -z ${POLICY-} ]] || policy "$POLICY"
: >"$TMP/figures"

hog() { env -i bash -c 'while :; do :; done' & PIDS+=("$!"); HOGGING+=("$!"); }

# run MODE PAIRS HOGS FIGURE: a line "MODE PAIRS HOGS FIGURE VALUE UNIT"
run() {
	local mode=$1 pairs=$2 hogs=$3 figure=$4 i port clients=() servers=()
	begin_mode "$mode"
	HOGGING=()
	for ((i = 0; i < pairs; i++)); do
		free_port port
		server "$B/bench/sockbench" -s "$port"
		wait_port "$port"
		servers+=("$SRV $port")
	done
	for ((i = 0; i < hogs; i++)); do hog; done
	for ((i = 0; i < pairs; i++)); do
		start client "$TMP/client.$i" "$B/bench/sockbench" -c 127.0.0.1 "${servers[i]#* }" \
			-t 0.6 -f "$figure"
		clients+=("$PID")
	done
	for ((i = 0; i < pairs; i++)); do
		finish "${clients[i]}" 60 || fail "client: $(cat "$TMP/client.$i")"
	done
	for i in "${HOGGING[@]}"; do kill "$i"; wait "$i" 2>/dev/null; done
	for i in "${servers[@]}"; do finish "${i% *}" 20 || fail "server"; done
	for ((i = 0; i < pairs; i++)); do cat "$TMP/client.$i"; done |
		awk -v what="$mode $pairs $hogs $figure" \
		-v f="$figure" \
		'$1 == f { v += $2; n++; u = $3 } END { print what, (f ~ /^rtt/ ? v / n : v), u }' \
		>>"$TMP/figures"
}

for ((round = 1; round <= N; round++)); do
	echo "round $round of $N" >&2
	for pairs in $PAIRS; do
		for hogs in $HOGS; do
			for figure in $FIGURES; do
				for mode in bare both; do
					run "$mode" "$pairs" "$hogs" "$figure"
				done
			done
		done
	done
done
python3 - "$TMP/figures" "${FLOOR:-0.97}" <<'EOF' | tee "$RESULT"
import statistics, sys
got, unit = {}, {}
for line in open(sys.argv[1]):
    mode, pairs, hogs, figure, value, u = line.split()
    got.setdefault((figure, pairs, hogs), {}).setdefault(mode, []).append(float(value))
    unit[figure] = u
low = 0
print("%-16s %5s %9s %12s %12s %-6s %6s" % ("figure", "pairs", "computing", "TCP", "shim", "",
    "ratio"))
for (figure, pairs, hogs), v in sorted(got.items()):
    tcp, shim = statistics.median(v["bare"]), statistics.median(v["both"])
    ratio = tcp / shim if unit[figure] == "us" else shim / tcp
    slow = ratio < float(sys.argv[2])
    low += slow
    print("%-16s %5s %9s %12.2f %12.2f %-6s %6.2f%s" % (figure, pairs, hogs, tcp, shim,
        unit[figure], ratio, "  SLOWER" if slow else ""))
print("%d of %d slower than %s of TCP" % (low, len(got), sys.argv[2]))
sys.exit(low > 0)
EOF
exit "${PIPESTATUS[0]}"
