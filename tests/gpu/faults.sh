#!/bin/bash
# Calls of the driver that the library makes for itself fail, at both ends: the first use, the
# second ... and all of them. The program under it (pair.c) must not notice: every call of its own
# works, and every byte is right. And a call that fails for ever does not make the library take
# ever more device memory, streams, events or descriptors.
#	faults.sh			each call's first use, and all of them
#	faults.sh --table [CALL...]	each use, until a run has fewer (beyond the 8th not each),
#					and all (some minutes); one that is never used is wrong
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
TABLE=
[[ ${1-} == --table ]] && { TABLE=1; shift; }
export STANDIN_DELAY=20
offset=$(nm "$SHIM" 2>/dev/null | awk '$3 == "cu" { print $1 }')
[[ -n $offset ]] || skip "the library has no symbols"
policy "device eager" "device_memory 8M" "earn_bytes 0" "overflow 10s" "log_level 3"
calls=${*:-$(sed -n 's/.*USE(\(cu[A-Za-z0-9_]*\),.*/\1/p' "$TOP/shim/cuda/cuda_api.h")}
# What undoes something is called where another call has failed; and some need a program that does
# more (pair.c).
also() { case $1 in cuMemFree*) echo cuDeviceGetUuid ;; cuIpcCloseMemHandle) echo \
	cuMemGetAddressRange_v2 ;; esac; }
error_of() { case $1 in cuMemAlloc*) echo 2 ;; *) echo 999 ;; esac; }
ROUNDS=${ROUNDS:-30}
runs=0 none='' wrong=0

# A copy that the library makes in place of the program's, or waits for: an error is what the
# program's own could have had, and it is told. And the one from the device to the buffer of a
# receive whose bytes have left the sender: docs/limits.md, the connection is reset.
told() {
	[[ ($1 == cuMemcpy* || $1 == cuStreamSynchronize) && $FAILED -gt 0 ]] || return 1
	grep -q 'd\.cuMemcpy[A-Za-z0-9]*(.*: CUDA error 999' "$TMP/client.log" ||
		{ grep -q 'copy to the buffer: CUDA error 999' "$TMP/shim.$MODE" &&
		grep -q 'Connection reset by peer' "$TMP/client.log"; }
}

# faulty CALL FROM TO ROUNDS: SEEN and FAILED uses, HELD what the two ends have at the end. False:
# wrong, and said.
faulty() {
	begin_mode "$1-$2-$3"
	rm -f "$TMP/counts"
	# shellcheck disable=SC2155  # without a row it is no fault, and that is seen
	export STANDIN_FAULT="$1 $2 $3 $(error_of "$1")" STANDIN_ALSO STANDIN_TABLE=$offset \
		STANDIN_COUNTS=$TMP/counts AROUND=1
	STANDIN_ALSO=$(also "$1")
	gated "$B/gpu/pair" linked "$4" "${SEED:-7}" 524288
	local status=$?
	runs=$((runs + 1))
	read -r SEEN FAILED \
		HELD < <(awk \
		'{ s += $2; f += $3; m += $4; st += $5; e += $6; d += $7 } END {
			print s, f, m / 1048576, st, e, d }' "$TMP/counts")
	((status == 0)) && return 0
	told "$1" && return 0
	say "status $status: $(tail -n 4 "$TMP/client.log" "$OUT")"
	wrong=$((wrong + 1))
	return 1
}

# Three times the rounds must not leave more behind, but for what a pool may grow by.
bounded() {
	local a b
	faulty "$1" 1 0 "$ROUNDS" || return
	read -ra a <<<"$HELD"
	((FAILED > 0)) || return 0
	faulty "$1" 1 0 $((3 * ROUNDS)) || return
	read -ra b <<<"$HELD"
	[[ -n ${VERBOSE-} ]] && say "held after $ROUNDS rounds ${a[*]}, after three times as many" \
		"${b[*]}"
	awk -v a="${a[*]}" -v b="${b[*]}" \
		'BEGIN { split(a, x); split(b, y); exit y[1] > x[1] + 16 || y[2] > x[2] + 4 ||
			y[3] > x[3] + 40 || y[4] > x[4] + 6 }' && return
	say "MiB, streams, events, descriptors at the end: ${a[*]} after $ROUNDS rounds, ${b[*]}" \
		"after three times as many"
	wrong=$((wrong + 1))
}

for call in $calls; do
	if [[ -n $TABLE ]]; then
		for ((n = 1; n < 3000; n = n < 8 ? n + 1 : n * 5 / 4)); do
			faulty "$call" "$n" "$n" "$ROUNDS" || continue
			((FAILED)) || break
		done
		bounded "$call"
	else
		faulty "$call" 1 0 "$ROUNDS" && ((SEEN)) && faulty "$call" 1 1 "$ROUNDS"
	fi
	((SEEN)) || { none="$none $call"; [[ -z $TABLE ]] || wrong=$((wrong + 1)); }
	[[ -n $TABLE || -n ${VERBOSE-} ]] && say "$SEEN uses"
done
MODE=all
say "$runs runs, $wrong wrong; never used here:${none:- none}"
exit $((wrong > 0))
