#!/bin/bash
# versions.sh OLD.so NEW.so [N]: what a change of the library costs or gives: plain TCP, the old
# and the new library in turn, N rounds (default 5), medians. Figures of sockbench (both ends
# preloaded), and `handover`: answers of connections that are upgraded and end after 30 turns, so
# that mostly upgrades are measured. The last two columns are new / old, above 1 is better, and
# how far apart the old one's own rounds are. FIGURES="rtt_64 stream_1048576 ..." only those;
# PIN="SERVER CLIENT": on those processors (taskset -c).
OLD=$(readlink -f "${1-}") NEW=$(readlink -f "${2-}") N=${3:-5}
[[ -f $OLD && -f $NEW && $N =~ ^[1-9][0-9]*$ ]] ||
	{ echo "usage: versions.sh OLD.so NEW.so [N]" >&2; exit 2; }
export SHIM=$NEW
. "$(dirname "$0")/../apps/lib.sh"
SECS=${SECS:-0.4}
server_at=() client_at=()
if [[ -n ${PIN-} ]]; then
	server_at=(taskset -c "${PIN% *}") client_at=(taskset -c "${PIN#* }")
fi
FIGURES=${FIGURES:-rtt_64 stream_64 stream_16384 stream_65536 stream_1048576 stream_4194304 \
connections}

# one WAY LIBRARY: a round. No library: TCP.
one() {
	local way=$1 port f env=()
	begin_mode both
	shim_env
	env=("${SHIM_ENV[@]}")
	[[ -n $2 ]] && env+=(LD_PRELOAD="$2") || env=(LC_ALL=C)
	for f in $FIGURES; do
		free_port port
		start none "$TMP/server.log" "${server_at[@]}" env "${env[@]}" \
			"$B/bench/sockbench" -s "$port"
		wait_port "$port"
		"${client_at[@]}" env "${env[@]}" timeout 60 "$B/bench/sockbench" -u -c 127.0.0.1 \
			"$port" -t "$SECS" -f "$f" >"$TMP/client.log" ||
			fail "$way: $(cat "$TMP/client.log")"
		finish "$PID" 10 || fail "$way: $(cat "$TMP/server.log")"
		sed "s/^/$way /" "$TMP/client.log" >>"$TMP/figures"
	done
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	start none "$TMP/server.log" "${server_at[@]}" env "${env[@]}" "$B/apps/handover" serve \
		"$port"
	wait_port "$port"
	"${client_at[@]}" env "${env[@]}" timeout 60 "$B/apps/handover" ask "$port" \
		2 >"$TMP/client.log" 2>&1 || fail "$way: $(cat "$TMP/client.log")"
	stop "$PID"
	policy
	echo "$way handover $(grep -oE '[0-9]+' "$TMP/client.log" | head -n 1) answers" \
		>>"$TMP/figures"
}

for ((i = 1; i <= N; i++)); do
	echo "round $i of $N" >&2
	one tcp ""
	one old "$OLD"
	one new "$NEW"
done
python3 -S -E - "$TMP/figures" <<'PY'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    way, name, value = line.split()[:3]
    runs.setdefault(name, {}).setdefault(way, []).append(float(value))
print("%-16s %12s %12s %12s %9s %9s" % ("figure", "tcp", "old", "new", "new/old", "spread"))
for name, ways in runs.items():
    if not all(w in ways for w in ("tcp", "old", "new")):
        continue
    m = {w: statistics.median(v) for w, v in ways.items()}
    less = name.startswith(("rtt", "cpu"))	# a time
    ratio = m["old"] / m["new"] if less else m["new"] / m["old"]
    spread = (max(ways["old"]) - min(ways["old"])) / m["old"]
    print("%-16s %12.4g %12.4g %12.4g %9.3f %8.0f%%" % (name, m["tcp"], m["old"], m["new"], ratio,
        spread * 100))
PY
