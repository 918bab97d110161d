#!/bin/bash
# HOSTS: 2
# DEVICE: rxe siw
# TIMEOUT: 1500
# In the emulated guests (make bench-vm): plain TCP, raw verbs by perftest, librdmacm's rsockets
# preloaded, and the library at both ends, interleaved $VM_ARGS times (3; figures' names after
# that: only those); medians. Only ratios mean anything: an emulated processor is slow, and the
# device is software. Raw verbs are the limit: twice the mean time one way of ib_send_lat, and
# ib_write_bw. The last column is the least part of the library's bytes that went by RDMA in a
# run: a figure where it is small is TCP's. Connections are opened one after the other, 64 bytes
# there and back on each: the library's are at its default policy, under which none of them earns
# an upgrade. Below the table: what a stream of small messages costs in work requests, of both
# ends together. An emulated processor takes `rep movsb` byte by byte, 1 GB/s, where a real one
# makes 10: glibc's memcpy has to do without it, in all columns. With VM_ICOUNT=1, one processor
# and a clock of instructions, figures repeat on a busy machine, too; raw verbs sleep then.
. "${TOP:?}/tests/vm/lib.sh"
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000
read -r ROUNDS FIGURES <<<"${VM_ARGS:-3}"
: "${FIGURES:=rtt_64 stream_1048576 stream_64 connections}"
SECS=${VM_ICOUNT:+0.3}
SECS=${SECS:-1.5}
EVENTS=${VM_ICOUNT:+-e}

# Between two processes of one host the library would take shared memory: RDMA is what is asked
# for here.
rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32 $B4/32
discovery 15s
log_level 2"

figure() { echo "$1 $2 $3" >>"$TMP/figures"; }

# sockets COLUMN FIGURE PREFIX...: sockbench at both ends, with rsockets, shim or nothing in front
sockets() {
	local column=$1 fig=$2 port wait=wait_port
	shift 2
	new_port port
	[[ $column != rsockets ]] || wait=wait_rdma_port
	on "$PEER" eval \
		"export GLIBC_TUNABLES=$GLIBC_TUNABLES; start $column$port $* sockbench -s $port \
-b $P4"
	on "$PEER" $wait "$port" || fail "$column: server"
	if ! "$@" timeout 100 sockbench -c "$P4" "$port" -t "$SECS" -f "$fig" >"$TMP/out"; then
		[[ $column == rsockets ]] || fail "$column $fig: $(cat "$TMP/out")"
		on "$PEER" stop "$column$port" KILL	# it resets connections on iWARP: no figure
		echo "rsockets: $fig failed"
		return
	fi
	on "$PEER" finish "$column$port" 30 || fail "$column: server"
	figure "$fig" "$column" "$(awk -v f="$fig" '$1 == f { print $2 }' "$TMP/out")"
}

# raw FIGURE COLUMN-OF-PERFTEST FACTOR PROGRAM...: perftest's one line of figures
raw() {
	local fig=$1 col=$2 factor=$3 port tries
	shift 3
	# It gives up, or crashes, where a connection takes long.
	for tries in 1 2 3 4; do
		new_port port
		on "$PEER" start "raw$port" "$@" -R -F -p "$port"
		on "$PEER" wait_rdma_port "$port" || fail "$1: server"
		timeout 100 "$@" -R -F -p "$port" "$P4" >"$TMP/out" 2>&1 &&
			on "$PEER" finish "raw$port" 30 && break
		on "$PEER" stop "raw$port" KILL
	done || fail "$*: $(tail -n 5 "$TMP/out")"
	figure "$fig" raw \
		"$(awk -v c="$col" -v f="$factor" \
		'/^ *#bytes/ { head = 1; next } head && $1 > 0 { print $c * f; exit }' "$TMP/out")"
}

