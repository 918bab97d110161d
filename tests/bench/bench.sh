#!/bin/bash
# bench.sh [N] [SOCKBENCH OPTIONS]: sockbench on plain TCP, with both ends preloaded, and with one, interleaved N times
# (default 3); medians as a table of ratios to the plain TCP of the same rounds. A ratio above 1 is better
# than TCP. `one end` shows what the shim costs where it cannot help: it should be 1.00.
. "$(dirname "$0")/../apps/lib.sh"
N=${1:-3}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: bench.sh [N] [SOCKBENCH OPTIONS]" >&2; exit 2; }
shift || true
OPTS=("$@")
[[ ${#OPTS[@]} -gt 0 ]] || OPTS=(-t 0.5)
[[ -n $SHIM ]] || { MODES=bare; echo "no SHIM=: plain TCP only"; }

for ((round = 1; round <= N; round++)); do
	for m in $MODES; do
		begin_mode "$m"
		echo "round $round of $N: $m" >&2
		free_port port
		server "$B/bench/sockbench" -s "$port"
		wait_port "$port"
		client "$B/bench/sockbench" -c 127.0.0.1 "$port" "${OPTS[@]}" >"$TMP/client.log" ||
			fail "client: $(cat "$TMP/client.log")"
		finish "$SRV" 10 || fail "server: $(cat "$TMP/server.log")"
		sed "s/^/$m $round /" "$TMP/client.log" >>"$TMP/figures"
	done
done

awk -v modes="$MODES" '
{ v[$3, $1, ++n[$3, $1]] = $4; unit[$3] = $5; if (!($3 in seen)) { seen[$3] = 1; order[++figs] = $3 } }
function median(f, m,   i, j, k, t, a) {
	k = n[f, m]
	if (!k) return 0
	for (i = 1; i <= k; i++) a[i] = v[f, m, i]
	for (i = 2; i <= k; i++) for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
	return k % 2 ? a[(k + 1) / 2] : (a[k / 2] + a[k / 2 + 1]) / 2
}
# For times less is better, for rates more.
function ratio(f, m,   x, y) {
	x = median(f, "bare"); y = median(f, m)
	if (!x || !y) return "-"
	return sprintf("%.2f", unit[f] == "us" ? x / y : y / x)
}
END {
	printf "%-16s %10s %10s  %-5s %7s %12s %12s\n", "figure", "TCP", "shim", "unit", "ratio", "client only", "server only"
	for (i = 1; i <= figs; i++) {
		f = order[i]
		if (f == "bad_blocks") { printf "%-16s %10d %10d\n", f, median(f, "bare"), median(f, "both"); continue }
		printf "%-16s %10.2f %10.2f  %-5s %7s %12s %12s\n", f, median(f, "bare"), median(f, "both"), unit[f], ratio(f, "both"), ratio(f, "client"), ratio(f, "server")
	}
}' "$TMP/figures"
