#!/bin/bash
# bench.sh [N] [KNOB=VALUE]...: plain TCP, raw verbs (perftest) and the library between two nodes of
# the simulated device, in turn, N rounds (5), medians. Delay 1 us and 12.5 GB/s, unless knobs say
# otherwise.
#	rtt_64		raw: twice the mean time one way of ib_send_lat, which polls on 4
#			processors or more
#	stream_N	raw: ib_write_bw of 64 KiB, or of 64 bytes
#	cpu_stream_N	processor time of both programs for a gigabyte; the card's is not in it
#	many_rate, many_cpu, many_events	1,600 connections of which 16 are busy: requests,
#			processor time of the server for one, requests for a completion event for
#			100 records, bytes of a packet
#	pull		the same streams with rdma_pull (PULL= bytes; 1: as the device's costs say):
#			large blocks are read out of the sender's memory; and how much better
#			that is than copying
# rsockets have no column: they are a part of the librdmacm that the device stands in for.
# BEFORE=LIBRARY: that one, too, in the same rounds, and how many times better this one is.
# A column says how far the engines were behind their own clock ("ctl stat"): where that is more
# than a little the machine was too small, and times mean nothing. On fewer than 8 processors all is
# indicative. FIGURES= picks some; the table is also in $B/nic/bench.txt, a chart in bench.svg where
# gnuplot is.
. "$(dirname "$0")/lib.sh"
N=${1:-5}
shift || true
: "${FIGURES:=rtt_64 stream_64 stream_1048576 many}"
export SIMNIC_SHARE=1	# perftest's buffers
cpus=$(nproc)
engines=2 spin=5
((cpus < 8)) || spin=2000
realtime=() events=()
((cpus >= 4)) || events=(-e)
((EUID)) || realtime=(-r)
perftest=
command -v ib_send_lat >/dev/null && perftest=1
[[ -e ${SHIM:-} ]] || skip "no library (SHIM=)"
cp "$SHIM" "$TMP/librdmashim.so"
[[ -z ${BEFORE-} ]] || cp "$BEFORE" "$TMP/before.so"

figure() { echo "$1 $2 $3" >>"$TMP/figures"; }
listens() { ctl listens "$1" 2>/dev/null; }

# sockets COLUMN FIGURE [NAME=VALUE]...: sockbench at both ends
sockets() {
	local column=$1 fig=$2 server
	shift 2
	free_port PORT
	on a env "$@" timeout 60 "$B/bench/sockbench" -s "$PORT" -b 127.0.0.1 >/dev/null 2>&1 &
	server=$!
	PIDS+=("$server")
	within 10 listening "$PORT" || fail "$column: no server"
	on b env "$@" timeout 60 "$B/bench/sockbench" -c 127.0.0.1 "$PORT" -u -t "${SECS:-1}" \
		-f "$fig" >"$TMP/out" || fail "$column $fig: $(cat "$TMP/out")"
	wait "$server"
	while read -r name value _; do
		figure "$name" "$column" "$value"
	done <"$TMP/out"
}

# many COLUMN [NAME=VALUE]...
many() {
	local column=$1 server
	shift
	free_port PORT
	on a env "$@" timeout 100 "$B/bench/many" server "$PORT" >/dev/null 2>&1 &
	server=$!
	PIDS+=("$server")
	within 10 listening "$PORT" || fail "$column: no server"
	: >"$TMP/log"
	ctl clear b 2>/dev/null # there may be none yet
	on b env "$@" timeout 100 "$B/bench/many" client "$PORT" "${MANY:-1600}" "${SECS:-1}" \
		>"$TMP/out" || fail "$column many: $(cat "$TMP/out")"
	wait "$server" || true
	while read -r name value _; do
		figure "$name" "$column" "$value"
	done <"$TMP/out"
	awk -v c="$column" '/ records, / { for (i = 2; i < NF; i++) n[$i] += $(i - 1) }
		END { if (n["records,"]) print "many_events", c,
			100 * n["armings,"] / n["records,"] }' \
		"$TMP/log" >>"$TMP/figures"
	ctl stat b 2>/dev/null | awk -v c="$column" '$2 { print "many_bytes", c, $4 / $2 }' \
		>>"$TMP/figures"
}

# measure COLUMN FIGURE [NAME=VALUE]...
measure() {
	local column=$1 fig=$2
	shift 2
	if [[ $fig == many ]]; then
		many "$column" "$@"
	else
		sockets "$column" "$fig" "$@"
	fi
}

# raw FIGURE COLUMN-OF-PERFTEST FACTOR PROGRAM...
raw() {
	local fig=$1 col=$2 factor=$3 tries server
	shift 3
	for tries in 1 2 3 4 5 6; do
		free_port PORT
		on a timeout 60 "$@" -R -F -p "$PORT" >"$TMP/server" 2>&1 &
		server=$!
		PIDS+=("$server")
		within 10 listens "$PORT" || fail "$1: $(cat "$TMP/server")"
		sleep 0.1	# it listens a second time, and its client cannot wait for that
		on b timeout 60 "$@" -R -F -p "$PORT" 127.0.0.1 >"$TMP/out" 2>&1 &&
			wait "$server" && break
		kill -KILL "$server" 2>/dev/null
		((tries < 6)) || fail "$*: $(tail -n 5 "$TMP/out")"
	done 2>/dev/null
	figure "$fig" raw "$(awk -v c="$col" -v f="$factor" \
		'/^ *#bytes/ { head = 1; next } head && $1 > 0 { print $c * f; exit }' "$TMP/out")"
}

