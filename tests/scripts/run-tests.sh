#!/bin/bash
# run-tests.sh 'NAME[@SECONDS]=COMMAND'...: runs tests, two at a time (LANES), the first ones
# first, and prints
#	ok NAME (secs, cpu secs)	exit status 0
#	skip NAME: reason	exit status 77, the reason is the last line of the output
#	FAIL NAME		anything else, with the end of the output
# and at last what failed, once more, and "N passed, N failed, N skipped". A script may say
# "# TIMEOUT: SECONDS" in its head.
# A COMMAND that begins with + runs several tests and prints these lines itself; it picks them by
# TESTS, watches over them, and may end with 77 if it can run none.
# After the timeout the stacks of all threads of all processes of the test are printed, then all
# are killed. Environment: B build directory, TESTS patterns of the names to run, TIMEOUT default
# seconds (of which there are more, the more GPU paths there are).
set -uo pipefail
umask 022	# tests make policies, and one that a group may write to is refused
B=${B:-build}
LANES=${LANES:-2}
logs=$B/test-logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0
# Check's own four seconds for a test are few on a slow machine that does other things, too; what
# hangs is found here.
export CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-5}
# Where python3 is a script that looks for the one to run (pyenv), that takes eight times as long as
# Python's own start, thousands of times: the tests find the program itself.
python=$(python3 -S -E -c 'import sys; print(sys.executable)' 2>/dev/null)
[[ $python != /* || $python -ef $(command -v python3) ]] || PATH=${python%/*}:$PATH
# The children of a test carry this word in their environment: that finds them also after a fork,
# setsid and exec, and under another uid.
current=

# Processes of the running test, by the mark in their environment.
members() {
	# one grep for all: one for each of a machine's processes took as long as many a test
	grep -lsz "^RDMASHIM_TEST=$current\$" /proc/[0-9]*/environ | cut -d/ -f3
	# A program that overwrites its environment (setproctitle) is still in the test's process
	# group or below it.
	[[ -n ${pid-} ]] && pgrep -g "$pid"
	true
}

stacks() {
	local p
	for p in $(members | sort -nu); do
		[[ $p != "$$" && -r /proc/$p/comm ]] || continue
		case $(<"/proc/$p/comm") in	# shells that only wait
		bash | sh | *.sh | timeout) continue ;;
		esac
		echo "--- stacks of pid $p: $(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null)"
		[[ -x ${B:-build}/rdmastat ]] && timeout 30 "${B:-build}/rdmastat" stacks \
			"$p" 2>&1 | head -n 150
		timeout 20 gdb -q -nx -batch -ex 'set debuginfod enabled off' \
			-ex 'set pagination off' \
			-p "$p" -ex 'thread apply all bt' 2>/dev/null | grep -E '^(Thread|#)' |
			head -n 150
	done
}

kill_members() {
	local i p all
	for i in 1 2 3; do
		all=$(members | sort -nu | grep -vx "$$")
		[[ -n $all ]] || return 0
		for p in $all; do kill -KILL "$p" 2>/dev/null; done
		sleep 0.1
	done
}

selected() {
	local pat
	[[ -z ${TESTS-} ]] && return 0
	set -f
	for pat in $TESTS; do
		# shellcheck disable=SC2053
		[[ $1 == $pat || $1 == */$pat ]] && { set +f; return 0; }
	done
	set +f
	return 1
}

# awk: "N s, cpu N s", the second of what was waited for between two outputs of `times`.
# shellcheck disable=SC2016
used='FNR == 2 { gsub(/m|s/, " "); was = sum; sum = $1 * 60 + $2 + $3 * 60 + $4 }
	END { printf "%.1f s, cpu %.1f s", b - a, sum - was }'

