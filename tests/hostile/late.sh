#!/bin/bash
# Acknowledgements come while the kernel's counts are looked at: the length of TCP's queue is told
# 60 ms late, of a connection that sends all the time and is cut over and rewound again and again.
# Every byte is compared.
# TIMEOUT: 100
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the runtime needs these calls for itself"
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 10ms'
free_port port
server "$B/bench/sockbench" -s "$port"
wait_port "$port"
shim_env
timeout 60 "$B/hostile/fault" outq 1 0 late env "${SHIM_ENV[@]}" "$B/bench/sockbench" -c 127.0.0.1 \
	"$port" -v -q -t 3 -f stream_16384 >"$TMP/client.log" 2>&1 3>&- ||
	{ (($? == 77)) &&
	skip "$(cat "$TMP/client.log")"; fail \
	"client: $(cat "$TMP/client.log") server: $(cat "$TMP/server.log")"; }
grep -qx 'bad_blocks 0 blocks' "$TMP/client.log" || fail "$(cat "$TMP/client.log")"
grep -q ' [1-9][0-9]* failed' "$TMP/client.log" || fail "nothing was late"
finish "$SRV" 20 || fail "server: $(cat "$TMP/server.log")"
collect
say "$CUTS cuts, $REWINDS rewinds, $FAST bytes on a fast path, on TCP because: $REASONS;" \
	"$(tail -n 1 "$TMP/client.log")"
((CUTS > 2)) || fail "only $CUTS cuts"
[[ $REASONS != *bypass* ]] || fail "the library's count and the kernel's differ"
