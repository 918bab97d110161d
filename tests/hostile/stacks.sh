#!/bin/bash
# What the child of root's `rdmastat stacks` has that reads a user's files: no terminal, no
# descriptor but its pipes, and the rights of whoever the process belongs to when it is held, not
# a moment before. ptrace() is delayed, so that there is a moment.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "only root looks at other users' processes"
[[ -z ${SAN-} ]] || skip "the tools are not built with a sanitizer"
him=(setpriv --reuid 1001 --regid 1001 --clear-groups)
"${him[@]}" true 2>/dev/null || skip "no second user can be made"
script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no terminal can be made (script)"
strace -qq -o /dev/null -e inject=getppid:delay_exit=1 true 2>/dev/null ||
	skip "strace may not trace here, or cannot delay calls"
begin_mode both
R=$TMP/rdmastat

# look PID: its stacks, at a terminal; calls in $TMP/calls. Sets CHILD, which waits 3 s before it
# holds anything.
look() {
	: >"$TMP/calls"
	start none "$TMP/script.log" script -qefc "strace -f -qq -o $TMP/calls \
		-e trace=ptrace,setresuid -e inject=ptrace:delay_enter=3000000:when=1 $R stacks \
$1" "$TMP/shown" </dev/null
	within 10 child || fail "no child: $(<"$TMP/script.log")"
}
child() {
	local p parent
	for p in /proc/[0-9]*; do
		[[ $(tr '\0' ' ' <"$p/cmdline") == "$R stacks"* ]] || continue
		parent=$(awk '/^PPid:/ { print $2 }' "$p/status")
		[[ $(tr '\0' ' ' <"/proc/$parent/cmdline") == "$R stacks"* ]] || continue
		CHILD=${p#/proc/}
		[[ $(<"$p/syscall") =~ ^(101|117)\  ]] && return	# ptrace, x86-64 and arm64
	done
	return 1
} 2>/dev/null

# ---- what it has
start none "$TMP/his.log" "${him[@]}" sleep 60
his=$PID
look "$his"
tty=$(sed 's/.*) //' "/proc/$CHILD/stat" | awk '{ print $5 }')
((tty == 0)) || fail "the child has a terminal, $tty"
for f in "/proc/$CHILD"/fd/*; do
	case ${f##*/}:$(readlink "$f") in
	0:/dev/null | [12]:pipe:* | *:/proc/*/task) ;;
	*) fail "the child has ${f##*/}, $(readlink "$f")" ;;
	esac
done
wait "$PID"
grep -q 'sleep' "$TMP/shown" && grep -q 'libc' "$TMP/shown" || fail "no stack: $(<"$TMP/shown")"
grep -q 'setresuid(1001, 1001, 1001) *= 0' "$TMP/calls" || fail "it stays root"
stop "$his"

# ---- a process that executes a set-user-id program meanwhile
cp "$(type -p sleep)" "$TMP/suid" && chmod 4755 "$TMP/suid"
mkfifo "$TMP/go" && chmod 644 "$TMP/go"
chmod 755 "$TMP"
start none "$TMP/his.log" "${him[@]}" sh -c "read x <$TMP/go; exec $TMP/suid 60"
his=$PID
look "$his"
echo >"$TMP/go"
is_root() { [[ $(awk '/^Uid:/ { print $3 }' "/proc/$his/status") == 0 ]]; }
within 2 is_root || skip "no set-user-id programs here"
wait "$PID"
became=$(grep 'setresuid([0-9]' "$TMP/calls") &&
	fail "it became a user who has nothing to say there: $became"
grep -q libc "$TMP/shown" || fail "no stack: $(<"$TMP/shown")"
stop "$his"
exit 0