raw_verbs() {
	[[ -n $perftest ]] || return 0
	case $1 in
	rtt_64) raw rtt_64 6 2 ib_send_lat "${events[@]}" -s 64 -n 5000 ;;
	stream_64) raw stream_64 4 1.048576 ib_write_bw -s 64 -n 20000 ;;
	stream_1048576) raw stream_1048576 4 1.048576 ib_write_bw -s 65536 -n 3000 ;;
	esac
}

# How much of the bytes that the library has seen went by RDMA, in percent.
shim_share() {
	RDMASHIM_STAT_DIR=$TMP/stat "$B/rdmastat" --json --all | python3 -c 'import json, sys
b = json.load(sys.stdin)["total"]["bytes"]
print(100 * b["rdma"] / (sum(b.values()) or 1))'
}

mkdir -m 700 "$TMP/stat"
free_port DISCOVERY
cat >"$TMP/policy" <<END
use rdma both *:*
discovery_port $DISCOVERY
rdma_networks 127.0.0.1/32
rdma_streams 2048
earn_bytes 0
discovery 15s
log_level 2
END
shim=(RDMASHIM_CONF="$TMP/policy" RDMASHIM_STAT_DIR="$TMP/stat" RDMASHIM_LOG_FILE="$TMP/log")
cp "$TMP/policy" "$TMP/policy.pull"
echo "rdma_pull ${PULL:-1}" >>"$TMP/policy.pull"

device "${realtime[@]}" -t "$engines" profile=mlx5 "spin_us=$spin" "$@"
for ((round = 1; round <= N; round++)); do
	for f in $FIGURES; do
		measure tcp "$f" A=
		raw_verbs "$f"
		[[ -z ${BEFORE-} ]] || measure before "$f" LD_PRELOAD="$TMP/before.so" "${shim[@]}"
		ctl clear a
		measure shim "$f" LD_PRELOAD="$TMP/librdmashim.so" "${shim[@]}"
		figure "$f" share "$(shim_share)"
		[[ $f != stream_?????* ]] || measure pull "$f" LD_PRELOAD="$TMP/librdmashim.so" \
			"${shim[@]}" RDMASHIM_CONF="$TMP/policy.pull"
		read -r behind all < <(ctl stat a | awk '{ print $(NF - 9), $(NF - 12) }')
		figure "$f" late $((all ? 100 * behind / all : 0))
	done
done

{
	echo "simulated device, mlx5 ${*:+with $* }on $cpus processors;" \
		"$engines engines${realtime[*]:+, realtime}; $N rounds"
	((cpus >= 8)) || echo "fewer than 8 processors: indicative only"
	python3 -S - "$TMP/figures" "$TMP/chart" <<'END'
import collections
import statistics
import sys

v = collections.defaultdict(list)
for line in open(sys.argv[1]):
    figure, column, value = line.split()[:3]
    v[figure, column].append(float(value))
median = lambda f, c: statistics.median(v[f, c]) if v[f, c] else None
text = lambda x, form="%.2f": "-" if x is None else form % x
head = "%-20s %9s %9s %9s %9s %9s %9s %9s %9s %9s %8s %7s"
print(head % ("figure", "TCP", "raw", "before", "library", "pull", "lib/TCP", "lib/raw", "lib/bef.",
              "pull/lib", "by RDMA", "late"))
with open(sys.argv[2], "w") as chart:
    for f in dict.fromkeys(f for f, c in v if c == "shim"):
        tcp, raw, before, lib = (median(f, c) for c in ("tcp", "raw", "before", "shim"))
        less = f.startswith(("rtt", "cpu")) or f.endswith(("cpu", "events", "bytes"))
        better = lambda a, b: None if not a or not b else b / a if less else a / b
        ratio = lambda x: better(lib, x)
        pull = median(f, "pull")
        share, late = median(f, "share"), median(f, "late")
        print(head % (f, text(tcp), text(raw), text(before), text(lib), text(pull),
                      text(ratio(tcp)), text(ratio(raw)), text(ratio(before)),
                      text(better(pull, lib)), text(share, "%.0f %%"), text(late, "%.0f %%")))
        chart.write('"%s" %g %g\n' % (f.replace("_", " "), ratio(tcp) or 0, ratio(raw) or 0))
END
	ctl stat a
	ctl stat b
} | tee "$NIC/bench.txt"
if command -v gnuplot >/dev/null; then
	gnuplot <<END
set terminal svg size 700,400
set output "$NIC/bench.svg"
set title "the library on the simulated device: times better than TCP and raw verbs"
set style data histograms
set style fill solid 0.6
set yrange [0:*]
plot "$TMP/chart" using 2:xtic(1) title "TCP", "" using 3 title "raw verbs"
END
fi
