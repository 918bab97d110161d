#!/bin/bash
# A user's counter file against root's rdmastat: the policy file that it names is not root's to read, its path not a command, and one
# file under many names is not one process each.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "only root can be the victim and the user"
[[ -n $SHIM ]] || skip "no shim library"
OWNER=1001
begin_mode both
D=$TMP/counters
mkdir -m 700 "$D" && chown "$OWNER" "$D" || skip "no user can be made"
setpriv --reuid "$OWNER" --regid "$OWNER" --clear-groups true || skip "no user can be made"
chmod 755 "$TMP"

# forge PATH MODE: a counter file of this shell's process, made by the user
forge() {
	rm -f "$D"/*
	python3 -S -E - "$1" "$2" "$$" >"$D/$$" <<-'END'
	import struct, sys
	path, mode, pid = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3])
	start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
	head = struct.pack("<QIIIIIIQQ64s192sII", 0x5453444d48535331, 6, 1384, 120, 16384, pid, 1001, start, 0, b"liar", path, mode, 1)
	row = struct.pack("<IIHHHBB", 2, 7, 2, 1, 2, 0, int(sys.argv[2]) and 1)
	out = head.ljust(1384, b"\0") + row.ljust(88 + 24, b"\0") + struct.pack("<I", 1)
	sys.stdout.buffer.write(out)
	END
	truncate -s 16M "$D/$$"
	chown "$OWNER" "$D/$$" && chmod 600 "$D/$$"
}
why() { RDMASHIM_STAT_DIR=$D timeout 10 "$TMP/rdmastat" why "$1" 2>&1; }

echo 'hidden-word of root' >"$TMP/secret" && chmod 600 "$TMP/secret"
forge "$TMP/secret" 0
why $$ >"$TMP/out"
grep -q '^process' "$TMP/out" || fail "the forged file is not read: $(<"$TMP/out")"
grep -q 'hidden-word' "$TMP/out" && fail "a word of a file of root's is shown: $(<"$TMP/out")"

mkfifo -m 666 "$TMP/fifo"
for f in "$TMP/fifo" /dev/zero /dev/tty; do
	forge "$f" 0
	strace -qq -e trace=open,openat -o "$TMP/trace" env RDMASHIM_STAT_DIR="$D" "$TMP/rdmastat" why $$ >/dev/null 2>&1 || break
	grep -F "\"$f\"" "$TMP/trace" | grep -v O_PATH && fail "$f was opened"
done

forge "$TMP/x;touch pwned" 0
ln "$D/$$" "$D/1" && why $$ | grep -q '^process' && fail "a file with two names is believed"
exit 0
