#!/bin/bash
# The policy file changes under running programs and live connections: within a second they do as
# it says, both ways, and their bytes stay right. Written in place, replaced by rename, made after
# the start, garbled, unreadable; a rule for one of two ports; files that it includes;
# RDMASHIM=off.
# TIMEOUT: 150
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
MODES=both
N=8
SECS=1		# what may pass between a change and its effect
[[ -z ${SAN-} ]] || SECS=3
AS=()		# who the programs run as
BAD=0

on_shm="c['tx_path'] == c['rx_path'] == 'shm'"
on_tcp() { echo "c['tx_path'] == c['rx_path'] == 'tcp'${1:+ and c['reason'] == '$1'}"; }

cp "$B/apps/idle" "$TMP" || exit 1	# the tree may be where only root can go

# pair: a client with N connections that sends on each every 5 ms; sets PORT, CL, SRV, FIFO.
pair() {
	free_port PORT
	FIFO=$TMP/fifo.$PORT
	mkfifo -m 666 "$FIFO"
	shim_env
	start none "$TMP/server.$PORT.log" "${AS[@]}" env "${SHIM_ENV[@]}" "$@" "$TMP/idle" server \
		epoll "$PORT"
	SRV=$PID
	wait_port "$PORT"
	start none "$TMP/client.$PORT.log" "${AS[@]}" env "${SHIM_ENV[@]}" "$@" "$TMP/idle" client \
		poll "$PORT" $N "$FIFO"
	CL=$PID
	within 10 grep -q connected "$TMP/client.$PORT.log" ||
		fail "not connected: $(cat "$TMP/client.$PORT.log")"
	echo "run 5" >"$FIFO"
}

# sees WHAT CONDITION PORT [SINCE]: all connections of the port, at both ends.
sees() {
	local what=$1 cond=$2 port=$3 took
	if took=$(python3 "$TOP/tests/apps/live.py" "$TMP/rdmastat" "$STAT" "$port" $((2 * N)) \
		$SECS "$cond" "${@:4}"); then
		say "$what: $took"
	else
		say "FAILED: $what: $took"
		BAD=$((BAD + 1))
	fi
}

# The bytes went on and were right; ends the pair.
over() {
	local port=$1 cl=$2 srv=$3 n
	echo "run 1" >"$TMP/fifo.$port"
	sleep 0.1
	gone "$cl" && fail "the client ended: $(cat "$TMP/client.$port.log")"
	echo quit >"$TMP/fifo.$port"
	finish "$cl" 15 || fail "client: $(cat "$TMP/client.$port.log")"
	n=$(sed -n 's/^end //p' "$TMP/client.$port.log")
	say "$n rounds on $N connections, all answers right"
	((n > 20)) || fail "the bytes did not go on: $(cat "$TMP/client.$port.log")"
	stop "$srv"
}
by_rename() {
	printf '%s\n' "$@" >"$CONF.new"
	chmod 644 "$CONF.new"
	mv "$CONF.new" "$CONF"
}
# The log says where the mistake is.
log_names() {
	grep -qF "$1" "$TMP/shim.$MODE" ||
		{ say "FAILED: no '$1' in the log: $(tail -n 3 "$TMP/shim.$MODE")"; \
		BAD=$((BAD + 1)); }
}

begin_mode both
L="log_level 1"

# ---- mode on, off, on; both ways of writing
policy "$L" "mode on"
t=$EPOCHREALTIME
pair
sees "mode on at the start" "$on_shm" "$PORT" "$t"
for how in policy by_rename; do
	t=$EPOCHREALTIME
	$how "$L" "mode off"
	sees "mode off, $how" "$(on_tcp mode-off)" "$PORT" "$t"
	t=$EPOCHREALTIME
	$how "$L" "mode on"
	sees "mode on again, $how" "$on_shm" "$PORT" "$t"
done

