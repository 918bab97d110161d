# shellcheck shell=bash
# lib.sh - sourced by the tests in tests/apps. Each test runs its job in four modes:
#	bare		no library anywhere: what is right
#	both		both ends preloaded: the same output, and bytes on a fast path
#	client, server	only that end preloaded: the same output, and no byte on a fast path
# Without SHIM= only bare is run. Environment: SHIM the library, B build directory, SAN its
# sanitizer, MODES.
#
# A test calls `server CMD...` (background, the server's end) and `client CMD...` (foreground),
# and writes what must not differ between the modes to $OUT. All it starts is ended when it exits;
# what it writes is under $TMP.

set -uo pipefail
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$TOP/tests/scripts/waits.bash"
B=${B:-build}
case $B in /*) ;; *) B=$TOP/$B ;; esac
PATH=$PATH:/usr/sbin:/sbin
SHIM=${SHIM-}
LC_ALL=C
export LC_ALL
ulimit -c 0
umask 022	# a policy that a group may write to is refused
NAME=$(basename "$0" .sh)
TMP=$(mktemp -d "${TMPDIR:-/tmp}"/rdmashim-"$NAME".XXXXXX)
chmod 755 "$TMP"	# another user's process must get at the library and its own directory
PIDS=()
MODE=bare
FAILURES=0

exec 3>&1	# fail may be called where the output goes to a file
say() { echo "${NAME}[$MODE]: $*" >&3; }
fail() { say "FAILED: $*"; exit 1; }
skip() { echo "$*" >&3; exit 77; }

# A process and all below it. Leaves first would let a parent start new ones, so: stop going down
# only when all are named.
tree() {
	local p
	for p in "$@"; do
		echo "$p"
		# shellcheck disable=SC2046
		tree $(pgrep -P "$p")
	done
}

# ThreadSanitizer's reports in which the library has a part. One that has lost a stack could not
# be held against tsan.supp. SPOILS_ERRNO=1: the program under test has a handler that touches
# errno. It runs within the library's, which leaves errno as it did.
races() {
	cat "$TMP"/tsan.* 2>/dev/null |
		awk -v RS='==================\n' -v spoils="${SPOILS_ERRNO-}" \
		'/librdmashim.so/ && !/failed to restore the stack/ && !(spoils &&
			/signal handler spoils errno/)'
}

cleanup() {
	local rc=$? all p kids mine=()
	trap '' INT TERM
	if [[ ${SAN-} == thread && $rc == 0 && -n $(races) ]]; then
		races | head -n 60
		echo "$(races | grep -c '^SUMMARY') races of the library"
		rc=1
	fi
	if ((${#PIDS[@]})); then
		kids=" $(pgrep -P $$ | tr '\n' ' ') "
		# the number of one that has ended may be another test's by now
		for p in "${PIDS[@]}"; do
			[[ $kids == *" $p "* ]] && mine+=("$p")
		done
		all=$(tree "${mine[@]}")
		# shellcheck disable=SC2086
		kill -KILL $all 2>/dev/null
		wait "${PIDS[@]}" 2>/dev/null
	fi
	if ((rc != 0 && rc != 77)); then
		for f in "$TMP"/*.log "$TMP"/shim.*; do
			[[ -s $f ]] && { echo "--- end of ${f##*/}:"; tail -n 15 "$f"; }
		done
	fi
	[[ -n ${KEEP-} ]] && echo "kept: $TMP" || rm -rf "$TMP"
	exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM
trap 'exit 141' PIPE	# else the status would be the last command's, 0

if [[ -n $SHIM ]]; then
	[[ -e $SHIM ]] || skip "no library at $SHIM"
	cp "$SHIM" "$TMP/librdmashim.so" || exit 1
	SHIM=$TMP/librdmashim.so
	case ${SAN-} in
	address) RUNTIME=$(gcc -print-file-name=libasan.so) PRELOAD=$RUNTIME:$SHIM ;;
	undefined) RUNTIME=$(gcc -print-file-name=libubsan.so) PRELOAD=$RUNTIME:$SHIM ;;
	# Behind the library: what runs inside one of its wrappers of blocking calls it does not
	# follow.
	thread) RUNTIME=$(gcc -print-file-name=libtsan.so) PRELOAD=$SHIM:$RUNTIME ;;
	*) PRELOAD=$SHIM ;;
	esac
	# The programs under test have leaks and races of their own; wrong accesses count, and
	# races of the library: see races().
	export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99
	export TSAN_OPTIONS=exitcode=0:die_after_fork=0:report_signal_unsafe=0:history_size=7
	TSAN_OPTIONS+=:log_path=$TMP/tsan:suppressions=$TOP/tests/tsan.supp
	[[ -x $B/rdmastat ]] && cp "$B/rdmastat" "$TMP/rdmastat"
	[[ -n ${SAN-} && -e $TOP/build/librdmashim.so ]] &&
		cp "$TOP/build/librdmashim.so" "$TMP/plain.so"
