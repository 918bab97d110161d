#!/bin/bash
# What another user can do to the files that root's programs and tools believe or write: a policy
# in directories that he may write to, a log by way of his link, the counter directory's name
# taken before us, rdmastat reset in a directory of his. In a mount namespace of its own, with
# /dev/shm and /run as after a boot.
# TIMEOUT: 120
if ((EUID == 0)) && [[ -z ${INSIDE-} ]] && unshare -m true 2>/dev/null; then
	INSIDE=1 exec unshare -m "$0" "$@"
fi
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the tools are not built with a sanitizer"
((EUID == 0)) || skip "only root can be two users"
[[ -n ${INSIDE-} ]] || skip "no mount namespaces here"
STRANGER=1001
him() { setpriv --reuid $STRANGER --regid $STRANGER --clear-groups "$@"; }
him true 2>/dev/null || skip "no second user can be made"
mount -t tmpfs -o mode=1777 none /dev/shm && mount -t tmpfs -o mode=755 none /run ||
	skip "nothing may be mounted here"
begin_mode both
unset RDMASHIM_STAT_DIR RDMASHIM_LOG RDMASHIM_LOG_FILE
R=$TMP/rdmastat
wrong=0
CONNECT='import socket
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname())
s, _ = l.accept()'
is() { if [[ $2 == "$3" ]]; then say "$1: $2"; else say "WRONG: $1: $2, not $3"; wrong=1; fi; }

# ---- the policy. decides FILE: what a connection gets by it
decides() { "$R" policy explain -f "$1" 2>/dev/null | awk '/^paths:/ { print substr($0, 8) }'; }
said() { grep -c -- "$1" "$TMP/err"; }
mkdir -m 755 "$TMP/etc"
mkdir -m 1777 "$TMP/etc/sticky"
main=$TMP/etc/rdmashim.conf
printf 'use shm both *:*\n' >"$TMP/etc/good.conf"

printf 'include sticky/*.conf\nuse shm both *:*\n' >"$main"
him sh -c "echo 'use tcp both *:*' >$TMP/etc/sticky/10.conf"
is "a stranger's file that a pattern means" "$(decides "$main")" "tcp shm"
"$R" policy check "$main" >"$TMP/out" 2>"$TMP/err"
is "... check says so" "$(said "sticky/10.conf is left out")" 1
for i in {1..80}; do him touch "$TMP/etc/sticky/x$i.conf"; done
is "... eighty of them" "$(decides "$main")" "tcp shm"
him mkdir "$TMP/etc/sticky/x.conf" "$TMP/etc/sticky/sub" && him mkfifo "$TMP/etc/sticky/f.conf"
him ln -s /etc/passwd "$TMP/etc/sticky/l.conf"
is "... a directory, a link, a pipe" "$(decides "$main")" "tcp shm"
printf 'include sticky/sub/*.conf\nuse shm both *:*\n' >"$main"
him sh -c "echo 'use tcp both *:*' >$TMP/etc/sticky/sub/a.conf"
is "a directory of his" "$(decides "$main")" "tcp shm"
echo 'use tcp both *:*' >"$TMP/etc/sticky/own.conf"
printf 'include sticky/*.conf\nuse shm both *:*\n' >"$main"
is "our own beside them" "$(decides "$main")" "tcp"
rm -rf "$TMP/etc/sticky"/*

# refused DIRECTORY-MODE FILE-MODE OWNER: tcp, and the reason names owner and mode
printf 'use shm both *:*\n' >"$main"
mkdir -m 755 "$TMP/etc/d"
refused() {
	cp "$main" "$TMP/etc/d/c.conf"
	chown "$3" "$TMP/etc/d/c.conf"
	chmod "$2" "$TMP/etc/d/c.conf"
	chmod "$1" "$TMP/etc/d"
	"$R" policy check "$TMP/etc/d/c.conf" >"$TMP/out" 2>"$TMP/err"
	is "directory $1, file $2 of $3" "$(decides "$TMP/etc/d/c.conf"), $(said "$4")" "tcp, 1"
}
refused 777 644 0 "etc/d (directory) belongs to user 0 and has mode 0777.*chmod go-w"
refused 775 644 0 "etc/d (directory) belongs to user 0 and has mode 0775.*chmod go-w"
refused 755 664 0 "it belongs to user 0 and has mode 0664.*chmod g-w"
refused 755 644 $STRANGER "it belongs to user $STRANGER and has mode 0644.*chown"
printf 'include d/c.conf\n' >"$main"
is "one that includes such an one" "$(decides "$main")" "tcp"
mkdir -m 1777 "$TMP/tmp"
him ln -s "$TMP/etc/good.conf" "$TMP/tmp/link.conf"
is "a stranger's link to a good file" "$(decides "$TMP/tmp/link.conf")" "tcp"
ln -s "$TMP/etc/good.conf" "$TMP/etc/link.conf"
is "root's link to a good file" "$(decides "$TMP/etc/link.conf")" "tcp shm"

is "policy set on his link: status" \
	"$("$R" policy set -f "$TMP/tmp/link.conf" spin 1us >/dev/null 2>&1; echo $?)" 1
is "... the file behind it" "$(grep -c spin "$TMP/etc/good.conf")" 0
is "policy set on root's link: status" \
	"$("$R" policy set -f "$TMP/etc/link.conf" spin 1us >/dev/null 2>&1; echo $?)" 0

# ---- the log, and the line at the end. fs.protected_symlinks helps where it is on, in sticky
# directories only.
: >"$TMP/victim"
[[ $(cat /proc/sys/fs/protected_symlinks) == 0 ]] || say "fs.protected_symlinks is on here"
him ln -s "$TMP/victim" "$TMP/tmp/log"
mkdir "$TMP/his" && chown $STRANGER "$TMP/his"
him ln -s "$TMP/victim" "$TMP/his/log"
ln "$TMP/victim" "$TMP/tmp/hard"
for f in "$TMP/tmp/log" "$TMP/his/log" "$TMP/tmp/hard"; do
	env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/nonexistent RDMASHIM_LOG_FILE="$f" true 2>"$TMP/err"
	is "root's log by way of ${f#"$TMP"/}: bytes in the victim" "$(stat -c %s "$TMP/victim")" 0
	is "... and stderr says so" \
		"$(grep -c "${f##*/} is not written: .*belongs to user" "$TMP/err")" 1
	env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/dev/null RDMASHIM_STATS="$f" \
		RDMASHIM_STAT_DIR="$STAT" \
		python3 -S -E -c "$CONNECT" 2>/dev/null
	is "... RDMASHIM_STATS: bytes" "$(stat -c %s "$TMP/victim")" 0
	: >"$TMP/victim"
