#!/bin/bash
# Every snippet under ThreadSanitizer, cut over at once, then cut and rewound every millisecond:
# races of the library. What a snippet prints is not looked at (the runtime delivers signals
# later, and touches errno), nor are races for a descriptor's number, which some of them are
# about, nor handlers of theirs that touch errno: those run within the library's, which leaves it
# as they did.
#	snippet-races.sh [PROGRAM [SNIPPET]...]
# Environment: SAN=thread, B, SHIM; WANTED (cut forced); SECS for one snippet (60)
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM && ${SAN-} == thread ]] || skip "not the library for ThreadSanitizer (SAN=thread)"

export SECS=${SECS:-60}
mkdir -m 700 "$TMP/stat"
ulimit -n 1024
printf 'earn_bytes 0\nearn_rounds 0\n' >"$TMP/cut.conf"
printf 'earn_bytes 0\nearn_rounds 0\nforce_cut_every 1ms\n' >"$TMP/forced.conf"

# one MODE PROGRAM SNIPPET: a line about it
one() {
	local rc
	SNIP_WAIT_CUT=1 LD_PRELOAD=$PRELOAD RDMASHIM_CONF=$TMP/$1.conf RDMASHIM_STAT_DIR=$TMP/stat \
		TSAN_OPTIONS=$TSAN_OPTIONS:log_path=$TMP/tsan.$1.$2.$3 \
		timeout -k 5 "$SECS" "$B/snippets/$2" "$3" >/dev/null 2>&1 </dev/null 3>&-
	rc=$?
	echo "$rc $1 $2 $3"
}
export -f one
export TMP B PRELOAD

snippets_of() { "$B/snippets/$1" list | sed 's/:.*//'; }
list() {
	local mode p s
	for mode in ${WANTED:-cut forced}; do
		if (($# > 1)); then
			for s in "${@:2}"; do echo "$mode $1 $s"; done
		else
			for p in "$TOP"/tests/snippets/*.c; do
				p=${p##*/}
				p=${p%.c}
				(($# == 0)) || [[ $p == "$1" ]] || continue
				for s in $(snippets_of "$p"); do echo "$mode $p $s"; done
			done
		fi
	done
}

list "$@" | xargs -P 2 -L 1 bash -c 'one "$@"' _ >"$TMP/ran"
echo "$(wc -l <"$TMP/ran") runs, $(grep -c '^\(124\|137\)' \
	"$TMP/ran") of them ended by their limit of $SECS s: $(awk \
	'$1 == 124 || $1 == 137 { print $2 "/" $3 "/" $4 }' "$TMP/ran" | xargs)"
# Of those for a number the location is a descriptor, or the access is what the runtime's close()
# notes.
cat "$TMP"/tsan.* 2>/dev/null |
	awk -v RS='==================\n' \
	'/librdmashim.so/ && !/failed to restore the stack/ && !/Location is file descriptor/ &&
	!/by [^\n]*:\n    #0 close [^\n]*tsan_interceptors/ && !/signal handler spoils errno/ &&
	gsub(/:\n    #0 [^\n]*tests\/snippets\//, "&") < 2' \
		>"$TMP/races"	# both accesses the snippet's own
rm -f "$TMP"/tsan.*
[[ ! -s $TMP/races ]] ||
	{ head -n 200 "$TMP/races"; fail \
	"$(grep -c '^SUMMARY' "$TMP/races") races of the library"; }
