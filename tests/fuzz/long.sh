#!/bin/bash
# long.sh [SECS [JOBS [TARGET...]]]: fuzz targets in parallel for SECS seconds (3600), JOBS processes in all (one for each processor), the
# targets' shares as equal as can be; with fewer processes than targets one after the other. Needs nothing but this directory, which
# `make fuzz-run` fills: it may be copied to another machine. A line every 30 s; at the end each target's executions, and the inputs that failed.
set -uo pipefail
cd "$(dirname "$0")" || exit 2
secs=${1:-3600} jobs=${2:-$(nproc)}
shift $(($# < 2 ? $# : 2))
(($#)) || set -- $(printf '%s\n' bin/* | sed 's/.*\///')
export LD_LIBRARY_PATH=$PWD/lib ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
[[ $secs =~ ^[1-9][0-9]*$ && $jobs =~ ^[1-9][0-9]*$ ]] || { echo "usage: long.sh [SECS [JOBS [TARGET...]]]" >&2; exit 2; }
[[ -n $(ls found 2>/dev/null) ]] && mv found "found.$(date +%s)"	# of an earlier run
mkdir -p found log corpus
rm -f log/*
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT TERM

# one TARGET NUMBER: what one process finds the others of the target take over from the common corpus.
one() {
	local opts=(-timeout=60 -rss_limit_mb=2048 -reload=30 -print_final_stats=1 -artifact_prefix="found/$1-")
	[[ -e $1.dict ]] && opts+=(-dict="$1.dict")
	mkdir -p "corpus/$1"
	exec "bin/$1" -max_total_time="$secs" "${opts[@]}" "corpus/$1" "seeds/$1" >"log/$1.$2" 2>&1 </dev/null
}

# Executions of a target so far, over all its processes: of one that has ended its last word.
executions() {
	local f n sum=0
	for f in log/"$1".*; do
		[[ -e $f ]] || continue
		n=$(grep -aoE '^#[0-9]+|number_of_executed_units: +[0-9]+' "$f" | tail -n 1 | grep -oE '[0-9]+$')
		sum=$((sum + ${n:-0}))
	done
	echo "$sum"
}
running() { local p n=0; for p in "${pids[@]}"; do kill -0 "$p" 2>/dev/null && n=$((n + 1)); done; echo "$n"; }
line() {
	local t text=
	for t in "${targets[@]}"; do text="$text $t $(executions "$t")"; done
	printf '%5d s:%s; %d processes, %d found\n' "$((SECONDS - begin))" "$text" "$(running)" "$(find found -type f | wc -l)"
}

targets=("$@") begin=$SECONDS told=$SECONDS i=0
for t in "${targets[@]}"; do
	[[ -x bin/$t && -d seeds/$t ]] || { echo "no target $t" >&2; exit 2; }
	"bin/$t" -runs=0 "seeds/$t" >"log/seeds" 2>&1 || { echo "$t: a seed fails"; tail -n 40 log/seeds; exit 1; }
done
while ((i < jobs || i < ${#targets[@]} || $(running) > 0)); do
	while ((i < (jobs > ${#targets[@]} ? jobs : ${#targets[@]}) && $(running) < jobs)); do
		one "${targets[i % ${#targets[@]}]}" "$i" &
		pids+=($!) i=$((i + 1))
	done
	sleep 1
	((SECONDS - told >= 30)) && { line; told=$SECONDS; }
done
line
bad=0
for t in "${targets[@]}"; do
	n=$(find found -name "$t-*" -type f | wc -l)
	((n)) && bad=1
	ended=$(grep -alE 'number_of_executed_units' log/"$t".* | wc -l)
	procs=$(ls log/"$t".* | wc -l)
	((ended < procs)) && bad=1
	echo "$t: $(executions "$t") executions by $procs processes, $n inputs failed$( ((ended < procs)) && echo ", $((procs - ended)) processes ended otherwise: log/$t.*")"
done
exit $bad
