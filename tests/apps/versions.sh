#!/bin/bash
# The release before at one end, this library at the other, both ways: all bytes are right, this
# end says `version`, once, and looks no more; rdmastat names the process with the other library.
# TIMEOUT: 600
. "$(dirname "$0")/lib.sh"
# of the release before; other versions than ours of the records and the counter files
PREVIOUS=4bed4dd
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library of the release before has no sanitizer"
git -C "$TOP" cat-file -e "$PREVIOUS^{commit}" 2>/dev/null ||
	skip "no git history with $PREVIOUS here: the release before cannot be built"
OLD=$B/previous/$PREVIOUS/build/librdmashim.so
if [[ ! -e $OLD ]]; then
	rm -rf "$B/previous" && mkdir -p "$B/previous/$PREVIOUS" || fail "no place to build in"
	git -C "$TOP" archive $PREVIOUS | tar -x -C "$B/previous/$PREVIOUS" ||
		fail "the release before cannot be unpacked"
	env -u MAKEFLAGS -u MAKELEVEL -u B -u SHIM make -C "$B/previous/$PREVIOUS" \
		-j2 build/librdmashim.so >"$TMP/build.log" 2>&1 ||
		fail "the release before cannot be built"
fi
MODES=both
cat >"$TMP/talk.py" <<'END2'
# server PORT; client PORT ORDERS: rounds as long as the file ORDERS is not there, then a count of
# what was right
import os, socket, sys
def block(i):
    return bytes((i + k) & 255 for k in range(1000))
if sys.argv[1] == "server":
    s, _ = socket.create_server(("127.0.0.1", int(sys.argv[2]))).accept()
    i = 0
    while b := s.recv(1000, socket.MSG_WAITALL):
        assert b == block(i), i
        s.sendall(block(i + 1))
        i += 1
else:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    i = 0
    at = os.open(sys.argv[3] + ".at", os.O_CREAT | os.O_WRONLY)
    while not os.path.exists(sys.argv[3]):
        s.sendall(block(i))
        assert s.recv(1000, socket.MSG_WAITALL) == block(i + 1), i
        i += 1
        os.pwrite(at, b"%9d" % i, 0)
print("right")
END2

ask() { RDMASHIM_STAT_DIR=$STAT/new "$TMP/rdmastat" "$@" 2>"$TMP/err.log"; }
has_reason() {
	ask conn -j |
		python3 -S -E -c \
		'import json, sys; sys.exit(sys.argv[1] not in [c["reason"]
			for c in json.load(sys.stdin)["connections"]])' "$1"
}
rounds() {
	local n=''
	read -r n 2>/dev/null <"$TMP/end.at"
	echo "${n:-0}"
}
later() { (($(rounds) > $1)); }
links_lost() {
	ask -j |
		python3 -S -E -c \
		'import json, sys; print(json.load(sys.stdin)["total"]["counters"]["links_lost"])'
}

# LIBRARY DIRECTORY LOG CMD...
with() {
	local lib=$1 dir=$2 log=$3
	shift 3
	mkdir -p -m 700 "$STAT/$dir"
	start none "$log" env LD_PRELOAD="$lib" RDMASHIM_CONF="$CONF" \
		RDMASHIM_STAT_DIR="$STAT/$dir" RDMASHIM_LOG_FILE="$TMP/shim.$dir" "$@"
}

# run SERVER CLIENT WANT: `old` or `new` each; the reason of the new end
run() {
	local port lib=("$SHIM" "$SHIM") n lost srv
	rm -rf "$STAT" "$TMP"/end* "$TMP"/shim.*
	mkdir -m 700 "$STAT"
	[[ $1 == new ]] || lib[0]=$OLD
	[[ $2 == new ]] || lib[1]=$OLD
	free_port port
	with "${lib[0]}" "$1" "$TMP/server.log" python3 -S -E "$TMP/talk.py" server "$port"
	srv=$PID
	wait_port "$port"
	with "${lib[1]}" "$2" "$TMP/client.log" python3 -S -E "$TMP/talk.py" client "$port" \
		"$TMP/end"
	within 10 has_reason "$3" ||
		fail "$1 server, $2 client: the new end does not say $3: $(ask conn)"
	if [[ $3 == version ]]; then
		lost=$(links_lost)
		((lost <= 3)) || fail "$1 server, $2 client: $lost links were made and dropped"
		n=$(rounds)
		within 20 later $((n + 3000)) ||
			fail "$1 server, $2 client: the programs stand still"
		has_reason version ||
			fail "$1 server, $2 client: the new end says something else later:" \
			"$(ask conn)"
		((lost == $(links_lost))) || fail "$1 server, $2 client: it goes on making links"
		[[ $1 == new ]] && n=$srv || n=$PID
		ask why "$(ask why "$n" | grep -o "^$n:[0-9]*")" >"$TMP/why.log"
		grep -Eq 'of another version: (4|an older one) there, [0-9]+ here' "$TMP/why.log" ||
			fail "$1 server, $2 client: why says $(<"$TMP/why.log")"
		grep -Eq 'older version of the library|another version of the library, 4,' \
			"$TMP/shim.new" ||
			fail "$1 server, $2 client: the log does not name the versions"
		RDMASHIM_STAT_DIR=$STAT/old "$TMP/rdmastat" >"$TMP/old.log" 2>&1
		grep -Eq "^rdmastat: [0-9]+ python3: an older library.*restart it to see it$" \
			"$TMP/old.log" || fail "of an old process rdmastat says: $(<"$TMP/old.log")"
	fi
	: >"$TMP/end"
	finish "$PID" 20 || fail "client"
	finish "$srv" 20 || fail "server"
	grep -qx right "$TMP/client.log" && grep -qx right "$TMP/server.log" ||
		fail "bytes are lost or wrong"
	say "$1 server, $2 client: $3, ${lost:-0} links"
}
begin_mode both
# The old library knows the keys by their former names.
policy 'earn_bytes 0' 'earn_rounds 0' 'rendezvous 2s' 'log_level 2'
run new new -
run new old version
run old new version
