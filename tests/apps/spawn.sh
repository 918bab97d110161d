#!/bin/bash
# A connection on shared memory is given to a child that is not made by fork: vfork and dup2,
# posix_spawn with file actions, a descriptor that leaks into system() and popen(), Python's
# subprocess. The child runs another program, which must find every byte on TCP; after it the
# parent goes on, on shared memory again.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
MODES=bare${SHIM:+ both}
S=$B/apps/spawn

all_cut() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" -c >"$TMP/ends" &&
		awk -v port=":$1\$" \
		'$4 ~ port || $5 ~ port { n++; cut += $7 == "shm" && $8 == "shm" } END {
			exit n != 2 || cut != 2 }' "$TMP/ends"
}

# gate PORT: twice, before the child and after it, the program talks until both ends are on shared
# memory both ways.
gate() {
	for _ in 1 2; do
		within 30 test -e "$GATE" || return
		within 10 all_cut "$1" || cat "$TMP/ends" >>"$TMP/gate.log"
		rm "$GATE" || return
	done
	: >"$TMP/gate.passed"
}

one() {
	local port waiter=
	free_port port
	unset GATE
	if [[ $MODE == both ]]; then
		export GATE=$TMP/gate
		rm -f "$GATE"
		rm -f "$TMP/gate.passed"
		: >"$TMP/gate.log"
		gate "$port" 2>>"$TMP/gate.log" &
		waiter=$!
	fi
	if [[ $2 == client ]]; then
		server "$S" echo listen "$port"
		wait_port "$port"
		client "$S" "$1" connect 127.0.0.1 "$port" >"$TMP/client.log" 2>&1 ||
			fail "$1 at the client: $(cat "$TMP/client.log")"
	else
		server "$S" "$1" listen "$port"
		wait_port "$port"
		client "$S" echo connect 127.0.0.1 "$port" >"$TMP/client.log" 2>&1
	fi
	finish "$SRV" 10 || fail "$1 at the $2, server: $(cat "$TMP/server.log")"
	[[ -z $waiter ]] || wait "$waiter" || [[ -e $TMP/gate.passed ]] ||
		fail "$1 at the $2: no child; $(cat "$TMP/gate.log")"
	{ echo "$1 at the $2"; cat "$TMP/client.log" "$TMP/server.log"; } >>"$OUT"
}

# counted WHAT CUTS: the counters of what ran since the last time; each of both ends cuts both
# directions anew after the child.
counted() {
	[[ $MODE == bare ]] && return
	collect
	rm -f "$STAT"/*
	say "$1: $CONNS ends of connections, $FAST bytes on a fast path, $CUTS cuts, on TCP" \
		"because: $REASONS"
	((FAST >= 50000)) || fail "$1: only $FAST bytes on a fast path"
	((CUTS >= $2)) || fail "$1: only $CUTS cuts: it was not cut again after the child, or" \
		"never: $(cat "$TMP/gate.log")"
}

# ThreadSanitizer's runtime makes fork() of vfork(), past the library's wrapper: what a child of
# vfork does cannot be tried there.
scenarios() {
	"$S" list | if [[ ${SAN-} == thread ]]; then grep -v -e vfork -e exec-fails; else cat; fi
}

job() {
	local s port
	for s in ${SCENARIOS:-$(scenarios)}; do
		one "$s" client
		counted "$s at the client" 8
		one "$s" server
		counted "$s at the server" 8
	done
	[[ -n ${SCENARIOS-} || ${SAN-} == thread ]] && return	# Python makes its children by vfork
	free_port port
	server "$S" echo listen "$port"
	wait_port "$port"
	client timeout 60 python3 "$TOP/tests/apps/spawn.py" "$S" "$port" >>"$OUT" \
		2>"$TMP/client.log" || fail "spawn.py: $(cat "$TMP/client.log")"
	finish "$SRV" 10 || fail "the peer of spawn.py: $(cat "$TMP/server.log")"
	counted spawn.py 8
}

for m in $MODES; do
	begin_mode "$m"
	policy 'earn_bytes 0' 'earn_rounds 0'
	job
	same_as_bare
done
