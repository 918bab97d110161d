#!/bin/bash
# Children made by clone(), clone3() and _Fork(), in a program with one thread: they change their
# user and allocate memory, and none waits for the library's thread, which is not there: neither
# when it has just begun, nor while it has a lock of malloc().
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
MODES=bare${SHIM:+ both}
R=$B/apps/rawclone

# Has the library's thread read the policy, and so allocate, as often as it can.
busy() {
	local i=0
	while [[ -e $TMP/busy ]]; do
		printf '%s\n' 'earn_bytes 0' 'earn_rounds 0' >"$TMP/next.conf"
		printf '# %s a line to read\n' $((i++)) {1..30} >>"$TMP/next.conf"
		mv "$TMP/next.conf" "$CONF"
	done
}

job() {
	local how writer
	policy 'earn_bytes 0' 'earn_rounds 0'
	for how in $("$R" list); do
		client timeout 60 "$R" "$how" begin >>"$OUT" || fail "$how: $(tail -n 1 "$OUT")"
	done
	: >"$TMP/busy"
	busy &
	writer=$!
	PIDS+=("$writer")
	for how in $("$R" list); do
		MALLOC_ARENA_MAX=1 client timeout 60 "$R" "$how" busy 500 >>"$OUT" ||
			fail "$how: $(tail -n 1 "$OUT")"
	done
	rm "$TMP/busy"
	finish "$writer" 10
}
for_modes job none