done
env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/nonexistent RDMASHIM_LOG_FILE="$TMP/mine.log" true \
	2>"$TMP/err"
is "a log of root's own: lines" "$(wc -l <"$TMP/mine.log")" 1

# ---- the lock of a policy's directory, kept by him
mkdir -m 755 "$TMP/locked" && echo 'mode on' >"$TMP/locked/conf" && chmod 644 "$TMP/locked/conf"
mkfifo "$TMP/keeps"
him flock -x "$TMP/locked" cat <"$TMP/keeps" &
exec 9>"$TMP/keeps"
locked() { ! flock -n -x "$TMP/locked" true; }
within 10 locked || fail "he does not get the lock"
timeout -s KILL 10 "$R" policy set -f "$TMP/locked/conf" mode off >"$TMP/out" 2>"$TMP/err"
is "an edit while he keeps the lock: status, file" "$?, $(<"$TMP/locked/conf")" "0, mode off"
exec 9>&-

# ---- the counter directory's name, taken by him
him mkdir -m 700 /dev/shm/rdmashim.0
seen() {
	env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/dev/null R="$R" python3 -S -E -c "$CONNECT"'
import json, os, subprocess
env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
out = subprocess.run([os.environ["R"], "--json"], env=env, capture_output=True, text=True).stdout
print(sum(p["pid"] == os.getpid() for p in json.loads(out)["processes"]))'
}
is "the counters of a process of root's are found" "$(seen)" 1
"$R" doctor --lib "$SHIM" --no-transfer >"$TMP/out" 2>&1
says='counters .*rdmashim.0 was made by user 1001; counters go to /run/rdmashim.0'
is "doctor says so" "$(grep -c "$says" "$TMP/out")" 1
"$R" reset >"$TMP/out" 2>"$TMP/err"
is "reset writes into his directory: files" "$(find /dev/shm/rdmashim.0 -mindepth 1 | wc -l)" 0
is "... but into root's own" "$(find /run/rdmashim.0 -name baseline | wc -l)" 1
mkdir -m 700 "$TMP/elsewhere" && chown $STRANGER "$TMP/elsewhere"
RDMASHIM_STAT_DIR=$TMP/elsewhere "$R" reset >"$TMP/out" 2>"$TMP/err"
is "reset in a directory of his that root names: status, files" \
	"$?, $(find "$TMP/elsewhere" -mindepth 1 | wc -l)" "1, 0"
rm -rf /dev/shm/rdmashim.0 /run/rdmashim.0
him mkdir -m 777 /dev/shm/rdmashim.31337
mkdir -m 755 /run/user && mkdir -m 700 /run/user/31337 && chown 31337 /run/user/31337
setpriv --reuid 31337 --regid 31337 --clear-groups env LD_PRELOAD="$SHIM" RDMASHIM_CONF=/dev/null \
	python3 -S -E -c "$CONNECT" 2>/dev/null
is "another user's counters" "$(find /run/user/31337/rdmashim.31337 -type f | wc -l)" 1
exit $wrong
