#!/bin/bash
# discovery_dir: the ends of a connection meet in a directory, and only those that have the same
# one; a directory that others may write to is not used; what a dead process left there is in
# nobody's way; connections of two network namespaces that have the same addresses and share the
# directory are not taken for one another.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow, and what is tested is names"
MODES=both
cp "$TOP/tests/apps/"{discovery,echo}.py "$TMP"
quickly=('earn_bytes 0' 'earn_rounds 0' 'log_level 3')
SOURCE=$((10000 + RANDOM % 9000))

# The name of the socket file of a connection SOURCE -> PORT over 127.0.0.1
file_of() { printf 'shim1.%04x%04x7f000001%024x7f000001%024x' "$1" "$2" 0 0; }
unix_socket() {
	python3 -S -E -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$1"
}

without_proc=(unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh)
# A filter that permits everything: prctl(PR_SET_NO_NEW_PRIVS), prctl(PR_SET_SECCOMP, MODE_FILTER).
filtered=(/usr/bin/python3 -S -E -c 'import ctypes, os, struct, sys
c = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow))
assert not c.prctl(38, 1, 0, 0, 0) and not c.prctl(22, 2, program)
os.execvp(sys.argv[1], sys.argv[1:])')

# up SERVER-DIR CLIENT-DIR MORE...: a server and a client with these directories (empty: none),
# and further lines of policy. NO_PROC=server or client: that one without /proc. FILTERED: both
# below a filter of system calls.
up() {
	local s=$1 c=$2 no_proc=("${without_proc[@]}") filter=(${FILTERED:+"${filtered[@]}"}) wrap
	shift 2
	rm -f "$TMP/stop"
	policy "${quickly[@]}" "${s:+discovery_dir $s}" "$@"
	[[ ${NO_PROC-} == server ]] && wrap=("${no_proc[@]}") || wrap=()
	start shim "$TMP/server.log" "${wrap[@]}" "${filter[@]}" python3 -S -E "$TMP/discovery.py" \
		server "$port"
	SRV=$PID
	wait_port "$port" 40
	CONF=$TMP/client.conf
	policy "${quickly[@]}" "${c:+discovery_dir $c}" "$@"
	[[ ${NO_PROC-} == client ]] && wrap=("${no_proc[@]}") || wrap=()
	start shim "$TMP/client.log" "${wrap[@]}" "${filter[@]}" python3 -S -E "$TMP/discovery.py" \
		client "$port" $((++SOURCE)) "$TMP/stop"
	CONF=$TMP/policy.conf
	CLIENT=$PID
}
down() {
	: >"$TMP/stop"
	finish "$CLIENT" 15 || fail "$MODE: $(cat "$TMP/client.log")"
	stop "$SRV"
}
# both_are CONDITION: of both ends, as live.py has it
both_are() {
	took=$(python3 -S -E "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" 2 20 "$1") ||
		fail "$MODE: $took"
}
empty() { [[ -z $(ls -A "$1") ]]; }

D=$TMP/$(printf 'meet%.0s' {1..40})	# longer than an address may be
mkdir -m 700 "$D" "$TMP/other"

begin_mode same
free_port port
# in the way: a file of this very connection, and one that has been left alone for long
unix_socket "$TMP/here" && mv "$TMP/here" "$D/$(file_of $((SOURCE + 1)) "$port")"
unix_socket "$TMP/here" && touch -d '1 hour ago' "$TMP/here" && mv "$TMP/here" "$D/$(file_of 1 1)"
up "$D" "$D"
both_are "c['tx_path'] == c['rx_path'] == 'shm'"
within 10 empty "$D" || fail "left in the directory: $(ls "$D")"
down

begin_mode without-proc
if unshare -m mount -t tmpfs none /proc 2>/dev/null; then
	doctor=("${without_proc[@]}" "$TMP/rdmastat" doctor --no-transfer --lib "$SHIM")
	for who in server client; do
		free_port port
		NO_PROC=$who up "" ""
		both_are "c['tx_path'] == c['rx_path'] == 'shm'"
		down
		# no call is made that a filter may forbid: this end can prove nothing, and cannot
		# see what filter the other one has
		free_port port
		NO_PROC=$who FILTERED=1 up "" ""
		both_are "c['tx_path'] == c['rx_path'] == 'tcp' and c['reason'] in ('identity', \
			'no-discovery', 'peer-no-shim', 'peer-refused')"
		down
	done
	"${doctor[@]}" >"$TMP/text"
	grep -q "^ok *identity" "$TMP/text" || fail "doctor: $(cat "$TMP/text")"
	doctor=("${without_proc[@]}" "${filtered[@]}" "${doctor[@]:${#without_proc[@]}}")
	"${doctor[@]}" >"$TMP/text"
	grep -q "^FAIL identity .*thread-self" "$TMP/text" || fail "doctor: $(cat "$TMP/text")"
