#!/bin/bash
# A forked worker of a server, of another user by now and taken over, writes lies into the memory
# that it shares with its parent, and silences the timers that it inherited. The parent's fork(),
# close() and bursts on new connections take no longer than 100 ms, no byte is wrong, a child that
# comes later goes on with its connection, and new connections are on the fast path.
# TIMEOUT: 240
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "only root's worker can become another user"
BOUND_US=100000
# a quarter of what is moved: some of it goes before the ends have met, within 2 ms or, on a loaded
# machine, 20; a round moves 24 MB, so that a round's beginning does not decide
BYTES=$((15 * 100 * 60000))

for attack in none taken pids fallback wild silence; do
	begin_mode both
	OUT=$TMP/out.$attack STAT=$TMP/stat.$attack
	mkdir -p -m 700 "$STAT"
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	server "$B/hostile/victim" echo "$port"
	wait_port "$port"
	client timeout 100 "$B/hostile/holders" "$attack" "$port" >"$TMP/client.log" 2>&1 ||
		fail "$attack: status $?: $(tail -n 3 "$TMP/client.log")"
	stop "$SRV"
	collect
	say "$attack: $(cat "$TMP/client.log") us, $FAST bytes on a fast path"
	read -r _ fork _ close _ speak <"$TMP/client.log"
	((fork <= BOUND_US && close <= BOUND_US && speak <= BOUND_US)) ||
		fail "$attack: a call took longer than 100 ms"
	((FAST >= BYTES)) || fail "$attack: the new connections lost the fast path: $FAST bytes," \
		"not $BYTES"
done
exit 0
