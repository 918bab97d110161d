#!/bin/bash
# Every snippet on the kernel alone, which says what is right, and then preloaded: on TCP by
# policy; young, not yet earned; cut over at once; cut over, and back on TCP by policy; cut and
# rewound every 1 to 3 ms, three times each; cut over at once in a second thread, in a signal
# handler, and in the child of a process that has a connection (both on the kernel alone, too).
# What it prints must be the same.
#	run.sh [PROGRAM [SNIPPET]...]
# Differences that known.txt (KNOWN) lists are shown as "known:" and are no failure. ROUNDS: of the
# forced mode (3). WANTED: only these modes. RULES: lines for the policies that permit to leave TCP.
# SNIPPETS: where the programs are.
# TIMEOUT: 600
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../apps/lib.sh"

PROGS=()
for c in "$HERE"/*.c; do c=${c##*/}; PROGS+=("${c%.c}"); done
if (($#)); then PROGS=("$1"); shift; fi
NAMES=("$@")
export ROUNDS=${ROUNDS:-3} PERIOD=${PERIOD:-$((1000 + RANDOM % 2000))}
WANTED=${WANTED-off young cut back forced thread signal fork}
mkdir -m 700 "$TMP/stat"
ulimit -n 1024

printf 'mode off\n' >"$TMP/off.conf"
printf 'earn_bytes 1000G\nearn_rounds 4000000000\n' >"$TMP/young.conf"
printf 'earn_bytes 0\nearn_rounds 0\n%s\n' "${RULES-}" >"$TMP/cut.conf"
(cat "$TMP/cut.conf" && echo "force_cut_every ${PERIOD}us") >"$TMP/forced.conf"

# one MODE PROGRAM [SNIPPET]...: output to $TMP/MODE.PROGRAM, complaints to .err. On the kernel
# alone: bare, or bare-MODE.
one() {
	local mode=$1 prog=$2 env=() times=1 conf=$1
	shift 2
	case $mode in
	thread | signal | fork) conf='cut'; env+=(SNIP_WAIT_CUT=1 SNIP_IN="$mode") ;;
	bare-*) env+=(SNIP_IN="${mode#bare-}") ;;
	cut) env+=(SNIP_WAIT_CUT=1) ;;
	back) env+=(SNIP_WAIT_CUT=1 SNIP_BACK="$TMP/back.$prog.conf"); conf=back.$prog; \
		(cat "$TMP/cut.conf" && echo 'watch_after 0') >"$TMP/$conf.conf" ;;
	forced) env+=(SNIP_WAIT_CUT=1 SNIP_JITTER=1000); times=$ROUNDS ;;
	esac
	[[ $mode == bare* ]] ||
		env+=(LD_PRELOAD="$PRELOAD" RDMASHIM_CONF="$TMP/$conf.conf" \
		RDMASHIM_STAT_DIR="$TMP/stat"
		RDMASHIM_LOG_FILE="$TMP/shim.$mode.$prog")
	env "${env[@]}" "${SNIPPETS:-$B/snippets}/$prog" -n "$times" "$@" >"$TMP/$mode.$prog" \
		2>"$TMP/$mode.$prog.err" 3>&-
	echo "$?" >"$TMP/$mode.$prog.status"
}
export -f one
export TMP B PRELOAD SNIPPETS

jobs_of() { local m p; for m in "$@"; do for p in "${PROGS[@]}"; do echo \
	"$m $p${NAMES[*]:+ ${NAMES[*]}}"; done; done; }
run_all() { jobs_of "$@" | xargs -P 2 -L 1 bash -c 'one "$@"' _; }

MODE=bare
[[ -n $SHIM ]] || WANTED=
# shellcheck disable=SC2046
run_all bare $(for m in $WANTED; do case $m in thread | signal | fork) echo "bare-$m" ;; esac; done)
# shellcheck disable=SC2086
[[ -z $WANTED ]] || run_all $WANTED

python3 -S -E "$HERE/compare.py" "$TMP" "${KNOWN-$HERE/known.txt}" "$ROUNDS" "${PROGS[*]}" \
	"$WANTED" || fail "see above (forced: every $PERIOD us)"
