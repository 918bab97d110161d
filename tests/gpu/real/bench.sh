#!/bin/bash
# bench.sh - what the device lane is worth on real GPUs: make bench-gpu. Bare, with the shim and the lane off, with it.
. "$(dirname "$0")/lib.sh"

row() {
	local what=$1 lane
	shift
	printf '%-34s' "$what"
	for lane in bare off truthful; do
		printf '%-44s' "$(under $lane "$@" 2>&1 | tail -n 1)"
	done
	read -r dev d2d direct < <(taken)
	echo "device $dev, d2d $d2d, direct $direct"
}
printf '%-34s%-44s%-44s%-44s%s\n' "" bare "lane off" "lane truthful" "bytes with the lane"
row "64 MiB, pinned" "$B/gpu/pipe" stream 67108864 100 pinned
row "64 MiB, pageable" "$B/gpu/pipe" stream 67108864 40 pageable
row "4 MiB, pinned" "$B/gpu/pipe" stream 4194304 500 pinned
row "1 MiB, pinned" "$B/gpu/pipe" stream 1048576 1000 pinned
row "256 KiB, pinned" "$B/gpu/pipe" stream 262144 2000 pinned
row "4 KiB there and back, pinned" "$B/gpu/pipe" round 4096 5000 pinned
if python3 -c 'import torch' 2>/dev/null; then
	row "torch gloo, 64 MiB" python3 "$HERE/../gloo.py" bench 64 20
fi
