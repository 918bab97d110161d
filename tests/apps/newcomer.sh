#!/bin/bash
# What a new user meets: a policy with a slip of the pen, a peer without the library, no key, a
# memory limit that is too low. Each is found by one command, rdmastat why or rdmastat doctor,
# with a remedy that works when it is followed.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
MODES=both
begin_mode both
cp "$B/rdmarun" "$TMP/rdmarun"
unset RDMASHIM LD_PRELOAD
export RDMASHIM_STAT_DIR=$STAT RDMASHIM_LIB=$SHIM RDMASHIM_CONF=$CONF COLUMNS=
stat() { "$TMP/rdmastat" "$@" >"$TMP/text" 2>&1; }
says() { grep -Eq -- "$1" "$TMP/text" || fail "no line '$1' in: $(cat "$TMP/text")"; }
quickly='earn_bytes 0
earn_rounds 0'

# one connection of a client, from the words of `rdmastat conn -o ...`: PID:FD
connection() {
	"$TMP/rdmastat" conn -o pid,fd "program idle and pid = $1 and role client" |
		awk 'NR == 2 { print $1 ":" $2 }'
}
reason() {
	"$TMP/rdmastat" conn -o reason "pid = $1 and role client" 2>/dev/null |
		awk 'NR == 2 { print $1 }'
}
reason_is() { [[ $(reason "$1") == "$2" ]]; }
client_up() { grep -q connected "$TMP/client.log"; }
# a client under the library with one connection, which talks all the time
talk() {
	rm -f "$TMP/fifo"
	mkfifo "$TMP/fifo"
	"$TMP/rdmarun" "$B/apps/idle" client poll "$port" 1 "$TMP/fifo" >"$TMP/client.log" 2>&1 \
		3>&- &
	CLIENT=$!
	PIDS+=("$CLIENT")
	exec 4>"$TMP/fifo"
	within 15 client_up || fail "no connection: $(cat "$TMP/client.log")"
	echo "run 1" >&4
}
hang_up() { echo quit >&4; exec 4>&-; finish "$CLIENT" 15; }

# ---- a slip of the pen in the policy
printf '%s\nsrpin 20us\n' "$quickly" >"$CONF"
free_port port
"$TMP/rdmarun" "$B/apps/idle" server poll "$port" >"$TMP/server.log" 2>&1 3>&- &
SRV=$!
PIDS+=("$SRV")
wait_port "$port"
talk
within 15 reason_is "$CLIENT" bad-policy || fail "reason $(reason "$CLIENT")"
stat why "$(connection "$CLIENT")" || fail "why: $(cat "$TMP/text")"
says "^to change it mend $CONF:3:1: .*did you mean 'spin'"
stat doctor --no-transfer --lib "$SHIM"
(($? == 4)) || fail "the doctor finds nothing: $(cat "$TMP/text")"
says "^FAIL policy .*$CONF:3:1: .*did you mean 'spin'"
sed -i 's/srpin/spin/' "$CONF"
within 15 reason_is "$CLIENT" - || fail "mended, but still on TCP: $(reason "$CLIENT")"
left_tcp() {
	stat why "$(connection "$CLIENT")" && grep -q 'sending left TCP at byte ' "$TMP/text"
}
within 15 left_tcp || fail "no cut in its history: $(cat "$TMP/text")"
says ' on TCP: bad-policy, '
hang_up
stop "$SRV"

# ---- the other end without the library
printf '%s\n' "$quickly" >"$CONF"
free_port port
start none "$TMP/server.log" "$B/apps/idle" server poll "$port"
SRV=$PID
wait_port "$port"
talk
within 15 reason_is "$CLIENT" peer-no-shim || fail "reason $(reason "$CLIENT")"
stat why "$(connection "$CLIENT")"
says "^to change it start the program at the other end with the library too \(rdmarun PROGRAM\)\. \
Who it is: ss -tnp 'src 127\.0\.0\.1:"
says '^history '
says ' began to look for the process at the other end, on this host$'
eval "$(sed -n 's/.*Who it is: //p' "$TMP/text")" >"$TMP/who"
grep -q "pid=$SRV," "$TMP/who" ||
	fail "the command that names the other end does not: $(cat "$TMP/who")"
