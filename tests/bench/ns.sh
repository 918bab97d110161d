#!/bin/bash
# ns.sh [N]: what the library gives between two network namespaces, as containers have them: ratios
# to TCP over the same bridge, N rounds (default 5), all ways in turn, medians. By address, by DNAT
# and masquerade, and inside of one of them, which says what the machine gives at this moment. A
# ratio above 1 is better than TCP; below the floors of tests/bench/floors: exit status 1.
. "$(dirname "$0")/../apps/lib.sh"
. "$(dirname "$0")/../hostile/netns.bash"
. "$(dirname "$0")/../hostile/across.bash"
N=${1:-5}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: ns.sh [N]" >&2; exit 2; }
needs_networks
networks
FIGURES=(rtt_64 stream_16384)
declare -A FLOOR
for f in "${FIGURES[@]}"; do
	FLOOR[$f]=$(awk -v f="$f" '$1 == f && $2 == "both" { print $3 }' \
		"$TOP/tests/bench/floors")
done
: >"$TMP/figures"

# one WAY MODE NAMESPACE ADDRESS PORT: a run of sockbench for each figure
one() {
	local f server
	port=23001
	for f in "${FIGURES[@]}"; do
		begin_mode "$1-$2"
		start "$2" "$TMP/server.log" nsenter -t "$3" -n "$B/bench/sockbench" -s "$port" \
			-b 0.0.0.0
		server=$PID
		within 15 listens "$3" || fail "nobody listens"
		run_with "$2" nsenter -t "$N_A" -n "$B/bench/sockbench" -u -c "$4" "$5" -t 0.4 \
			-f "$f" >"$TMP/client.log" 2>&1 || fail "client: $(cat "$TMP/client.log")"
		finish "$server" 15 || fail "server: $(cat "$TMP/server.log")"
		sed "s/^/$1 $2 /" "$TMP/client.log" >>"$TMP/figures"
	done
}

across
sed -i '/^log_level/d' "$CONF"	# a line for each record costs
for ((round = 1; round <= N; round++)); do
	echo "round $round of $N" >&2
	for mode in none shim; do
		one bridge "$mode" "$N_B" 10.77.0.3 23001
		one nat "$mode" "$N_B" 10.96.0.1 23081
		one inside "$mode" "$N_A" 127.0.0.1 23001
	done
done

# median WAY MODE FIGURE
median() {
	awk -v k="$1 $2 $3" '$1 " " $2 " " $3 == k { print $4 }' "$TMP/figures" | sort -g |
		awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}
missed=0
printf '%-8s %-14s %12s %12s %8s %8s\n' way figure TCP library ratio floor
for way in bridge nat inside; do
	for f in "${FIGURES[@]}"; do
		tcp=$(median "$way" none "$f") shim=$(median "$way" shim "$f")
		# a time, or a rate
		ratio=$(awk -v a="$tcp" -v b="$shim" -v f="$f" 'BEGIN {
			printf "%.2f", f ~ /^rtt/ ? a / b : b / a }')
		floor=${FLOOR[$f]}
		[[ $way != inside ]] || floor=-
		printf '%-8s %-14s %12s %12s %8s %8s\n' "$way" "$f" "$tcp" "$shim" "$ratio" "$floor"
		[[ $floor != - ]] || continue
		if awk -v r="$ratio" -v f="$floor" 'BEGIN { exit r >= f }'; then
			echo "$way $f: $ratio is below $floor" >&2
			missed=1
		fi
	done
done
exit $missed
