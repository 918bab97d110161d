#!/bin/bash
# Connections of a program that has an io_uring as libuv has it, for epoll_ctl() alone, take a
# fast path; what other submissions name does not.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
"$B/snippets/rings" io_uring_epoll 2>/dev/null | grep "io_uring: there" >/dev/null ||
	skip "no io_uring here"

begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
run_with shim env SNIP_WAIT_CUT=1 "$B/snippets/rings" io_uring_epoll >"$TMP/client.log" 2>&1 ||
	fail "status $?"
collect
say "registrations by a ring: $FAST bytes on a fast path, $CUTS cuts; on TCP because: $REASONS"
((FAST > 0)) || fail "all on TCP"
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
run_with shim env SNIP_WAIT_CUT=1 "$B/snippets/rings" io_uring >"$TMP/client.log" 2>&1 ||
	fail "status $?"
collect
say "bytes by a ring: $FAST bytes on a fast path, $CUTS cuts; on TCP because: $REASONS"
[[ $REASONS == *foreign-wait:* ]] || fail "nothing was noticed"
