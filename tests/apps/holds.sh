#!/bin/bash
# What poll, select and epoll have called readable, or writable, is so until it is used, whatever
# rewind comes between: while children are started that inherit the connections, under forced cuts,
# and in a crowd, whose connections end.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
WAYS="poll ppoll select pselect epoll timeout nested inherited"
MODES=${MODES/ client server/}

# run HOW CONNS ROUNDS BYTES CHILDREN
run() { client timeout 60 "$B/apps/holds" client "$port" "$@" >>"$OUT" || fail "$*: status $?"; }
job() {
	local port how
	free_port port
	server "$B/apps/holds" server "$port"
	wait_port "$port"
	for how in $WAYS; do "$1"; done
	stop "$SRV"
	cat "$OUT"
}

children() { run "$how" 4 20 20000 60; }
job_children() { job children; }
policy 'earn_bytes 0' 'earn_rounds 0'
for_modes job_children 1000000

cuts() { run "$how" 16 10 100000 0; run "$how" 4 200 2000 0; }
job_cuts() { job cuts; }
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 1ms'
for_modes job_cuts 100000

crowd() { run "$how" 200 40 3000 0; }
job_crowd() { job crowd; }
policy
for_modes job_crowd 0

# ... and such that live on for long enough to be upgraded by default.
lasting() { case $how in poll | epoll) run "$how" 200 600 3000 0 ;; esac; }
job_lasting() { job lasting; }
for_modes job_lasting 1000000
