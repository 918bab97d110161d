#!/bin/bash
# TIMEOUT: 120
# Libraries of two versions on a host: whichever has the discovery port, each process finds those
# of its own version by RDMA, and stays on TCP with the others, which says why.
. "$(dirname "$0")/lib.sh"
library 'earn_bytes 0'
sed -i 's/^discovery .*/discovery 60s/; s/^log_level .*/log_level 3/' "$RDMASHIM_CONF"
NEXT=$B/nic/librdmashim-next.so
[[ -e $NEXT ]] || skip "no library of another version: make $NEXT"
DISCOVERY=$PORT
OURS=$PRELOAD
THEIRS=${PRELOAD/$SHIM/$NEXT}
P=$B/apps/pattern
device profile=mlx5

# under LIBRARY NODE LOG CMD...
under() {
	SIMNIC_NODE=$2 LD_LIBRARY_PATH=$NIC RDMASHIM_LOG_FILE=$TMP/$3 LD_PRELOAD=$1 \
		timeout 150 "${@:4}"
}

# listen LIBRARY LOG OPTIONS...: pattern's process is $SERVER, and it listens at $PORT.
listen() {
	free_port PORT
	under "$1" a "$2" "$P" listen "${@:3}" "$PORT" >"$TMP/server" 2>&1 &
	SERVER=$!
	PIDS+=("$SERVER")
	within 20 listening "$PORT" || fail "no server: $(cat "$TMP/server")"
}

# It looks for its client's library in vain, and so has the port.
holder() {
	listen "$1" holder -d up -n 1000000000000
	HOLDER=$SERVER
	"$P" connect -s 10 -d up -n 1000000000000 127.0.0.1 "$PORT" >"$TMP/client" 2>&1 &
	BARE=$!
	PIDS+=("$BARE")
	within 20 listening "$DISCOVERY" || fail "nobody has the port: $(cat "$TMP/holder")"
}

# met SERVER CLIENT WORD: what the client's log must say before the streams are through.
met() {
	: >"$TMP/srv"
	: >"$TMP/cli"
	listen "$1" srv -d both -k 2 -s 2000 -n 1000000000000
	under "$2" b cli "$P" connect -d both -k 2 -s 2000 -n 1000000000000 127.0.0.1 "$PORT" \
		>"$TMP/client" 2>&1 &
	CLIENT=$!
	PIDS+=("$CLIENT")
	within 30 grep -q "$3" "$TMP/cli" ||
		fail "no '$3': $(tail -n 20 "$TMP/srv" "$TMP/cli" "$TMP/client")"
	kill -0 "$SERVER" "$CLIENT" || fail "a stream broke: $(cat "$TMP/server" "$TMP/client")"
	disown "$CLIENT" "$SERVER"
	# shellcheck disable=SC2046
	kill -KILL $(tree "$CLIENT" "$SERVER")
}

both() {
	holder "$2"
	say "$1 has the port"
	met "$OURS" "$OURS" 'RDMA path up'
	met "$THEIRS" "$THEIRS" 'RDMA path up'
	met "$OURS" "$THEIRS" 'TCP: version'
	met "$THEIRS" "$OURS" 'TCP: version'
	met "$THEIRS" "$THEIRS" 'RDMA path up'
	kill -0 "$HOLDER" || fail "the holder: $(cat "$TMP/holder")"
	grep -q 'holds the discovery port' "$TMP/holder" || fail "another one had the port"
	! grep -q 'holds the discovery port' "$TMP/srv" || fail "another one took the port"
	disown "$HOLDER" "$BARE"
	# shellcheck disable=SC2046
	kill -KILL $(tree "$HOLDER" "$BARE")
	: >"$TMP/holder"
}
both "this version" "$OURS"
both "another version" "$THEIRS"
exit 0