fi
# Some programs hang in a sanitizer's runtime even without the library (libasan: a lock of
# setlocale's that is never given back): they are the other end, with the library as users have
# it. unbearable CMD...: is it one of them?
unbearable() {
	local w
	[[ ${SAN-} == address || ${SAN-} == thread ]] || return 1
	for w in "$@"; do
		case ${w##*/} in
		curl | psql | postgres | pg_ctl | initdb) return 0 ;;
		esac
	done
	return 1
}
: "${MODES:=bare${SHIM:+ both client server}}"
[[ -n $SHIM || $MODES == bare ]] || { echo "MODES=$MODES needs SHIM=" >&2; exit 2; }
CONF=$TMP/policy.conf
: >"$CONF"	# empty: the built-in defaults, whatever this machine's /etc says

# policy 'LINE'...: the policy file of all processes from now on.
policy() { if (($#)); then printf '%s\n' "$@" >"$CONF"; else : >"$CONF"; fi; }

begin_mode() {
	MODE=$1
	OUT=$TMP/out.$MODE
	STAT=$TMP/stat.$MODE
	mkdir -p -m 700 "$STAT"
	: >"$OUT"
}

# ---- running things
# ROLE is server, client, shim (preloaded always) or none (never).
preloaded() {
	case $1 in
	shim) true ;;
	none) false ;;
	*) [[ $MODE == both || $MODE == "$1" ]] ;;
	esac
}

# shim_env [CMD...]: SHIM_ENV for that command
shim_env() {
	local so=$PRELOAD
	if unbearable "$@"; then
		[[ -e $TMP/plain.so ]] ||
			skip "${1##*/} does not run under this sanitizer, and there is no library" \
			"without one ($TOP/build)"
		so=$TMP/plain.so
	fi
	SHIM_ENV=(LD_PRELOAD="$so" RDMASHIM_CONF="$CONF" RDMASHIM_STAT_DIR="$STAT" \
		RDMASHIM_LOG_FILE="$TMP/shim.$MODE")
}

# run_with ROLE CMD...: in the foreground, preloaded if this mode says so for that end.
run_with() {
	local role=$1
	shift
	if preloaded "$role"; then
		shim_env "$@"
		env "${SHIM_ENV[@]}" "$@" 3>&-
	else
		env "$@" 3>&-
	fi
}

# start ROLE LOG CMD...: in the background; PID is the program itself.
start() {
	local role=$1 log=$2
	shift 2
	# here and not by the child alone: who looks at once would find what an earlier program left
	: >"$log"
	if preloaded "$role"; then
		shim_env "$@"
		env "${SHIM_ENV[@]}" "$@" >"$log" 2>&1 </dev/null 3>&- &
	else
		env "$@" >"$log" 2>&1 </dev/null 3>&- &
	fi
	PID=$!
	PIDS+=("$PID")
}

client() { run_with client "$@"; }
server() { start server "$TMP/server.log" "$@"; SRV=$PID; }

# best_of N CMD...: tries CMD until it succeeds, N times at most. What a try adds to $OUT counts
# only if it is the last one. For a floor that the fault never reaches, and that is otherwise
# missed only while other programs have the processors: they decide how soon two ends meet, and
# how late a reader is.
best_of() {
	local n=$1 was
	was=$(stat -c %s "$OUT")
	shift
	until "$@"; do
		((--n > 0)) || fail "$*: not once"
		say "$*: once more"
		truncate -s "$was" "$OUT"
	done
}

gone() { ! kill -0 "$1" 2>/dev/null || [[ $(ps -o stat= -p "$1") == Z* ]]; }
wait_port() { within "${2:-15}" listening "$1" || fail "nobody listens on port $1"; }

# finish PID SECS: the exit status of a background program that must end by itself.
finish() {
	within "$2" gone "$1" || fail "process $1 ($(ps -o args= -p "$1")) still runs after $2 s"
	wait "$1"
}

# stop PID: asks it to end, which it must within 10 s.
stop() {
	kill -TERM "$1" 2>/dev/null
	if ! within 10 gone "$1"; then
		fail "process $1 ($(ps -o args= -p "$1")) ignores SIGTERM"
	fi
	wait "$1" 2>/dev/null
	true
}

# free_port VAR: a port of this lane on which nobody listens.
free_port() {
	local p
	while :; do
		lane_port p
		[[ -z $(ss -Htan "sport = :$p") && " ${USED_PORTS-} " != *" $p "* ]] && break
	done
	USED_PORTS="${USED_PORTS-} $p"
	printf -v "$1" %s "$p"
}

