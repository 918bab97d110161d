#!/bin/bash
# attack.sh [SECS [NAME...]]: every program of tests/hostile that tries to get something out of
# the library, or to hold it up, again and again for so long, each time with other random numbers;
# at least once each. A line for each run. Ends with 1 at the first that gets through. The fuzz
# targets have `make fuzz-long`, failing system calls `make check-faults`.
SECS=${1:-600}
[[ $SECS =~ ^[0-9]+$ ]] || { echo "usage: attack.sh [SECS [NAME...]]" >&2; exit 2; }
shift || true
here=$(cd "$(dirname "$0")/../hostile" && pwd)
names=("$@")
if ((!$#)); then
	for f in "$here"/*.sh; do
		n=$(basename "$f" .sh)
		[[ $n == fuzz || $n == faults ]] || names+=("$n")
	done
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
end=$((SECONDS + SECS)) runs=0
while :; do
	for n in "${names[@]}"; do
		[[ -x $here/$n.sh ]] ||
			{ echo "no attack $n; there are: $(cd "$here" && echo *.sh)" >&2; exit 2; }
		limit=$(sed -n '1,20s/^# TIMEOUT: //p' "$here/$n.sh")
		seed=$RANDOM start=$SECONDS
		SEED=$seed timeout -k 5 "$((${limit:-120} * 2))" "$here/$n.sh" >"$log" 2>&1
		rc=$?
		case $rc in
		0) echo "held $n (seed $seed, $((SECONDS - start)) s)" ;;
		77) echo "skip $n: $(tail -n 1 "$log")" ;;
		*)
			echo "GOT THROUGH: $n (seed $seed, status $rc)"
			tail -n 40 "$log"
			exit 1
			;;
		esac
		runs=$((runs + 1))
		((runs >= ${#names[@]} && SECONDS >= end)) && break 2
	done
done
echo "$runs attacks, none got through"
