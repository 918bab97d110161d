#!/bin/bash
# Senders change over to a larger ring when they send more at a time than the small one takes and
# do not wait, or have waited for room again and again: every way of waiting, beside forced cuts
# and rewinds; not without memory for it.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
P=$B/apps/pattern

# changes: how often a ring was changed.
changes() { grep -c 'large ring' "$TMP/shim.$MODE"; }

job() {
	local how every memory port total=0 n
	for how in poll epoll oneshot edge short block; do
		for every in 0 2ms; do
			for memory in 1M 32K; do
				policy 'earn_bytes 0' 'earn_rounds 0' 'ring_size 16K' \
					'ring_max 64K' "ring_memory $memory" \
					"force_cut_every $every" 'log_level 4'
				: >"$TMP/shim.$MODE"
				n=8000000
				# not over before it is cut over
				[ $how:$memory:$every != block:1M:0 ] || n=80000000
				free_port port
				server "$P" listen -w $how -k 2 -n $n "$port"
				wait_port "$port"
				client "$P" connect -w $how -k 2 -n $n 127.0.0.1 \
					"$port" >"$TMP/client.log" ||
					fail "client $how: $(cat "$TMP/client.log")"
				finish "$SRV" 20 || fail "server $how: $(cat "$TMP/server.log")"
				{ echo "$how"; sort "$TMP/client.log" "$TMP/server.log"; } >>"$OUT"
				[ "$MODE" = both ] || continue
				case $how:$memory:$every in
				block:1M:0) [ "$(changes)" != 0 ] ||
					fail "no sender that waits changed its ring" ;;
				*:32K:*) [ "$(changes)" = 0 ] ||
					fail "$how: $(changes) rings were changed without memory" \
					"for one" ;;
				*) ((total += $(changes))) ;;
				esac
			done
		done
	done
	[ "$MODE" = bare ] || ((total > 10)) || fail "$total rings were changed in all"
}
MODES=bare${SHIM:+ both}
for_modes job 1000000
