#!/bin/bash
# Strict overcommit (vm.overcommit_memory 2) and nothing left of it: a page of shared memory that
# is not there yet is SIGBUS then. Who is cut over goes on by what is there; who would be cut over
# now stays on TCP, and it is said why; and when there is memory again, the next one is cut over.
# HOSTS: 1
# DEVICE: none
# TIMEOUT: 200
. "${TOP:?}/tests/vm/lib.sh"
[[ -n $SHIM ]] || skip "no SHIM="
# In between this shell cannot start a program either.
nothing_left() { echo 1 >/proc/sys/vm/overcommit_kbytes; }
enough() { echo 8000000 >/proc/sys/vm/overcommit_kbytes; }
cuts() { grep -c "cut over" "$TMP/shim.log" 2>/dev/null; }
is_cut() { (($(cuts) >= $1)); }
moved() { [[ -e $TMP/small ]]; }

pair() {
	rm -f "$TMP"/{small,go,done}
	new_port port
	start "$1" shim python3 -S -X faulthandler tests/vm/strict.py serve "$P4" "$port"
	wait_port "$port" || fail "the server does not listen"
	start "$1.cli" shim python3 -S -X faulthandler tests/vm/strict.py ask "$P4" "$port" "$TMP" \
		${2:+"$2"}
	within 30 moved || fail "nothing moves"
}
# Who started them cannot note how they ended while there is nothing left.
gone() { [[ -e $TMP/done ]] || ! kill -0 "$1" 2>/dev/null; }
large() {
	local pid
	pid=$(pid_of "$1.cli")
	nothing_left
	: >"$TMP/go"
	within 60 gone "$pid"
	enough
	[[ -e $TMP/done ]] ||
		fail "$1: large messages did not get there: $(output "$1.cli") $(output "$1")"
}

was=$(<"/proc/sys/vm/overcommit_memory") kb=$(<"/proc/sys/vm/overcommit_kbytes") \
	ratio=$(<"/proc/sys/vm/overcommit_ratio")
trap 'echo "$was" >/proc/sys/vm/overcommit_memory; echo "$kb" >/proc/sys/vm/overcommit_kbytes
	((kb)) || echo "$ratio" >/proc/sys/vm/overcommit_ratio' EXIT
enough
echo 2 >/proc/sys/vm/overcommit_memory

policy 'earn_bytes 0' 'earn_rounds 0' 'log_level 3'
pair roomy
within 30 is_cut 4 || fail "not cut over with memory to spare: $(tail -n 5 "$TMP/shim.log")"
large roomy
say "cut over, then nothing is left: $(counters)"

before=$(cuts)
pair poor late
within 30 is_cut $((before + 4)) ||
	fail "not cut over with memory to spare: $(tail -n 5 "$TMP/shim.log")"
before=$(cuts)
large poor
line=$(counters)
say "nothing is left for a second connection: $line"
(($(cuts) == before)) || fail "cut over without memory"
[[ $(counter reasons "$line") == *no-memory:* ]] ||
	{ tail -n 30 "$TMP/shim.log"; fail "the reason is not said"; }

pair again
within 30 is_cut $((before + 4)) ||
	fail "not cut over with memory to spare again: $(tail -n 5 "$TMP/shim.log")"
large again
say "with memory again: $(counters)"