# ---- a rule for one of two ports
p1=$PORT c1=$CL s1=$SRV
pair
sees "a second pair" "$on_shm" "$PORT"
t=$EPOCHREALTIME
policy "$L" "mode on" "use tcp both *:$PORT"
sees "use tcp for port two" "$(on_tcp policy) and c['rule_line'] == 3" "$PORT" "$t"
sees "and port one stays" "$on_shm" "$p1"
t=$EPOCHREALTIME
by_rename "$L" "use tcp both *:$p1" "use any both *:*"
sees "now tcp for port one" "$(on_tcp policy) and c['rule_line'] == 2" "$p1" "$t"
sees "and shm for port two" "$on_shm" "$PORT" "$t"
over "$p1" "$c1" "$s1"
t=$EPOCHREALTIME
policy "$L" "program somebody-else" "use tcp both *:*"
sees "a rule for another program" "$on_shm" "$PORT" "$t"

# ---- garbled: refused as a whole, with the place, then mended
t=$EPOCHREALTIME
policy "$L" "mode on" "use tpc both *:*"
sees "a garbled file" "$(on_tcp bad-policy)" "$PORT" "$t"
log_names "$CONF:3:5: "
t=$EPOCHREALTIME
head -c 3000 /dev/urandom >"$CONF"
sleep 0.2
sees "random bytes" "$(on_tcp bad-policy)" "$PORT" "$t"
log_names "$CONF:1:"
t=$EPOCHREALTIME
policy "$L" "mode on"
sees "mended" "$on_shm" "$PORT" "$t"

# ---- taken away (it was named, so its absence is an error), and back
t=$EPOCHREALTIME
rm "$CONF"
sees "the file removed" "$(on_tcp bad-policy)" "$PORT" "$t"
t=$EPOCHREALTIME
policy "$L" "mode on"
sees "and made again" "$on_shm" "$PORT" "$t"

# ---- changed hundreds of times: what was replaced is not kept
anon() { awk '$1 == "RssAnon:" { print $2 }' "/proc/$SRV/status"; }
loads() { RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json | python3 -S -E -c 'import json, sys
print(*(p["counters"]["policy_loads"] for p in json.load(sys.stdin)["processes"]
    if str(p["pid"]) == sys.argv[1]))' "$SRV"; }
change() { local i; for ((i = 0; i < 20; i++)); do by_rename "$L" "spin $((i % 3 + 10))us"; done; }
changed() { change; (($(loads) >= $1)); }
within 60 changed $(($(loads) + 20)) || fail "changes are not seen"
was=$(anon) from=$(loads)
within 60 changed $((from + 200)) || fail "changes are not seen"
say "$(($(loads) - from)) changes: $was kB, then $(anon)"
(($(anon) - was <= 256)) || { say "FAILED: memory grows with each change"; BAD=$((BAD + 1)); }
over "$PORT" "$CL" "$SRV"

# ---- programs that started under mode off, a garbled file, or no file: they have not cut
# anything yet
for first in "mode off" "mode of" ""; do
	rm -f "$CONF"
	[[ -n $first ]] && policy "$L" "$first"
	pair
	case $first in
	"mode off") sees "mode off at the start" "$(on_tcp mode-off)" "$PORT" ;;
	*) sees "at the start ${first:-no file}" "$(on_tcp bad-policy)" "$PORT" ;;
	esac
	sleep 0.3
	t=$EPOCHREALTIME
	policy "$L" "mode on"
	sees "mode on after a start with ${first:-no file}" "$on_shm" "$PORT" "$t"
	over "$PORT" "$CL" "$SRV"
done

# ---- the file is a link that is turned to another one
echo "mode on" >"$TMP/one.conf"
echo "mode off" >"$TMP/two.conf"
ln -sf "$TMP/one.conf" "$CONF"
pair
sees "a symbolic link" "$on_shm" "$PORT"
t=$EPOCHREALTIME
ln -s "$TMP/two.conf" "$CONF.new"
mv -T "$CONF.new" "$CONF"
sees "the link turned to mode off" "$(on_tcp mode-off)" "$PORT" "$t"
t=$EPOCHREALTIME
echo "mode on" >"$TMP/two.conf"
sees "the file behind the link says mode on" "$on_shm" "$PORT" "$t"
over "$PORT" "$CL" "$SRV"
rm -f "$CONF"