else
	say "mounts are not permitted here: without /proc is not tried"
fi

begin_mode different
free_port port
up "$D" "$TMP/other" 'discovery 200ms'
both_are "c['tx_path'] == c['rx_path'] == 'tcp' and c['reason'] == 'peer-no-shim'"
down
empty "$D" || fail "left in the directory: $(ls "$D")"

begin_mode one-has-none
free_port port
up "$D" "" 'discovery 200ms'
both_are "c['tx_path'] == c['rx_path'] == 'tcp'"
down

begin_mode open-to-others
free_port port
chmod 777 "$TMP/other"
up "$TMP/other" "$TMP/other"
both_are "c['tx_path'] == c['rx_path'] == 'tcp' and c['reason'] == 'no-discovery'"
down
RDMASHIM_CONF=$TMP/client.conf "$TMP/rdmastat" doctor --no-transfer --lib "$SHIM" >"$TMP/text"
grep -q "^FAIL discovery socket .*mode 0777: others may write there" "$TMP/text" ||
	fail "doctor: $(cat "$TMP/text")"
chmod 700 "$TMP/other"
RDMASHIM_CONF=$TMP/client.conf "$TMP/rdmastat" doctor --no-transfer --lib "$SHIM" >"$TMP/text"
grep -q "^ok   discovery socket .*$TMP/other" "$TMP/text" || fail "doctor: $(cat "$TMP/text")"
empty "$TMP/other" || fail "the doctor left something there: $(ls "$TMP/other")"
rmdir "$TMP/other"
RDMASHIM_CONF=$TMP/client.conf "$TMP/rdmastat" doctor --no-transfer --lib "$SHIM" >"$TMP/text"
grep -q "^FAIL discovery socket .*No such file" "$TMP/text" || fail "doctor: $(cat "$TMP/text")"
grep -q "^ *-> mkdir -m 700 $TMP/other, as the user" "$TMP/text" ||
	fail "doctor: $(cat "$TMP/text")"

# ---- two network namespaces, in each a connection with the same four numbers; the library is in
# one's client and in the other's server
unshare -n ip link set lo up 2>/dev/null ||
	{ say "network namespaces are not permitted here: not tried"; exit 0; }
begin_mode namespaces
policy "${quickly[@]}" "discovery_dir $D" 'discovery 20s'
free_port port
rm -f "$TMP/stop"
shim_env
cat >"$TMP/inside" <<'IN'
ip link set lo up
who=$1 port=$2 source=$3 tmp=$4
shift 4
bare=(MARK=1)	# so that the other end looks for it as long as for one with the library
[[ $who == server ]] && s=("$@") c=("${bare[@]}") || s=("${bare[@]}") c=("$@")
env "${s[@]}" python3 -S -E "$tmp/discovery.py" server "$port" &
server=$!
until [[ -n $(ss -Hltn "sport = :$port") ]]; do kill -0 $server || exit 1; sleep 0.05; done
env "${c[@]}" python3 -S -E "$tmp/discovery.py" client "$port" "$source" "$tmp/stop"
rc=$?
kill $server
exit $rc
IN
for who in client server; do
	start none "$TMP/$who.log" unshare -n bash "$TMP/inside" $who "$port" "$SOURCE" "$TMP" \
		"${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP/shim.$who"
	declare "$who=$PID"
done
refused() { grep -qs 'could not prove that it holds the other end' "$TMP/shim.server"; }
within 30 refused || fail "they did not even meet: $(tail -n 5 "$TMP"/shim.*)"
: >"$TMP/stop"
# shellcheck disable=SC2154
finish "$client" 15 && finish "$server" 15 || fail "$(cat "$TMP/client.log" "$TMP/server.log")"
collect
((FAST == 0)) || fail "$FAST bytes went by shared memory"
grep -h 'cut over' "$TMP"/shim.client "$TMP"/shim.server && fail "a cut"
exit 0
