#!/bin/bash
# bench.sh - what the GPU path is worth on real GPUs: make bench-gpu. Bare, with the library and
# the GPU path off, with it, with copies deferred (alias none). ONLY="unsent nccl": only rows
# whose names match one of these words.
SHARED_MIN=3M	# as users have it
. "$(dirname "$0")/lib.sh"

wanted() {
	local w
	[[ -n ${ONLY-} ]] || return 0
	for w in $ONLY; do
		[[ $1 == *$w* ]] && return 0
	done
	return 1
}
row() {
	local what=$1 lane
	shift
	wanted "$what" || return 0
	printf '%-34s' "$what"
	for lane in bare off eager blind; do
		printf '%-34s' "$(under $lane "$@" 2>&1 | tail -n 1)"
	done
	read -r dev d2d direct < <(taken)
	echo "device $dev, d2d $d2d, direct $direct, deferred $(deferred)"
}
# As row, but five runs of each in turn: the median, the least and the most. For what depends on
# which CPUs the two processes happen to be on.
turns() {
	local what=$1 lane
	shift
	wanted "$what" || return 0
	printf '%-34s' "$what"
	for _ in 1 2 3 4 5; do
		for lane in bare off eager blind; do
			echo "$lane $(under $lane "$@" 2>&1 | tail -n 1)"
		done
	done >"$TMP/rounds"
	for lane in bare off eager blind; do
		printf '%-34s' \
			"$(sed -n "s/^$lane //p" "$TMP/rounds" | sort -n |
			awk '{ v[NR] = $1; unit = $2 } END { printf "%s %s (%s to %s)", v[3],
				unit, v[1], v[5] }')"
	done
	echo "five runs each, in turn"
}
# A program that has a connection but sends none of what it copies: many short runs in turn, for
# the clock of a device wanders by more than what is looked for. Each run tells its time, and how
# much more its calls take than the driver's own in the same process, in turn. Bare, that is what
# such a figure is good for.
unsent() {
	local lane
	wanted "unsent $1" || return 0
	for _ in {1..15}; do
		for lane in bare off eager; do
			under $lane "$B/gpu/pipe" unsent "$2" "$3" "$4" 2>&1 |
				sed -n 's/ us \(.*\) %$/ \1/p'
		done | xargs
	done >"$TMP/rounds"
	printf '%-34s' "unsent: $1"
	python3 - "$TMP/rounds" <<'P'
import statistics, sys
runs = [[float(x) for x in line.split()] for line in open(sys.argv[1])]
for lane in range(3):
    print(("%.1f us" % statistics.median(r[2 * lane] for r in runs)).ljust(34), end="")
text = []
for lane, name in enumerate(("bare", "off", "eager")):
    q = statistics.quantiles((r[2 * lane + 1] for r in runs), n=4)
    text.append("%s: calls %+.2f %% (half of the runs %+.2f to %+.2f)" % (name, q[1], q[0], q[2]))
    if lane:
        q = statistics.quantiles((100 * (r[2 * lane] / r[0] - 1) for r in runs), n=4)
        text[-1] += ", whole %+.2f %% (%+.2f to %+.2f)" % (q[1], q[0], q[2])
print("; ".join(text))
P
}
# gloo.py's two figures under each GPU path, the medians of five rounds in turn, and how many
# times bare they are. Long enough for what the GPU path has to learn (that the sums are written
# where was copied to) to be a small part.
gloo_in_turn() {
	local lane k=0
	wanted "$1" || return 0
	printf '%-34s' "$1"
	for _ in 1 2 3 4 5; do
		for lane in bare off eager blind; do
			echo "$lane" \
				"$(PORT=$((29600 + k++)) under $lane python3 "$HERE/../gloo.py" \
				bench 64 100 2>/dev/null |
				sed -n '
			s/^broadcast \([0-9.]*\) GB.*allreduce \([0-9.]*\) GB.*/\1 \2/p')"
		done
	done >"$TMP/rounds"
	python3 - "$TMP/rounds" <<'P'
import statistics, sys
all = {}
for line in open(sys.argv[1]):
    lane, b, a = line.split()		# a run that printed nothing is an error, here
    all.setdefault(lane, []).append((float(b), float(a)))
mid = {lane: [statistics.median(x) for x in zip(*runs)] for lane, runs in all.items()}
bare = mid["bare"]
for lane in "bare", "off", "eager", "blind":
    b, a = mid[lane]
    print(("%.1f, %.2f GB/s" % (b, a) + ("" if lane == "bare" else " (%.1fx, %.2fx)" % (b / bare[0],
        a / bare[1]))).ljust(34), end="")
print("five runs each, in turn")
P
}
printf '%-34s%-34s%-34s%-34s%-34s%s\n' "" bare "GPU path off" "lane eager" "lane deferred" \
	"bytes with that"
row "64 MiB, pinned" "$B/gpu/pipe" stream 67108864 100 pinned
row "64 MiB, pageable" "$B/gpu/pipe" stream 67108864 40 pageable
row "4 MiB, pinned" "$B/gpu/pipe" stream 4194304 500 pinned
turns "1 MiB, pinned" "$B/gpu/pipe" stream 1048576 40000 pinned
turns "1 MiB, pinned, not looked at" "$B/gpu/pipe" flow 1048576 40000 pinned
row "256 KiB, pinned" "$B/gpu/pipe" stream 262144 2000 pinned
row "64 KiB, pinned" "$B/gpu/pipe" stream 65536 8000 pinned
row "64 KiB there and back, pinned" "$B/gpu/pipe" round 65536 5000 pinned
turns "4 KiB there and back, pinned" "$B/gpu/pipe" round 4096 5000 pinned
unsent "128 KiB, pinned" 131072 8000 pinned
unsent "1 MiB, pinned" 1048576 3000 pinned
unsent "1 MiB, pageable" 1048576 1000 pageable
row "ring allreduce, no GPU" "$B/bench/allreduce" 64 60
MORE="ring_size 4M" row "ring allreduce, ring_size 4M" "$B/bench/allreduce" 64 60
row "blocks of 512 KiB, no GPU" "$B/bench/chunks" 2 512 8000
MORE="ring_size 4M" row "blocks of 512 KiB, ring_size 4M" "$B/bench/chunks" 2 512 8000
if python3 -c 'import torch' 2>/dev/null; then
	row "torch gloo, 64 MiB" python3 "$HERE/../gloo.py" bench 64 20
	wanted gloo && staging_table
	MORE="ring_size 4M" row "torch gloo, 64 MiB, ring_size 4M" python3 "$HERE/../gloo.py" \
		bench 64 20
	gloo_in_turn "gloo in turn"
	MORE=$'copy_threads 4\nring_size 4M' gloo_in_turn "gloo in turn, copy_threads 4"
	sockets=(env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_IB_DISABLE=1 \
		NCCL_SOCKET_IFNAME=lo)
	row "torch nccl over sockets, 64 MiB" "${sockets[@]}" python3 "$HERE/../gloo.py" bench 64 \
		20 nccl
	MORE="ring_size 4M" row "torch nccl over sockets, ring_size 4M" "${sockets[@]}" python3 \
		"$HERE/../gloo.py" bench 64 20 nccl
fi