# ---- what the counters say collect reads the counters of this mode's processes, living and dead,
# into CONNS (ends of connections), FAST (bytes on a fast path, both ends count them), CUTS,
# REWINDS, OVERFLOWS and REASONS; TX_FAST, RX_FAST, TX_ALL and RX_ALL are bytes sent and received.
# Dead processes are shown once and then forgotten: ask once per mode, after the processes ended.
collect() {
	[[ -x $TMP/rdmastat ]] || fail "no rdmastat to count with"
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all >"$TMP/stat.$MODE.json" ||
		fail "rdmastat"
	read -r CONNS FAST CUTS REWINDS OVERFLOWS TX_FAST RX_FAST TX_ALL RX_ALL \
		REASONS < <(python3 -S -E -c 'import json, sys
j = json.load(sys.stdin)
t = j["total"]
tx, rx = ({p: sum(x[way][p] for x in j["processes"]) for p in ("tcp", "shm", "rdma")}
    for way in ("tx_bytes", "rx_bytes"))
c = t["counters"]
print(t["connections"], t["bytes"]["shm"] + t["bytes"]["rdma"], c["cuts"], c["rewinds"],
    c["overflows"],
      tx["shm"] + tx["rdma"], rx["shm"] + rx["rdma"], sum(tx.values()), sum(rx.values()),
      " ".join("%s:%d" % (r["reason"], r["connections"]) for r in t["reasons"]) or "-")' \
      	<"$TMP/stat.$MODE.json") ||
		fail "no counters in rdmastat's output"
}

# balanced WHAT: behind collect, where both ends were counted and all that was sent has been read:
# as much was sent by each path as was received by it.
balanced() {
	((TX_FAST == RX_FAST && TX_ALL == RX_ALL)) ||
		fail "$1: sent $TX_ALL, of it $TX_FAST on a fast path; received $RX_ALL, of it" \
		"$RX_FAST on a fast path"
}

# start_nginx PORT WORKERS <HTTP: as the server's end, until it listens; HTTP is what stands in
# `http {}`.
start_nginx() {
	{
		cat <<-END
		worker_processes $2;
		daemon off;
		user root;
		pid $TMP/nginx.pid;
		error_log $TMP/nginx-error.log warn;
		events { worker_connections 1000; }
		http {
		access_log off;
		client_body_temp_path $TMP/body; proxy_temp_path $TMP/proxy;
		fastcgi_temp_path $TMP/f; uwsgi_temp_path $TMP/u; scgi_temp_path $TMP/s;
		END
		cat
		echo "}"
	} >"$TMP/nginx.conf"
	server nginx -c "$TMP/nginx.conf" -e "$TMP/nginx-error.log"
	wait_port "$1"
}

# two_ends CMD...: CMD... server PORT, and when that listens, CMD... client PORT, whose output is
# to be compared. Both must end well.
two_ends() {
	local port
	free_port port
	server "$@" server "$port"
	wait_port "$port"
	client "$@" client "$port" >"$TMP/client.log" 2>&1 ||
		fail "$(cat "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 15 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/client.log" >>"$OUT"
}

# expect_paths [MIN]: both ends preloaded: at least MIN bytes (default 1) on a fast path, counted
# at both ends; one end: none, but the library was there and saw connections.
expect_paths() {
	[[ $MODE == bare ]] && return
	collect
	say "$CONNS ends of connections, $FAST bytes on a fast path, $CUTS cuts, on TCP because:" \
		"$REASONS"
	((CONNS > 0)) || fail "the library saw no connection"
	if [[ $MODE == both ]]; then
		((FAST >= ${1:-1})) || fail "only $FAST bytes on a fast path, expected ${1:-1}"
	else
		((FAST == 0)) ||
			fail "$FAST bytes on a fast path though only the $MODE is preloaded"
	fi
}

same_as_bare() {
	[[ $MODE == bare || ! -e $TMP/out.bare ]] && { [[ -s $OUT ]] ||
		fail "no output to compare"; return; }
	cmp -s "$TMP/out.bare" "$OUT" && return
	diff "$TMP/out.bare" "$OUT" | head -n 20
	fail "output differs from the bare run"
}

# for_modes JOB [MINBYTES]
for_modes() {
	local m t
	for m in $MODES; do
		begin_mode "$m"
		t=$EPOCHREALTIME
		"$1"
		same_as_bare
		[[ ${2-} == none ]] || expect_paths "${2-}"
		say "done in" \
			"$(awk -v a="$t" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s"
	done
	((FAILURES == 0))
}

# make_file PATH BYTES: bytes that do not repeat, the same in every run.
make_file() {
	openssl enc -aes-128-ctr -nosalt -K 000102030405060708090a0b0c0d0e0f -iv 0 </dev/zero \
		2>/dev/null | head -c "$2" >"$1"
}
sum() { sha256sum <"$1" | cut -d' ' -f1; }