run_one() {
	local name=$1 secs=$2 cmd=$3 log start rc hung=0 took
	log=$logs/${name//\//_}.log
	current=${name//[^a-zA-Z0-9]/_}.$$
	start=$EPOCHREALTIME
	times >"$work/before.$lane"
	# setsid: an own process group, and no terminal that a password prompt could wait on
	RDMASHIM_TEST=$current TEST_LANE=$lane/$LANES setsid bash -c "$cmd" >"$log" 2>&1 \
		</dev/null &
	pid=$!
	sleep "$secs" >/dev/null 2>&1 &
	guard=$!
	wait -n "$pid" "$guard" 2>/dev/null
	if kill -0 "$pid" 2>/dev/null; then
		hung=1
		echo "=== not finished after $secs s" >>"$log"
		stacks >>"$log" 2>&1
		kill -TERM $pid 2>/dev/null
		sleep 1
		kill_members
	fi
	kill "$guard" 2>/dev/null
	wait "$guard" 2>/dev/null
	wait $pid 2>/dev/null
	rc=$?
	times >"$work/after.$lane"
	# shellcheck disable=SC2143  # grep -q would end the pipe early
	if ((!hung)) && [[ -n $(members | grep -vx "$$") ]]; then
		sleep 0.3	# what was just killed may still be dying
		local left
		left=$(members | sort -nu | grep -vx "$$" |
			while read -r p; do tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline"; \
			done 2>/dev/null)
		if [[ -n $left ]]; then
			echo "=== left running: $left" >>"$log"
			((rc == 0)) && rc=1
		fi
		kill_members
	fi
	pid=
	took=$(awk -v a="$start" -v b="$EPOCHREALTIME" "$used" "$work"/{before,after}."$lane")
	if ((hung == 0 && rc == 0)); then
		echo "ok $name ($took)"
		((passed++))
	elif ((hung == 0 && rc == 77)); then
		echo "skip $name: $(tail -n 1 "$log")"
		((skipped++))
	else
		((hung)) && rc="hang, $secs s"
		echo "FAIL $name ($took, status $rc), end of $log:"
		tail -n "$((hung ? 200 : 40))" "$log" | sed 's/^/    /'
		((failed++))
	fi
}

# run_many NAME COMMAND: passes its lines on and counts them.
run_many() {
	local name=$1 cmd=$2 line rc before=$failed last=
	current=${name//[^a-zA-Z0-9]/_}.$$
	exec {lines}< <(RDMASHIM_TEST=$current exec setsid bash -c "$cmd" 2>&1 </dev/null)
	pid=$!
	while IFS= read -ru "$lines" line; do
		echo "$line"
		last=$line
		case $line in
		"ok "*) ((passed++)) ;;
		"skip "*) ((skipped++)) ;;
		"FAIL "*)
			((failed++))
			echo "$line" >>"$work/failed"
			;;
		esac
	done
	exec {lines}<&-
	wait $pid
	rc=$?
	pid=
	if ((rc != 0 && rc != 77 && failed == before)); then
		echo "FAIL $name (status $rc): $last"
		((failed++))
	fi
}

# run_item ITEM: one of the arguments.
run_item() {
	local head=${1%%=*} cmd=${1#*=} name secs=${TIMEOUT:-120} t
	name=${head%@*}
	if [[ $cmd == +* ]]; then
		run_many "$name" "${cmd#+}"
		return
	fi
	selected "$name" || return
	if [[ $head == *@* ]]; then
		secs=${head##*@}
	elif [[ $cmd == *.sh && -r $cmd ]]; then
		t=$(sed -n '1,20s/^# TIMEOUT: *\([0-9]*\).*/\1/p' "$cmd")
		secs=${t:-$secs}
	fi
	run_one "$name" "$((secs * LANES))" "$cmd" >"$work/lane.$lane"
	[[ $(<"$work/lane.$lane") != FAIL* ]] ||
		flock "$work/out" cat "$work/lane.$lane" >>"$work/failed"
	flock "$work/out" cat "$work/lane.$lane"
}

# lane NUMBER ITEM...: takes the next item that no GPU path has taken, until there is none; at
# last writes down its counts.
run_gpu_path() {
	local lane=$1 next
	shift
	trap 'kill ${guard-} 2>/dev/null; kill_members; exit 130' INT TERM
	while next=$(flock "$work/next" bash \
		-c 'read -r n <"$1"; echo "$((n + 1))" >"$1"; echo "$n"' - "$work/next") &&
		((next <= $#)); do
		run_item "${!next}"
	done
	echo "$passed $failed $skipped" >"$work/counts.$lane"
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM
echo 1 >"$work/next"
for ((lane = 0; lane < LANES; lane++)); do run_gpu_path "$lane" "$@" & done
wait
for ((lane = 0; lane < LANES; lane++)); do
	if read -r p f s 2>/dev/null <"$work/counts.$lane"; then
		((passed += p, failed += f, skipped += s))
	else
		echo "FAIL lane $lane of the tests ended early"
		((failed++))
	fi
done
# Of a long output often only the end is kept.
if [[ -s $work/failed ]]; then
	echo "--- once more, what failed:"
	cat "$work/failed"
fi
# A summary of nothing is no success: a pattern that matches no test is a mistake.
if ((passed + failed + skipped == 0)); then
	echo "no test matches '${TESTS-}'" >&2
	failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
