#!/bin/bash
# TIMEOUT: 300
# Large blocks that the receiver's device reads out of the sender's memory: every byte right, from
# and into memory that is written over and unmapped as soon as its call is over, while signals come,
# children write over what they inherit, paths fail and streams go to TCP and back in the middle;
# nothing comes into a buffer behind its call. Who does not do it, or has no room for it, copies.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0' 'rdma_pull 128K'
PULL=$TOP/tests/nic/pull.py
OTHER=$RDMASHIM_CONF

# begin HOW-OF-THE-SERVER HOW-OF-THE-CLIENT BYTES
begin() {
	rm -rf "$TMP/stat" "$TMP/a" "$TMP/b"
	mkdir -m 700 "$TMP/stat"
	: >"$TMP/log"
	free_port PORT
	preloaded a python3 "$PULL" listen "$PORT" "$1" "$3" "$TMP/a" >"$TMP/server" 2>&1 &
	SERVER=$!
	PIDS+=("$SERVER")
	within 20 listening "$PORT" || fail "server: $(cat "$TMP/server")"
	preloaded b env RDMASHIM_CONF="$OTHER" python3 "$PULL" connect "$PORT" "$2" "$3" \
		"$TMP/b" >"$TMP/client" 2>&1 &
	CLIENT=$!
	PIDS+=("$CLIENT")
}
said() { cat "$TMP/client" "$TMP/server"; tail -n 5 "$TMP/log"; }
# end WHAT [STATUS]
end() {
	local rc
	wait "$CLIENT"
	rc=$?
	((rc == ${2:-0})) || fail "$1: client $rc: $(said)"
	wait "$SERVER"
	rc=$?
	((rc == ${2:-0})) || fail "$1: server $rc: $(said)"
	"$B/rdmastat" --json --all >"$TMP/stat.json" || fail "rdmastat"
	read -r PULLED OFFERED REFUSED BAD < <(python3 -S -E -c 'import json, sys
c = json.load(sys.stdin)["total"]["counters"]
print(c["pulled"], c["pulls_offered"], c["pulls_refused"], c["bad_peer"])' <"$TMP/stat.json")
	((BAD == 0)) || fail "$1: a peer that breaks the protocol: $(said)"
	say "$1: pulled $((PULLED / 2)) bytes, $OFFERED offers, $REFUSED refused"
}
# some BYTES WHAT HOW-OF-THE-SERVER HOW-OF-THE-CLIENT BYTES: more than so many are pulled in one
# try, of some: what the path is late with on a busy machine goes by TCP.
some() {
	local most=$1 what=$2
	shift 2
	for _ in 1 2 3 4; do
		begin "$@"
		end "$what"
		((PULLED <= most)) || return 0
	done
	fail "$what: only $PULLED bytes were pulled"
}

device profile=mlx5
some 30000000 plain plain plain 100000000
some 10000000 signals signals signals 60000000
begin forks forks 60000000
end forks
some 10000000 "one way" reader plain 60000000

# Ended by another thread while send() has a block out: what send() says it has sent comes, and no
# more.
number() { sed -n "s/.*$1 \([0-9]*\).*/\1/p" "$TMP/$2"; }
for _ in 1 2 3 4 5; do
	begin shut plain 40000000
	wait "$CLIENT" || fail "shut: client: $(said)"
	wait "$SERVER"
	(($? == 3)) || fail "shut: server: $(said)"
	[[ $(number sent server) == "$(number received client)" ]] || fail "shut: $(said)"
	! grep -q "came after\|wrong" "$TMP/server" "$TMP/client" || fail "shut: $(said)"
	say "shut: $(tail -n 1 "$TMP/server")"
	begin close plain 40000000
	wait "$CLIENT"
	ended=$?
	wait "$SERVER"
	(($? == 3)) || fail "close: server: $(said)"
	# a server that has read all before ends without a reset
	[[ $ended == 3 || ($ended == 0 && $(number received server) == 40000000 &&
		$(number received client) == "$(number sent server)") ]] ||
		fail "close: client, status $ended: $(said)"
	(($(number received client) <= 40000000)) || fail "close: $(said)"
	say "close: $(tail -n 1 "$TMP/server")"
done

# In the middle of a block: a path that fails, a peer that is stopped, or killed, or that closes.
at() { [[ -s $TMP/a ]] && (($(od -An -tu8 -N8 "$TMP/a") > $1)); }
dead() { grep -q 'path is dead' "$TMP/log"; }
for what in "fail a" "fail b" "remove b" "add b" "stall a 300" "set loss_ppm=3000" \
	"set loss_ppm=0"; do
	begin plain plain 70000000
	within 30 at 20000000 || fail "it stands still: $(said)"
	# shellcheck disable=SC2086
	ctl $what || fail "ctl $what"
	end "$what"
	[[ $what != fail* && $what != remove* ]] || dead || fail "$what: no path died"
done
# Stopped while a block stands, which it mostly does: a second later nobody may read it any more.
for _ in 1 2 3 4 5 6 7 8; do
	begin plain plain 100000000
	within 30 at 40000000 || fail "it stands still: $(said)"
	pid=$(head -n 1 "$TMP/server")
	kill -STOP "$pid"
	within 2 dead
	kill -CONT "$pid"
	end "stopped and continued"
	! dead || break
done
dead || fail "a peer that was stopped: its path lives"
for half in plain reader; do
	begin "$half" plain 4000000000
	within 30 at 200000 || fail "it stands still: $(said)"
	kill -KILL "$(head -n 1 "$TMP/server")"
	wait "$CLIENT"
	rc=$?
	((rc == 3)) || fail "killed: client $rc: $(said)"
	wait "$SERVER"
	say "killed: $(cat "$TMP/client")"
done

for line in 'force_cut_every 5ms' 'force_cut_every 40ms'; do
	echo "$line" >>"$RDMASHIM_CONF"
	begin plain plain 70000000
	end "$line"
	sed -i '$d' "$RDMASHIM_CONF"
done

# Who has no room for it, or does not do it.
echo 'rdma_memory 6M' >>"$RDMASHIM_CONF"
begin plain plain 40000000
end "little memory"
((REFUSED > 0)) || fail "nothing was refused"
sed -i '$d' "$RDMASHIM_CONF"
OTHER=$TMP/other.conf
sed 's/^rdma_pull.*/rdma_pull 0/' "$RDMASHIM_CONF" >"$OTHER"
begin plain plain 40000000
end "a peer that does not"
((OFFERED == 0)) || fail "it was offered $OFFERED blocks"
no_device
OTHER=$RDMASHIM_CONF

# As the device's costs say, which are what they are; one that registers for more than copying costs
# is never told of a block.
sed -i 's/^rdma_pull.*/rdma_pull 1/' "$RDMASHIM_CONF"
for dear in 0 1000; do
	device profile=mlx5 "reg_ps_byte=$dear" "reg_ns=$((dear * 100))" "dereg_ns=0"
	begin plain plain 60000000
	end "$dear ps for a byte registered"
	say "$(grep -h -m 1 'worth being read by' "$TMP/log")"
	((!dear || !OFFERED)) || fail "$OFFERED blocks were offered"
	no_device
done
device profile=iwarp
begin plain plain 40000000
end iwarp
((OFFERED == 0)) || fail "iWARP: $OFFERED offers"
exit 0
