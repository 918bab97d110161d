# shellcheck shell=bash
# lib.sh - sourced by check.sh and bench.sh, which need real GPUs. B: the build directory; SHIM
# the library.
set -uo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
B=${B:-build}
SHIM=$(realpath "${SHIM:-$B/librdmashim.so}")
TMP=$(mktemp -d) || exit 1
trap '[[ -n ${KEEP-} ]] || rm -rf "$TMP"' EXIT
GPUS=$(nvidia-smi -L 2>/dev/null | wc -l)
if ((GPUS == 0)); then
	echo "no GPU here"
	exit 77
fi
# With its libraries, where make gpu-run has put them. On a copy: it sweeps up after those that
# have ended.
rdmastat() {
	rm -rf "$TMP/copy"
	cp -a "$TMP/stat" "$TMP/copy"
	LD_LIBRARY_PATH=$(realpath "$B")/lib:${LD_LIBRARY_PATH-} RDMASHIM_STAT_DIR=$TMP/copy \
		"$B/rdmastat" "$@" 2>/dev/null
}
FAILED=0
fail() { echo "FAILED: $*"; FAILED=1; }

# under LANE CMD...: with the GPU path off, eager or deferred, or bare; blind: deferred, and
# kernels see no host buffers.
under() {
	local lane=$1 alias=any
	shift
	[[ $lane != blind ]] || { lane=deferred alias=none; }
	if [[ $lane == bare ]]; then
		timeout "${LIMIT:-120}" "$@"
		return
	fi
	rm -rf "$TMP/stat" "$TMP/log"
	mkdir -m 700 "$TMP/stat"
	printf '%s\n' "device $lane" "alias $alias" "log_level ${LEVEL:-3}" "overflow 1s" \
		"device_shared_min ${SHARED_MIN-0}" ${MORE+"$MORE"} >"$TMP/conf"
	timeout "${LIMIT:-120}" env LD_PRELOAD="$SHIM" RDMASHIM_CONF="$TMP/conf" \
		RDMASHIM_STAT_DIR="$TMP/stat" RDMASHIM_LOG_FILE="$TMP/log" "$@"
}

# deferred: copies and receives that were put off in the last run, all processes together.
deferred() {
	sed -n 's/.*GPU path: \([0-9]*\) copies and receives .* deferred;.*/\1/p' "$TMP/log" |
		awk '{ n += $1 } END { print n + 0 }'
}

# taken: bytes that came from device memory, and bytes of copies to the device that did not come
# from the host.
taken() {
	rdmastat --json --all | python3 -c 'import json, sys
c = json.load(sys.stdin)["total"]["counters"]
print(c["copy_device"], c["device_to_device"], c["copy_direct"])'
}

# staged: bytes by device memory and the reasons of the rest, all call sites together.
staged() {
	rdmastat staging --json --all | python3 -c 'import json, sys
s = json.load(sys.stdin)["staging"]
why = {}
for x in s:
	for w in x["why_not"]:
		why[w["reason"]] = why.get(w["reason"], 0) + w["bytes"]
total = sum(x["bytes"] for x in s) or 1
print("%.1f %% of %d MB copied at %d places by device memory; %s" % (
	100 * sum(x["taken"] for x in s) / total, total >> 20, len(s),
	", ".join("%s %.1f %%" % (k, 100 * v / total) for k, v in sorted(why.items(),
		key=lambda i: -i[1]))))'
}
# What a user sees of the last run, the largest places.
staging_table() { rdmastat staging --all | head -n "${1:-24}" | cut -c 1-220; }
