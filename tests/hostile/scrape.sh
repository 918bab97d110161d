#!/bin/bash
# rdmastat prometheus --listen, as 200 clients want to keep it from one that scrapes: silent ones,
# ones that say a byte now and then, ones that never read, ones that never stop, silent and unread
# ones at once, with few descriptors; and whom it believes to have asked for it (the Host line).
#	scrape.sh [SCENE...]
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -x $B/rdmastat ]] || skip "no rdmastat"
(($#)) || set -- silent slow unread endless mixed few-files from-afar hosts
for scene; do
	python3 -S -E "$(dirname "$0")/scrape.py" "$B/rdmastat" "$scene" >"$TMP/scrape.log" 2>&1 ||
		fail "$(cat "$TMP/scrape.log")"
	say "$(cat "$TMP/scrape.log")"
done
exit 0