stat doctor --no-transfer --lib "$SHIM" "localhost:$port"
(($? == 4)) || fail "the doctor finds nothing: $(cat "$TMP/text")"
says "^FAIL peer library +idle \($SRV\) listens on port $port without the library"
says '^ +-> start it with rdmarun'
hang_up
stop "$SRV"
"$TMP/rdmarun" "$B/apps/idle" server poll "$port" >"$TMP/server.log" 2>&1 3>&- &
SRV=$!
PIDS+=("$SRV")
wait_port "$port"
stat doctor --no-transfer --lib "$SHIM" "localhost:$port"
says "^ok   peer library +idle \($SRV\) listens on port $port, under the library"
talk
within 15 reason_is "$CLIENT" - || fail "the remedy does not help: $(reason "$CLIENT")"
hang_up
stop "$SRV"

# ---- an option that only the kernel honours: the log says which (troubleshooting,
# socket-option), once
RDMASHIM_LOG=path:$TMP/option.txt "$TMP/rdmarun" python3 -S -E -c 'import socket
s = socket.socket()
for _ in range(3): s.setsockopt(socket.SOL_SOCKET, 29, 1)' || fail "SO_TIMESTAMP"
grep -Eq \
	'^[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z path rdmashim\[[0-9]+\]: fd [0-9]+: '\
'option 29 of level 1 is the kernel.s alone, staying on TCP$' "$TMP/option.txt" ||
	fail "no line about the option: $(cat "$TMP/option.txt")"
(($(wc -l <"$TMP/option.txt") == 1)) || fail "$(cat "$TMP/option.txt")"

# ---- no key, and no network that is trusted
free_port rport
: >"$CONF"
"$TMP/rdmastat" policy set discovery_port "$rport" >"$TMP/text" || fail "$(cat "$TMP/text")"
stat doctor --no-transfer --lib "$SHIM"
(($? == 4)) || fail "the doctor finds nothing: $(cat "$TMP/text")"
says "^FAIL key .*no host is trusted"
says '^ +-> set key_file or rdma_networks'
"$TMP/rdmastat" policy set key_file "$TMP/key" >"$TMP/text" || fail "$(cat "$TMP/text")"
stat doctor --no-transfer --lib "$SHIM"
says "^FAIL key .*$TMP/key: No such file"
remedy=$(sed -n 's/^ *-> \((umask .*)\), and copy it to every host$/\1/p' "$TMP/text")
[[ -n $remedy ]] && eval "$remedy" || fail "the remedy '$remedy' in: $(cat "$TMP/text")"
stat doctor --no-transfer --lib "$SHIM"
says "^ok   key .*mode 0600, 32 bytes"

# ---- the limit of locked memory is too low for RDMA
R=$TMP/root
mkdir -p "$R"/proc/self "$R"/proc/sys/kernel/yama "$R"/dev/infiniband \
	"$R"/sys/class/infiniband/mlx5_0/ports/1/gids
cp /proc/self/status "$R/proc/self/status"
echo "4: ACTIVE" >"$R/sys/class/infiniband/mlx5_0/ports/1/state"
(ulimit -l 64 && stat doctor --no-transfer --lib "$SHIM" --root "$R")
says '^FAIL memlock .*RLIMIT_MEMLOCK is 64\.0K'
says '^ +-> ulimit -l unlimited \(in services: LimitMEMLOCK=infinity\)'
if (ulimit -l unlimited) 2>/dev/null; then
	(ulimit -l unlimited && stat doctor --no-transfer --lib "$SHIM" --root "$R")
	says '^ok   memlock .*unlimited'
fi
exit 0
