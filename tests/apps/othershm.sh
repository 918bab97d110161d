#!/bin/bash
# /dev/shm that is another one, read-only, full, or not there, as in containers: rdmastat finds
# the counters where it may look, and says why there are none.
# TIMEOUT: 60
if ((EUID == 0)) && [[ -z ${OTHERSHM-} ]] &&
	unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
	OTHERSHM=1 exec unshare -m "$0" "$@"	# with a /dev/shm, and a /run, that are this test's
fi
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -n ${OTHERSHM-} ]] || skip "no tmpfs may be mounted here"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
MODE=both
begin_mode both
policy
chmod 644 "$CONF"
mount -t tmpfs none /dev/shm && mount -t tmpfs none /run || fail "mount"
chmod 1777 /dev/shm
rdmastat() { env -u RDMASHIM_STAT_DIR "$TMP/rdmastat" "$@" >"$TMP/text" 2>&1; }
says() { grep -Eq -- "$1" "$TMP/text" || fail "no line '$1' in: $(cat "$TMP/text")"; }
as_other=(setpriv --reuid 31337 --regid 31337 --clear-groups)

# program NAME MOUNT...: a server with a /dev/shm that MOUNT makes, run by another user; PID is
# its own
program() {
	local name=$1
	shift
	free_port port
	shim_env
	start none "$TMP/$name.log" unshare -m bash -c 'eval "$1" && shift && exec "$@"' x "$*" \
		"${as_other[@]}" \
		env -u RDMASHIM_STAT_DIR "${SHIM_ENV[@]/#RDMASHIM_STAT_DIR=*/A=b}" \
		RDMASHIM_LOG_FILE= "$B/apps/idle" server epoll "$port"
	wait_port "$port"
}

# ---- another one
program other 'mount -t tmpfs -o mode=1777 none /dev/shm'
rdmastat
says "^ +$PID .*idle"
rdmastat why "$PID"
says "^process +$PID, program idle"
env -u RDMASHIM_STAT_DIR "${as_other[@]}" "$TMP/rdmastat" >"$TMP/text" 2>&1
says "^ +$PID .*idle"
other=$PID

# ---- one in which it cannot count
program ro 'mount -t tmpfs -o ro none /dev/shm'
rdmastat why "$PID"
says "no counters of process $PID: it has the library, but its /dev/shm is read-only"
rdmastat -p "$PID"
says "no counters of process $PID: .*read-only"
program full 'mount -t tmpfs -o mode=1777,size=8k none /dev/shm'
rdmastat why "$PID"
says "no counters of process $PID: it has the library, but its /dev/shm is full"
program none 'mount -t tmpfs -o mode=755 none /dev'
rdmastat why "$PID"
says "no counters of process $PID: it has the library, but no /dev/shm"
rdmastat why $$
says 'started without librdmashim'

# ---- what doctor and an empty overview say there
# within MOUNT CMD...: as the other user
there() {
	local how=$1
	shift
	unshare -m bash -c 'eval "$1" && shift && exec "$@"' x "$how" "${as_other[@]}" \
		env -u RDMASHIM_STAT_DIR RDMASHIM_CONF="$CONF" "$TMP/rdmastat" "$@" >"$TMP/text" \
		2>&1
}
stop "$other"
for how in 'ro|Read-only file system|read-only' 'mode=1777,size=8k|is full|full'; do
	IFS='|' read -r options doctor word <<<"$how"
	there "mount -t tmpfs -o $options none /dev/shm" doctor --no-transfer --lib "$SHIM"
	says "^FAIL counters .*"
	grep -q "$doctor" <<<"$(tr -s '\n ' ' ' <"$TMP/text")" ||
		fail "doctor does not say '$doctor': $(cat "$TMP/text")"
	there "mount -t tmpfs -o $options none /dev/shm"
	says "/dev/shm.* is $word: programs cannot count there"
done
there 'mount -t tmpfs -o mode=1777 none /dev/shm' doctor --no-transfer --lib "$SHIM"
says '^ok +counters'
exit 0
