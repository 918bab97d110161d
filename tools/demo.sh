#!/bin/bash
# demo.sh (make demo): what the library does for an unmodified program. redis-benchmark against
# redis-server, on plain TCP and with the library preloaded into both, interleaved; then a table,
# and what rdmastat says. Under two minutes. Environment: B build directory, SHIM the library,
# ROUNDS (2), SECS per measurement (2).
set -uo pipefail
TOP=$(cd "$(dirname "$0")/.." && pwd)
cd "$TOP" || exit 1
B=${B:-build}
SHIM=${SHIM:-$B/librdmashim.so}
ROUNDS=${ROUNDS:-2}
SECS=${SECS:-2}
BUSY_AFTER=45	# seconds, where a quiet machine takes 40 for all
[[ -e $SHIM ]] || { echo "no $SHIM: run make first" >&2; exit 1; }
SHIM=$(realpath "$SHIM")
tests/scripts/deps.sh demo || exit 1

TMP=$(mktemp -d /tmp/rdmashim-demo.XXXXXX)
SERVERS=()
cleanup() {
	if ((${#SERVERS[@]})); then
		kill -TERM "${SERVERS[@]}" 2>/dev/null
		for _ in {1..30}; do kill -0 "${SERVERS[@]}" 2>/dev/null || break; sleep 0.1; done
		kill -KILL "${SERVERS[@]}" 2>/dev/null
	fi
	wait 2>/dev/null
	rm -rf "$TMP"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# The machine's own policy file must not decide what is shown here.
: >"$TMP/policy.conf"
export RDMASHIM_CONF=$TMP/policy.conf RDMASHIM_STAT_DIR=$TMP/stat
mkdir -m 700 "$TMP/stat"
# with tcp|shim CMD...
with() {
	local how=$1
	shift
	if [[ $how == shim ]]; then LD_PRELOAD=$SHIM exec "$@"; else exec "$@"; fi
}

start_server() {	# tcp|shim: sets PORT_tcp or PORT_shim
	local how=$1 port try pid
	for try in 1 2 3 4 5; do
		port=$((20000 + RANDOM % 12000))
		(with "$how" redis-server --port $port --bind 127.0.0.1 --save "" --appendonly no \
			--dir "$TMP" >"$TMP/server.$how.log" 2>&1) &
		pid=$!
		for ((i = 0; i < 50; i++)); do
			if grep -q PONG <<<"$(redis-cli -p $port ping 2>/dev/null)" &&
				kill -0 $pid 2>/dev/null; then
				SERVERS+=("$pid")
				printf -v "PORT_$how" %s $port
				return
			fi
			kill -0 $pid 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL $pid 2>/dev/null
	done
	echo "redis-server does not start ($try tries):" >&2
	cat "$TMP/server.$how.log" >&2
	exit 1
}

# rate HOW COMMAND PIPELINE REQUESTS: requests per second
rate() {
	local port=PORT_$1
	(with "$1" redis-benchmark -p "${!port}" -t "$2" -P "$3" -n "$4" -c 50 --csv) \
		2>>"$TMP/client.log" |
		tr -d '"' | awk -F, -v t="$2" 'tolower($1) == t { print $2 }'
}

# measure HOW COMMAND PIPELINE REQUESTS: r, and n_HOW, the requests for the next time
measure() {
	r=$(rate "$@")
	[[ -n $r ]] || { echo "redis-benchmark failed:" >&2; tail "$TMP/client.log" \
		"$TMP/server.$1.log" >&2; exit 1; }
	declare -g "n_$1=$(awk -v r="$r" -v s="$SECS" 'BEGIN { printf "%d", r * s + 1 }')"
}

echo "starting two redis-servers: one on plain TCP, one under the library"
start_server tcp
start_server shim

TESTS=("set 1" "get 1" "set 16" "get 16")
name() { echo "$1 $2" | awk '{ print toupper($1) ($2 == 1 ? "" : " -P " $2) }'; }
for t in "${TESTS[@]}"; do
	# shellcheck disable=SC2086
	set -- $t
	# How many requests fill the time, on either side; a warm-up as well. Each round says it
	# for the next, so that a machine that becomes busy meanwhile does not make it long.
	for how in tcp shim; do
		measure $how "$1" "$2" $((20000 * $2))
	done
	for ((round = 1; round <= ROUNDS; round++)); do
		((round > 1 && SECONDS > BUSY_AFTER)) &&
			{ echo "(a busy machine: no further round)"; break; }
		for how in tcp shim; do
			n=n_$how
			measure $how "$1" "$2" "${!n}"
			printf '%-10s round %d of %d  %-4s %10.0f requests/s\n' \
				"$(name "$1" "$2")" $round "$ROUNDS" $how "$r"
			echo "$1 $2 $how $r" >>"$TMP/rates"
		done
	done
done

echo
awk '
{ k = toupper($1) ($2 == 1 ? "" : " -P " $2); if (!(k in seen)) { seen[k] = 1;
	order[++n] = k } sum[k, $3] += $4; cnt[k, $3]++ }
END {
	printf "%-12s %14s %14s %8s\n", "test", "TCP req/s", "shim req/s", "ratio"
	for (i = 1; i <= n; i++) {
		k = order[i]; a = sum[k, "tcp"] / cnt[k, "tcp"]; b = sum[k, "shim"] / cnt[k, "shim"]
		printf "%-12s %14.0f %14.0f %8.2f\n", k, a, b, b / a
	}
}' "$TMP/rates"
echo
if [[ -x $B/rdmastat ]]; then
	echo "rdmastat:"
	"$B/rdmastat" --all
fi