# ---- included files: changed, replaced, made, taken away; a mistake in one of them
mkdir "$TMP/more"
echo "use tcp both *:1" >"$TMP/more/10-a.conf"
policy "$L" "include more/*.conf" "include ${TMP}/one.conf"
echo "use shm both *:*" >"$TMP/one.conf"
pair
sees "includes" "$on_shm and (c['rule_line'], c['rule_file']) == (1, 2)" "$PORT"
t=$EPOCHREALTIME
echo "use tcp both *:*" >"$TMP/one.conf"
sees "an included file changed" "$(on_tcp policy) and (c['rule_line'], c['rule_file']) == (1, 2)" \
	"$PORT" "$t"
t=$EPOCHREALTIME
printf '\nuse shm both *:*\n' >"$TMP/more/20-b.new"
mv "$TMP/more/20-b.new" "$TMP/more/20-b.conf"
sees "a new file that the pattern means" "$on_shm and (c['rule_line'], c['rule_file']) == (2, 2)" \
	"$PORT" "$t"
t=$EPOCHREALTIME
echo "use tpc both *:*" >"$TMP/more/10-a.conf"
sees "a mistake in an included file" "$(on_tcp bad-policy)" "$PORT" "$t"
log_names "${CONF%/*}/more/10-a.conf:1:5: "
t=$EPOCHREALTIME
rm "$TMP/more/10-a.conf"
sees "mended there" "$on_shm and (c['rule_line'], c['rule_file']) == (2, 1)" "$PORT" "$t"
mkdir "$TMP/late"
t=$EPOCHREALTIME
policy "$L" "include late/*" "include more/*.conf"
sees "another directory" "$on_shm and c['rule_file'] == 1" "$PORT" "$t"
t=$EPOCHREALTIME
echo "mode off" >"$TMP/late/x"
sees "a file there" "$(on_tcp mode-off)" "$PORT" "$t"
t=$EPOCHREALTIME
ln -sf "$TMP/two.conf" "$TMP/late/x"
echo "use shm both *:*" >"$TMP/two.conf"
sees "a link there" "$on_shm and (c['rule_line'], c['rule_file']) == (1, 1)" "$PORT" "$t"
t=$EPOCHREALTIME
echo "use tcp both *:*" >"$TMP/two.conf"
sees "the file behind that link" "$(on_tcp policy)" "$PORT" "$t"
over "$PORT" "$CL" "$SRV"

# ---- unreadable, for a user who is not root
policy "$L" "mode on"
if ((EUID == 0)); then
	AS=(runuser -u daemon --)
	rm -f "$STAT"/*
	chown daemon "$STAT"
	: >"$TMP/shim.$MODE"
	chmod 666 "$TMP/shim.$MODE"
fi
chmod 600 "$CONF"
((EUID == 0)) || chmod 0 "$CONF"
pair
sees "an unreadable file" "$(on_tcp bad-policy)" "$PORT"
over "$PORT" "$CL" "$SRV"
chmod 644 "$CONF"
pair
sees "readable" "$on_shm" "$PORT"
t=$EPOCHREALTIME
chmod 0 "$CONF"
sees "made unreadable while running" "$(on_tcp bad-policy)" "$PORT" "$t"
t=$EPOCHREALTIME
chmod 644 "$CONF"
sees "made readable while running" "$on_shm" "$PORT" "$t"
over "$PORT" "$CL" "$SRV"
AS=()

# ---- RDMASHIM=off
policy "$L" "mode on"
rm -rf "$STAT"
mkdir -m 700 "$STAT"
pair RDMASHIM=off
sleep 1
collect
((CONNS == 0 && FAST == 0)) || fail "RDMASHIM=off, and $CONNS connections, $FAST bytes on a fast" \
	"path"
over "$PORT" "$CL" "$SRV"
((BAD == 0)) || fail "$BAD of the changes above"
