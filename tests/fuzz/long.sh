#!/bin/bash
# long.sh [SECS [JOBS [TARGET...]]]: the fuzz targets (default: all of bin/) by JOBS processes
# (one for each processor) for SECS seconds (3600). A target is through at 50 million executions
# (ENOUGH=): its processors then go to those that have the fewest. Needs nothing but this
# directory, which `make fuzz-run` fills, bash and coreutils: it may be copied to another machine,
# whose libraries are not used. A line every 30 s; at the end one per target, executions and
# seconds of all its processes together:
#	target executions seconds findings
# Inputs that fail are in found/, what the processes said in log/. Exit status 1: something was
# found, or a process ended otherwise.
set -uo pipefail
cd "$(dirname "$0")" || exit 2
secs=${1:-3600} jobs=${2:-$(nproc)} enough=${ENOUGH:-50000000}
shift $(($# < 2 ? $# : 2))
# shellcheck disable=SC2046  # names
(($#)) || set -- $(printf '%s\n' bin/* | sed 's/.*\///')
[[ $secs =~ ^[1-9][0-9]*$ && $jobs =~ ^[1-9][0-9]*$ ]] ||
	{ echo "usage: long.sh [SECS [JOBS [TARGET...]]]" >&2; exit 2; }
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
# By the loader that is here: the machine's own libc may be another.
run=()
[[ -e lib/ld-linux-x86-64.so.2 ]] && run=(lib/ld-linux-x86-64.so.2 --library-path lib)
[[ -n $(ls found 2>/dev/null) ]] && mv found "found.$(date +%s)"	# of an earlier run
mkdir -p found log corpus
rm -f log/*

# By process: its target, when it began, its log. By target: executions and seconds of those that
# have ended, whether it is through.
declare -A target=() began=() log=() ended=() spent=() through=() odd=()
targets=("$@") begin=$SECONDS told=$SECONDS number=0
FUZZ_TMP=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)	# files of processes that are ended
export FUZZ_TMP
trap 'kill "${!target[@]}" 2>/dev/null; rm -rf "$FUZZ_TMP"' EXIT
trap 'exit 130' INT TERM

# How far a process is: of one that has ended its last word, otherwise what it said last.
reached() {
	tail -c 2000 "$1" | grep -aoE '^#[0-9]+|number_of_executed_units: +[0-9]+' | tail -n 1 |
		grep -oE '[0-9]+$' || echo 0
}
executions() {
	local p sum=${ended[$1]}
	for p in "${!target[@]}"; do
		[[ ${target[$p]} == "$1" ]] && sum=$((sum + $(reached "${log[$p]}")))
	done
	echo "$sum"
}
running() { local p n=0; for p in "${!target[@]}"; do [[ ${target[$p]} == "$1" ]] &&
	n=$((n + 1)); done; echo "$n"; }
findings() { local f n=0; for f in found/"$1"-*; do [[ -e $f ]] &&
	n=$((n + 1)); done; echo $((n + odd[$1])); }

# begin_one TARGET EXECUTIONS SECS: what one process finds the others of the target take over from
# the common corpus.
begin_one() {
	local opts=(-timeout=60 -rss_limit_mb=2048 -reload=30 -print_final_stats=1 \
		-artifact_prefix="found/$1-")
	[[ -e $1.dict ]] && opts+=(-dict="$1.dict")
	mkdir -p "corpus/$1"
	number=$((number + 1))
	"${run[@]}" "bin/$1" -runs="$2" -max_total_time="$3" "${opts[@]}" "corpus/$1" "seeds/$1" \
		>"log/$1.$number" 2>&1 </dev/null &
	target[$!]=$1 began[$!]=$SECONDS log[$!]=log/$1.$number
}

# Takes those that have ended into the sums. A target with a finding is not begun again: it would
# be the same.
reap() {
	local p t
	for p in "${!target[@]}"; do
		kill -0 "$p" 2>/dev/null && continue
		wait "$p"
		t=${target[$p]}
		grep -aq number_of_executed_units "${log[$p]}" || odd[$t]=$((odd[$t] + 1))
		ended[$t]=$((ended[$t] + $(reached "${log[$p]}"))) \
			spent[$t]=$((spent[$t] + SECONDS - began[$p]))
		unset "target[$p]" "began[$p]" "log[$p]"
		(($(findings "$t"))) && through[$t]=1
	done
}

# Ends the processes of a target that has enough.
count() {
	local t p
	for t in "${targets[@]}"; do
		[[ -n ${through[$t]-} ]] && continue
		(($(executions "$t") >= enough)) || continue
		through[$t]=1
		for p in "${!target[@]}"; do [[ ${target[$p]} == "$t" ]] && kill "$p"; done
	done
}

# The target for the next process: that with the fewest, or which has had the least time.
next() {
	local t n least=$((1 << 60))
	NEXT=
	for t in "${targets[@]}"; do
		[[ -n ${through[$t]-} ]] && continue
		n=$(($(running "$t") * 1000000 + spent[$t]))
		((n < least)) && least=$n NEXT=$t
	done
	[[ -n $NEXT ]]
}
line() {
	local t text=
	for t in "${targets[@]}"; do text="$text $t $(executions "$t")"; done
	printf '%5d s:%s; %d processes\n' "$((SECONDS - begin))" "$text" "${#target[@]}"
}

for t in "${targets[@]}"; do
	[[ -x bin/$t && -d seeds/$t ]] || { echo "no target $t" >&2; exit 2; }
	ended[$t]=0 spent[$t]=0 odd[$t]=0
	"${run[@]}" "bin/$t" -runs=0 -artifact_prefix="found/$t-" "seeds/$t" >log/seeds 2>&1 \
		</dev/null || { echo "$t: a seed fails"; tail -n 40 log/seeds; exit 1; }
done
share=$((enough / (jobs > ${#targets[@]} ? jobs / ${#targets[@]} : 1)))
slice=$((jobs < ${#targets[@]} ? secs * jobs / ${#targets[@]} : secs))
while ((SECONDS - begin < secs - 2)); do
	while ((${#target[@]} < jobs)) && next; do
		left=$(((enough - $(executions "$NEXT")) / ($(running "$NEXT") + 1))) \
			time=$((secs - (SECONDS - begin)))
		((number < jobs)) && left=$share
		begin_one "$NEXT" $((left > 10000 ? left : 10000)) $((time < slice ? time : slice))
	done
	((${#target[@]})) || break	# all are through
	sleep 1
	reap
	((SECONDS % 5)) || count
	((SECONDS - told >= 30)) && { line; told=$SECONDS; }
done
while ((${#target[@]})); do
	# One that does not end by itself is stuck.
	if ((SECONDS - begin > secs + 30)); then kill -KILL "${!target[@]}"; fi
	sleep 0.2
	reap
done
bad=0
echo "target executions seconds findings"
for t in "${targets[@]}"; do
	n=$(findings "$t")
	((n)) && bad=1
	echo "$t ${ended[$t]} ${spent[$t]} $n"
done
exit $bad
