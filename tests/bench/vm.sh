#!/bin/bash
# HOSTS: 2
# DEVICE: rxe siw
# TIMEOUT: 1500
# In the emulated guests (make bench-vm): plain TCP, raw verbs by perftest, librdmacm's rsockets preloaded, and the shim at
# both ends, interleaved $VM_ARGS times (3); medians. Only ratios mean anything: an emulated processor is slow,
# and the device is software. Raw verbs are the limit: twice the mean time one way of ib_send_lat, and ib_write_bw.
. "${TOP:?}/tests/vm/lib.sh"
ROUNDS=${VM_ARGS:-3}
FIGURES="rtt_64 stream_1048576 stream_64"
SECS=0.5

figure() { echo "$1 $2 $3" >>"$TMP/figures"; }

# sockets COLUMN FIGURE PREFIX...: sockbench at both ends, with rsockets, shim or nothing in front
sockets() {
	local column=$1 fig=$2 port wait=wait_port
	shift 2
	new_port port
	[[ $column != rsockets ]] || wait=wait_rdma_port
	on "$PEER" start "$column$port" "$@" sockbench -s "$port" -b "$P4"
	on "$PEER" $wait "$port" || fail "$column: server"
	"$@" timeout 100 sockbench -c "$P4" "$port" -t $SECS -f "$fig" >"$TMP/out" || fail "$column $fig: $(cat "$TMP/out")"
	on "$PEER" finish "$column$port" 30 || fail "$column: server"
	figure "$fig" "$column" "$(awk -v f="$fig" '$1 == f { print $2 }' "$TMP/out")"
}

# raw FIGURE COLUMN-OF-PERFTEST FACTOR PROGRAM...: perftest's one line of figures
raw() {
	local fig=$1 col=$2 factor=$3 port
	shift 3
	new_port port
	on "$PEER" start "raw$port" "$@" -R -F -p "$port"
	on "$PEER" wait_rdma_port "$port" || fail "$1: server"
	timeout 100 "$@" -R -F -p "$port" "$P4" >"$TMP/out" 2>&1 || fail "$*: $(tail -n 5 "$TMP/out")"
	on "$PEER" finish "raw$port" 30 || fail "$1: server"
	figure "$fig" raw "$(awk -v c="$col" -v f="$factor" '/^ *#bytes/ { head = 1; next } head && $1 > 0 { print $c * f; exit }' "$TMP/out")"
}

# ib_send_lat: bytes iterations min max typical average; ib_write_bw: bytes iterations peak average, in 2^20 bytes/s.
raw_verbs() {
	case $1 in
	rtt_64) raw rtt_64 6 2 ib_send_lat -s 64 -n 1000 ;;
	stream_1048576) raw stream_1048576 4 1.048576 ib_write_bw -s 65536 -n 300 ;;
	stream_64) raw stream_64 4 1.048576 ib_write_bw -s 64 -n 5000 ;;
	esac
}

for ((round = 1; round <= ROUNDS; round++)); do
	for f in $FIGURES; do
		sockets tcp "$f"
		raw_verbs "$f"
		sockets rsockets "$f" rsockets
		[[ -z $SHIM ]] || sockets shim "$f" shim
	done
done

echo "$DEVICE, $HOSTS host(s), $ROUNDS rounds"
awk -v order="$FIGURES" '
{ v[$1, $2, ++n[$1, $2]] = $3 }
function median(f, m,   i, j, k, t, a) {
	k = n[f, m]
	if (!k) return 0
	for (i = 1; i <= k; i++) a[i] = v[f, m, i] + 0
	for (i = 2; i <= k; i++) for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
	return k % 2 ? a[(k + 1) / 2] : (a[k / 2] + a[k / 2 + 1]) / 2
}
# For times less is better, for rates more.
function ratio(f, m,   x, y) {
	x = median(f, m); y = median(f, "shim")
	if (!x || !y) return "-"
	return sprintf("%.2f", f ~ /^rtt/ ? x / y : y / x)
}
END {
	printf "%-16s %10s %10s %10s %10s  %-5s %10s %10s %10s\n", "figure", "TCP", "raw verbs", "rsockets", "shim", "unit", "shim/TCP", "shim/raw", "shim/rsock"
	k = split(order, f, " ")
	for (i = 1; i <= k; i++)
		printf "%-16s %10.2f %10.2f %10.2f %10.2f  %-5s %10s %10s %10s\n", f[i], median(f[i], "tcp"), median(f[i], "raw"),
			median(f[i], "rsockets"), median(f[i], "shim"), f[i] ~ /^rtt/ ? "us" : "MB/s", ratio(f[i], "tcp"), ratio(f[i], "raw"), ratio(f[i], "rsockets")
}' "$TMP/figures"
[[ -z $SHIM ]] || echo "host a, shim: $(counters)"
