#!/bin/bash
# The library's own descriptors have the lowest free number until they are moved: poll() and
# select() of a number that the program has closed wait until that is over, and say that it is
# closed. What is left is the moment between that look and the call: a few in a million, where it
# was hundreds.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
MODES="bare both"
MOST=20

job() {
	local open looks
	policy 'earn_bytes 0' 'earn_rounds 0' 'watch_after 0'
	run_with server timeout 50 "$B/apps/passing" "$CONF" >"$TMP/said" 3>&- ||
		fail "passing: status $?: $(cat "$TMP/said")"
	read -r _ open _ looks <"$TMP/said"
	say "$(cat "$TMP/said")"
	((looks > 1000)) || fail "only $looks looks"
	((open <= MOST)) || fail "a closed number was open in $open of $looks looks"
	echo right >"$OUT"
}

for_modes job none
