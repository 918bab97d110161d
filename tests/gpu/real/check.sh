#!/bin/bash
# check.sh - the GPU path on real GPUs: make check-gpu. ROUNDS (500) of random programs for each
# way to the driver.
. "$(dirname "$0")/lib.sh"

# Half of the rounds spoil buffers so often that the GPU path is given up again and again; in the
# other half it is at work. At their beginning it always must be.
for lane in eager deferred; do
	for how in linked dlsym address address1 thread; do
		for calm in "" CALM=1; do
			seed=$RANDOM
			# shellcheck disable=SC2086 # one word, or none
			out=$(MORE="force_defer on" under $lane env $calm "$B/gpu/pair" $how \
				"$((${ROUNDS:-500} / 2))" $seed 2>&1) ||
				fail "$lane, pair $how, seed $seed: $out"
			read -r dev d2d direct < <(taken)
			echo "$lane, pair $how${calm:+, calm}: ${out##*$'\n'}; from device memory" \
				"$dev, to the device without the host $d2d, direct $direct," \
				"deferred $(deferred)"
			((dev > 0 && d2d > 0)) || { fail "the GPU path was not used"; staged; \
				staging_table; grep -h "GPU path" "$TMP/log"; }
		done
	done
	out=$(MORE="force_cut_every 5ms" under $lane "$B/gpu/pair" address 200 $RANDOM 2>&1) ||
		fail "$lane, pair, cut over and over: $out"
	echo "$lane, pair, cut over and over: ${out##*$'\n'}"
done

# What a link between hosts would use, were there a NIC.
out=$("$B/gpu/reach" 2>&1) || fail "what the driver offers RDMA devices: $out"
echo "${out##*$'\n'}"

# Receivers on the same device, without a device, without the library.
for lane in eager deferred; do
	for far in same plain bare; do
		out=$(under $lane env FAR=$far "$B/gpu/pair" linked "$((${ROUNDS:-500} / 5))" \
			$RANDOM 2>&1) || fail "$lane, receiver $far: $out"
		read -r dev d2d direct < <(taken)
		echo "$lane, receiver $far: ${out##*$'\n'}; from device memory $dev, to the" \
			"device without the host $d2d"
	done
done

# life NAME WHY CMD...: every block arrives; WHY must be among the reasons ("": none need be, -:
# the GPU path must not have been used).
life() {
	local name=$1 why=$2 out
	shift 2
	LIMIT=60
	out=$(under eager "$@" 2>&1) || { fail "$name: $out"; return; }
	staged >"$TMP/staged"
	echo "$name: ${out##*$'\n'}; $(<"$TMP/staged")"
	[[ -z $why ]] || grep -q -- "$why" "$TMP/staged" "$TMP/log" ||
		fail "$name: nothing says $why"
}
for how in reset release destroy; do
	life "context $how" "ends a CUDA context" "$B/gpu/life" $how
done
life "stream capture" device-capture "$B/gpu/life" capture
life "no device memory" device-memory "$B/gpu/life" memory
life "nothing special" "" "$B/gpu/life" plain
if FAR_PIDNS=1 under bare "$B/gpu/life" plain >"$TMP/out" 2>&1; then
	life "receiver in another PID namespace" device-not-taken env FAR_PIDNS=1 "$B/gpu/life" \
		plain
else
	echo "receiver in another PID namespace: not tried, the driver itself does not start" \
		"there: $(tail -n 1 "$TMP/out")"
fi
((GPUS < 2)) || life "each end sees its own GPU only" "" env CUDA_VISIBLE_DEVICES=0 FAR_VISIBLE=1 \
	"$B/gpu/life" plain

# killed WHO: one end of pair is killed while the GPU path is at work; the other must end soon,
# and not hang.
killed() {
	local sender receiver rc job
	rm -f "$TMP/log"
	under eager "$B/gpu/pair" linked 1000000 $RANDOM >"$TMP/out" 2>&1 &
	job=$!
	for ((i = 0; i < 200; i++)); do
		grep -sq "GPU path: .* shared" "$TMP/log" && break
		sleep 0.1
	done
	sender=$(pgrep -f "gpu/pair linked 1000000 [0-9]+$" | head -n 1)
	while [[ -n $sender && $(ps -o comm= -p "$sender") != pair ]]; do
		sender=$(pgrep -P "$sender" | head -n 1)
	done
	receiver=$([[ -n $sender ]] && pgrep -P "$sender" | head -n 1)
	[[ -n $receiver ]] || { fail "killed $1: pair did not run: $(<"$TMP/out")"; return; }
	sleep 1
	if [[ $1 == receiver ]]; then kill -KILL "$receiver"; else kill -KILL "$sender"; fi
	for ((i = 0; i < 200; i++)); do
		kill -0 "$sender" 2>/dev/null || kill -0 "$receiver" 2>/dev/null || break
		sleep 0.1
	done
	wait "$job"
	rc=$?
	((i < 200)) || fail "killed $1: the other end goes on"
	grep -q differs "$TMP/out" && fail "killed $1: $(<"$TMP/out")"
	echo "killed $1: the other end ended after $((i * 100)) ms, status $rc"
}
killed receiver
killed sender

# gated LANE CMD...: as under, but the rounds begin when both ends have a link: a few are over
# before that.
gated() {
	local lane=$1 job n
	shift
	rm -f "$TMP/gate" "$TMP/log"
	under "$lane" env GATE="$TMP/gate" "$@" &
	job=$!
	for ((i = 0; i < 300; i++)); do
		n=$(grep -sc "bound to slot" "$TMP/log")
		((${n:-0} < 2)) && kill -0 "$job" 2>/dev/null || break
		sleep 0.1
	done
	: >"$TMP/gate"
	wait "$job"
}
if command -v compute-sanitizer >/dev/null; then
	for tool in memcheck racecheck; do
		LIMIT=200
		out=$(gated eager env CALM=1 compute-sanitizer --tool $tool --target-processes all \
			--error-exitcode 9 "$B/gpu/pair" linked 40 $RANDOM 2>&1) ||
			fail "compute-sanitizer $tool: $(tail -n 20 <<<"$out")"
		read -r dev d2d direct < <(taken)
		echo "compute-sanitizer $tool:" \
			"$(grep -m 1 " SUMMARY: " <<<"$out"); from device memory $dev"
		((dev > 0)) || fail "compute-sanitizer $tool: the GPU path was not used"
	done
fi
if python3 -c 'import torch' 2>/dev/null; then
	LIMIT=200
	out=$(under eager python3 "$HERE/../gloo.py" check 2>&1) || fail "gloo: $out"
	read -r dev d2d direct < <(taken)
	echo "gloo:" \
		"$(tail -n 2 <<<"$out" |
		tr '\n' ' '); from device memory $dev, to the device without the host $d2d, direct \
$direct"
	staging_table
	((dev > 0)) || fail "gloo: the GPU path was not used"
fi
((FAILED == 0)) && echo "all right on $GPUS GPUs"
exit "$FAILED"
