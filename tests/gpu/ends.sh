#!/bin/bash
# What ends in the middle: a receiver or a sender that is killed, device memory that does not
# suffice. Nothing hangs, nothing is wrong, and the program that is left ends as it would on TCP.
# TIMEOUT: 100
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the stand-in's memory is not a sanitizer's"
export LD_LIBRARY_PATH=$B/gpu STANDIN_DELAY=60
policy "device eager" "device_memory 16M" "earn_bytes 0" "overflow 10s" "log_level 3"

used() { grep -sq "GPU path: .* shared" "$TMP/shim.$MODE"; }

# killed WHO: pair runs until the GPU path works, then one of the two is killed; the other must
# end, and not by a signal of its own.
killed() {
	local sender receiver rc
	begin_mode "kill-$1"
	start shim "$TMP/client.log" "$B/gpu/pair" linked 100000 $((RANDOM + 1))
	sender=$PID
	within 20 used || fail "the GPU path was not used"
	sleep 0.$((RANDOM % 5 + 1))	# any moment is a good one
	receiver=$(pgrep -P "$sender") || fail "no receiver"
	if [[ $1 == receiver ]]; then
		kill -KILL "$receiver"
		finish "$sender" 20
		rc=$?
		((rc == 4)) || fail "the sender ended with $rc: $(tail -n 3 "$TMP/client.log")"
	else
		kill -KILL "$sender"
		within 20 gone "$receiver" || fail "the receiver goes on"
	fi
	grep -q differs "$TMP/client.log" && fail "$(grep differs "$TMP/client.log")"
	say "done"
}
killed receiver
killed sender

begin_mode no-memory
out=$(run_with shim env STANDIN_MEM=20971520 "$B/gpu/pair" linked 60 5 \
	1000000 2>"$TMP/client.log") || fail "$out $(cat "$TMP/client.log")"
say "$out"
own=$(sed -n 's/.*GPU path: \([0-9]*\) bytes of device memory.*/\1/p' "$TMP/shim.$MODE" | sort -n |
	tail -n 1)
((own <= 20971520 / 8)) || fail "the library took $own bytes of a device of 20 MiB"
begin_mode little-memory
policy "device eager" "device_memory 4M" "earn_bytes 0" "overflow 10s" "log_level 3"
out=$(run_with shim "$B/gpu/pair" dlsym 80 6 4000000 2>"$TMP/client.log") ||
	fail "$out $(cat "$TMP/client.log")"
say "$out"