# ib_send_lat: bytes iterations min max typical average; ib_write_bw: bytes iterations peak
# average, in 2^20 bytes/s.
raw_verbs() {
	# shellcheck disable=SC2086  # a flag or none
	case $1 in
	rtt_64) raw rtt_64 6 2 ib_send_lat $EVENTS -s 64 -n 1000 ;;
	stream_1048576) raw stream_1048576 4 1.048576 ib_write_bw -s 65536 -n 300 ;;
	stream_64) raw stream_64 4 1.048576 ib_write_bw -s 64 -n 5000 ;;
	esac
}

# Of both ends, as their libraries say it at their end.
work_requests() {
	{ cat "$TMP/shim.log"; [[ $PEER == a ]] || on "$PEER" cat "$TMP/shim.log"; } |
		sed -n 's/.*link [0-9]*: \([0-9]*\) work requests.*/\1/p' |
		awk '{ n += $1 } END { print n + 0 }'
}

for ((round = 1; round <= ROUNDS; round++)); do
	for f in $FIGURES; do
		earn="earn_bytes 0"
		[[ $f != connections ]] || earn=
		both policy "$rules" "$earn"
		sockets tcp "$f"
		raw_verbs "$f"
		sockets rsockets "$f" rsockets
		[[ -n $SHIM ]] || continue
		both rm -f "$TMP/shim.log"
		sockets shim "$f" shim
		counters >"$TMP/out"
		figure "$f" share "$(awk '{ print $4 + $8 ? 100 * $8 / ($4 + $8) : 0 }' "$TMP/out")"
		# Of bytes that one end sends and the other gets; on one host both are counted.
		[[ $f != stream_64 ]] ||
			figure "$f" wrs \
			"$(awk -v n="$(work_requests)" -v h="$HOSTS" \
			'$8 { print n / ($8 / (h == 1 ? 2 : 1)) * 1e6 }' "$TMP/out")"
	done
done

echo "$DEVICE, $HOSTS host(s), $ROUNDS rounds"
awk -v order="$FIGURES" '
{ v[$1, $2, ++n[$1, $2]] = $3 }
function median(f, m,   i, j, k, t, a) {
	k = n[f, m]
	if (!k) return 0
	for (i = 1; i <= k; i++) a[i] = v[f, m, i] + 0
	for (i = 2; i <= k; i++) for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j];
		a[j] = a[j - 1]; a[j - 1] = t }
	return k % 2 ? a[(k + 1) / 2] : (a[k / 2] + a[k / 2 + 1]) / 2
}
function least(f, m,   i, x) {
	x = v[f, m, 1]
	for (i = 2; i <= n[f, m]; i++) if (v[f, m, i] + 0 < x + 0) x = v[f, m, i]
	return x
}
# For times less is better, for rates more.
function ratio(f, m,   x, y) {
	x = median(f, m); y = median(f, "shim")
	if (!x || !y) return "-"
	return sprintf("%.2f", f ~ /^rtt/ ? x / y : y / x)
}
END {
	printf "%-16s %10s %10s %10s %10s  %-5s %10s %10s %10s %8s\n", "figure", "TCP",
		"raw verbs", "rsockets", "shim", "unit", "shim/TCP", "shim/raw", "shim/rsock",
			"by RDMA"
	k = split(order, f, " ")
	for (i = 1; i <= k; i++)
		printf "%-16s %10.2f %10.2f %10.2f %10.2f  %-5s %10s %10s %10s %7.0f%%\n",
			f[i], median(f[i], "tcp"), median(f[i], "raw"),
			median(f[i], "rsockets"), median(f[i], "shim"),
			f[i] ~ /^rtt/ ? "us" : f[i] ~ /^conn/ ? "/s" : "MB/s",
			ratio(f[i], "tcp"), ratio(f[i], "raw"), ratio(f[i], "rsockets"),
			least(f[i], "share")
	if (median("stream_64", "wrs"))
		printf "work requests for 1 MB in messages of 64 bytes: %.0f\n", median("stream_64",
			"wrs")
}' "$TMP/figures"
