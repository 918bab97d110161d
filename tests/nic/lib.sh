# shellcheck shell=bash
# lib.sh - sourced by the tests in tests/nic: a simulated device of their own.
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$TOP/tests/scripts/waits.bash"
B=$(realpath "${B:-$TOP/build}")
# A sanitizer looks at the library under test; perftest would not bear it in the device's libraries.
NIC=${SAN:+$TOP/build}
NIC=${NIC:-$B}/nic
[[ -x $NIC/nicd ]] || { echo "no device: make $NIC/nicd"; exit 77; }
DIR=$(mktemp -d /dev/shm/simnic.XXXXXX) || exit 1
TMP=$(mktemp -d)
PIDS=()
export SIMNIC_DIR=$DIR

fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "$*"; exit 77; }
say() { echo "$*"; }

# These and all that they started.
tree() {
	local p
	for p in "$@"; do
		echo "$p"
		# shellcheck disable=SC2046
		tree $(pgrep -P "$p")
	done
}

cleanup() {
	local rc=$?
	trap '' INT TERM
	# shellcheck disable=SC2046
	((${#PIDS[@]} == 0)) || kill -KILL $(tree "${PIDS[@]}") 2>/dev/null
	wait 2>/dev/null
	rm -rf "$DIR" "$TMP"
	exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# device [-r] [-t ENGINES] [KNOB=VALUE]...: starts it.
device() {
	local opts=()
	while [[ ${1-} == -* ]]; do
		opts+=("$1")
		[[ $1 == -t ]] && { opts+=("$2"); shift; }
		shift
	done
	: >"$TMP/nicd.log" # here: who looks at once would find what an earlier one said
	"$NIC/nicd" "${opts[@]}" "$DIR" "$@" >"$TMP/nicd.log" 2>&1 &
	NICD_PID=$!
	PIDS+=("$NICD_PID")
	within 10 grep -q ready "$TMP/nicd.log" || fail "no device: $(cat "$TMP/nicd.log")"
}
ctl() { "$NIC/nicd" "$DIR" ctl "$@"; }

# on NODE CMD...: with the simulated device's libraries in the real ones' place.
on() {
	local node=$1
	shift
	SIMNIC_NODE=$node LD_LIBRARY_PATH=$NIC "$@"
}

# The device is taken away, so that another one can be made.
no_device() {
	kill -0 "$NICD_PID" 2>/dev/null || fail "the device's process died: $(cat "$TMP/nicd.log")"
	kill "$NICD_PID"
	wait "$NICD_PID" 2>/dev/null
	true
}

# free_port VAR: a port of this lane on which nobody listens.
free_port() {
	local p
	while :; do
		lane_port p
		listening "$p" || break
	done
	printf -v "$1" %s "$p"
}

# ---- the library under test, between nodes

# library [LINE OF POLICY]...: of one host it would take shared memory.
library() {
	[[ -e ${SHIM:-} ]] || skip "no library to test"
	SHIM=$(realpath "$SHIM")
	case ${SAN-} in
	address) PRELOAD=$(gcc -print-file-name=libasan.so):$SHIM ;;
	undefined) PRELOAD=$(gcc -print-file-name=libubsan.so):$SHIM ;;
	thread) PRELOAD=$SHIM:$(gcc -print-file-name=libtsan.so) ;;
	*) PRELOAD=$SHIM ;;
	esac
	LD_PRELOAD=$PRELOAD /bin/true ||
		skip "the library does not load with this sanitizer's runtime"
	export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99 TSAN_OPTIONS=exitcode=0
	export RDMASHIM_CONF=$TMP/policy.conf RDMASHIM_LOG_FILE=$TMP/log RDMASHIM_STAT_DIR=$TMP/stat
	mkdir -m 700 "$TMP/stat"
	free_port PORT
	printf '%s\n' "use rdma both *:*" "discovery_port $PORT" "rdma_networks 127.0.0.1/32" \
		"discovery 15s" "rdma_retry 50ms" "log_level 2" "$@" >"$RDMASHIM_CONF"
	"$B/rdmastat" policy check "$RDMASHIM_CONF" >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
	: >"$TMP/log"
}

preloaded() {
	local node=$1
	shift
	on "$node" timeout 150 env LD_PRELOAD="$PRELOAD" "$@"
}
by_rdma() {
	"$B/rdmastat" --json --all |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["total"]["bytes"]["rdma"])'
}
rdma_moves() { (($(by_rdma) > $1)); }
paths_up() { grep -c 'RDMA path up' "$TMP/log"; }

# echoes [CONNECTIONS [BYTES]]: a server on a ($TMP/pid) and a client on b, echo.py; then turns N
# makes N rounds, and $(longest) is the longest of them in ms.
echoes() {
	free_port PORT
	preloaded a python3 "$TOP/tests/nic/echo.py" listen "$PORT" >"$TMP/pid" &
	PIDS+=($!)
	disown # nobody wants to hear of its end
	within 20 listening "$PORT" || fail "no server"
	rm -f "$TMP/to"
	mkfifo "$TMP/to"
	preloaded b python3 "$TOP/tests/nic/echo.py" connect "$PORT" "$@" <"$TMP/to" \
		>"$TMP/times" 2>"$TMP/client" &
	PIDS+=($!)
	disown
	exec 3>"$TMP/to"
	TURNS=0
}
end_echoes() {
	exec 3>&-
	within 20 eval '! listening "$PORT"' || fail "the echoes do not end"
}
answered() { (($(wc -l <"$TMP/times") == TURNS)); }
longest() { tail -n 1 "$TMP/times"; }
turns() {
	TURNS=$((TURNS + 1))
	echo "$1" >&3
	within 60 answered || fail "no answer: $(tail -n 20 "$TMP/client" "$TMP/log")"
}
# More bytes than so many have gone by RDMA, if some more rounds do.
by_rdma_after() {
	turns 200
	rdma_moves "$1"
}
back_on_rdma() {
	local bytes
	bytes=$(by_rdma)
	within 30 by_rdma_after $((bytes + 20000)) ||
		fail "nothing by RDMA: $(tail -n 20 "$TMP/log")"
}
