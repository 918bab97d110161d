#!/bin/bash
# One end earns, and looks for the other, while that cannot be there: its program has not read
# yet, or its process stands still, for longer than anybody looks. When both go on they find each
# other, whether there is a link or not. Where one end has no library nobody looks for ever.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"

DONE=0
told() { grep -qs "^done $DONE$" "$TMP/client.log" || gone "$CLIENT"; }
# order LINE: the client does it. tell LINE: it begins to.
tell() { echo "$*" >"$TMP/fifo"; ((++DONE)); }
order() {
	tell "$*"
	within 30 told
	gone "$CLIENT" && fail "the client has ended: $(cat "$TMP/client.log")"
}
# are ENDS CONDITION: so many ends are there, and it holds for each
are() {
	TOOK=$(python3 -S -E "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" "$1" 20 \
		"$2") ||
		fail "$2: $TOOK"
}
# A direction is cut over when something is sent: while it talks, both are.
on_shm() {	# ENDS
	local i
	for i in {1..20}; do
		order talk 10 10 100
		TOOK=$(python3 -S -E "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" \
			"$1" 1 "$ON_SHM") && return
	done
	fail "it talks, and stays on TCP: $TOOK"
}
one_is() { are "$1" "'$2' in [x['reason'] for x in rows]"; }
begin() {
	begin_mode "$1"
	rm -f "$STAT"/* "$TMP/fifo"
	mkfifo "$TMP/fifo"
	DONE=0
	free_port port
	server python3 -S "$TOP/tests/apps/notfound.py" serve "$port"
	wait_port "$port"
	start client "$TMP/client.log" python3 -S "$TOP/tests/apps/notfound.py" ask "$port" \
		"$TMP/fifo"
	CLIENT=$PID
}
end() {
	echo quit >"$TMP/fifo"
	finish "$CLIENT" 20 || fail "client: $(cat "$TMP/client.log")"
	stop "$SRV"
}
ON_SHM="c['tx_path'] == c['rx_path'] == 'shm'"

# The client reads its first answer late: until then its socket does not say that the library is
# there.
reads_late() {
	local ends=2
	begin both
	if [[ $1 == link ]]; then
		order open
		order talk 1000 1000 100
		on_shm 2
		ends=4
	fi
	order open
	order ask 300000 10
	one_is $ends peer-no-shim
	order read
	order talk 65536 10 500
	on_shm $ends
	say "a client that read late, with ${1/link/a} link: on shared memory after $TOOK"
	end
}
reads_late link
reads_late no

# The server's process stands still.
policy 'discovery 100ms'
begin both
order open
order talk 10 10 1
kill -STOP "$SRV"
tell ask 10 1500000
one_is 2 peer-no-shim
kill -CONT "$SRV"
order read
order talk 65536 65536 300
on_shm 2
say "a server that stood still: on shared memory after $TOOK"
end

# And where there is no library: a few looks while 300 MB go by, and no more.
searches() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" why "$1" --json |
		python3 -S -E -c 'import json, sys
for c in json.load(sys.stdin)["connections"]:
    print(sum(h["event"] == "search" for h in c["history"]))'
}
for who in client server; do
	begin $who
	order open
	order talk 65536 65536 100
	are 1 "c['reason'] == 'peer-no-shim'"
	order talk 65536 65536 2300
	pid=$SRV
	[[ $who == client ]] && pid=$CLIENT
	n=$(searches "$pid")
	say "searches for the other end, which has no library: $n"
	((n >= 2 && n <= 4)) || fail "it was searched for '$n' times"
	are 1 "c['reason'] == 'peer-no-shim'"
	end
done
