#!/bin/bash
# A non-blocking reader that asks again and again gets the fast path; when it stops asking, it is
# woken by the kernel alone.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
# with this a poller need not have a CPU for itself
policy "earn_bytes 0" "earn_rounds 0" "force_cut_every 60s"

job() {
	local fast=
	[[ $MODE == both ]] && fast=fast
	client timeout 150 "$B/apps/asksagain" 4 $fast >>"$OUT" 2>"$TMP/client.log" ||
		fail "status $?: $(<"$TMP/client.log")"
}
MODES="bare both" for_modes job 16384
