#!/bin/bash
# Another user's /dev/shm, in a mount namespace of his own, against root's rdmastat: a directory
# of somebody else that he mounts there is neither counted again nor cleared; and a file there
# speaks of no process that has another /dev/shm, and names no policy for root to read, though
# root of a container has made it. No root directory of his, and no file of a program, holds it up
# (hangs.c).
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "only root can be the victim and the user"
[[ -n $SHIM ]] || skip "no library"
as_user=(setpriv --reuid 31337 --regid 31337 --clear-groups)
"${as_user[@]}" unshare -Urm true 2>/dev/null || skip "users may not make namespaces"
begin_mode both

# What a program of ours leaves, with another process's number, program and policy.
shim_env
env "${SHIM_ENV[@]}" python3 -S -E -c 'import socket
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen()
c = socket.create_connection(l.getsockname())' || fail "no program runs"
left=("$STAT"/[0-9]*)
cat >"$TMP/forge" <<-END
	#!/usr/bin/python3 -SE
	# forge PID PROGRAM POLICY FILE
	import os, struct, sys
	pid, program, policy, to = sys.argv[1:]
	head = bytearray(open("${left[0]}", "rb").read(344))
	start = 1
	if os.path.exists(f"/proc/{pid}"):
	    start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
	struct.pack_into("<I", head, 24, int(pid))
	struct.pack_into("<Q", head, 32, start)
	struct.pack_into("<64s", head, 48, program.encode())
	struct.pack_into("<192s", head, 152, policy.encode())
	os.umask(0o077)
	f = open("${left[0]}", "rb").read()
	open(to, "wb").write(head + f[344:])
END
chmod 755 "$TMP/forge"
mkdir -m 777 "$TMP/ready"

# in_mounts WORDS... -- COMMANDS: by WORDS, with a /dev/shm of its own; until it is stopped
in_mounts() {
	local how=()
	while [[ $1 != -- ]]; do how+=("$1"); shift; done
	rm -f "$TMP/ready/now"
	start none "$TMP/mounts.log" timeout 30 "${how[@]}" bash -c \
		"mount -t tmpfs none /dev/shm && $2 && >$TMP/ready/now && exec sleep 20"
	within 10 test -e "$TMP/ready/now" || fail "no mounts: $(<"$TMP/mounts.log")"
}
container=(unshare -m --propagation private)
shown() { env -u RDMASHIM_STAT_DIR timeout 20 "$TMP/rdmastat" "$@" >"$TMP/out" 2>&1; }

# ---- somebody else's directory
V=$TMP/victim DEAD=2000000000
mkdir -m 700 "$V" "$V/run.$DEAD" && "$TMP/forge" $DEAD of-a-victim '' "$V/$DEAD"
chown -R 31338 "$V" || skip "no user can be made"
in_mounts "${as_user[@]}" unshare -Urm -- \
	"mkdir /dev/shm/rdmashim.1 && mount --bind $V /dev/shm/rdmashim.1"
shown overview --all
grep of-a-victim "$TMP/out" && fail "what another user has mounted there is counted"
[[ -e $V/$DEAD && -d $V/run.$DEAD ]] || fail "what he has mounted there is cleared: $(ls -l "$V")"
stop "$PID"

# ---- a container's root: a file of a process that is not in it
in_mounts "${container[@]}" -- \
	"mkdir -m 700 /dev/shm/rdmashim.0 && $TMP/forge $$ forged '' /dev/shm/rdmashim.0/$$"
shown overview
grep "^ *$$ *forged" "$TMP/out" && fail "it is believed about a process that is not in it"
stop "$PID"

# ---- and of one that is, with the path of a file of root's
echo 'hidden-word of root' >"$TMP/secret" && chmod 600 "$TMP/secret"
in_mounts "${container[@]}" -- \
	"mkdir -m 700 /dev/shm/rdmashim.0 && echo \$\$ >$TMP/ready/pid && $TMP/forge \$\$ inside \
$TMP/secret /dev/shm/rdmashim.0/\$\$"
inside=$(<"$TMP/ready/pid")
shown overview
grep "^ *$inside *inside" "$TMP/out" >/dev/null ||
	fail "a container's own process is not shown: $(<"$TMP/out")"
shown why "$inside"
grep hidden-word "$TMP/out" && fail "a word of a file of root's is shown"
grep 'another mount namespace' "$TMP/out" >/dev/null ||
	fail "its policy is not left alone: $(<"$TMP/out")"
stop "$PID"

# ---- more namespaces of a user's than are looked into do not hide a container that is newer
"${as_user[@]}" /usr/bin/python3 -S -E -c 'import ctypes, os, signal
for _ in range(300):
    if not os.fork():
        ctypes.CDLL(None).prctl(1, 9)		# PR_SET_PDEATHSIG, SIGKILL
        ctypes.CDLL(None).unshare(0x10020000)	# CLONE_NEWUSER | CLONE_NEWNS
        signal.pause()
signal.pause()' &
PIDS+=($!)
many() { (($(readlink /proc/[0-9]*/ns/mnt 2>/dev/null | sort -u | wc -l) > 300)); }
within 20 many || fail "no namespaces"
in_mounts "${container[@]}" -- \
	"mkdir -m 700 /dev/shm/rdmashim.0 && echo \$\$ >$TMP/ready/pid && $TMP/forge \$\$ behind \
'' /dev/shm/rdmashim.0/\$\$"
behind=$(<"$TMP/ready/pid")
shown overview
grep "^ *$behind *behind" "$TMP/out" >/dev/null || fail "a container is hidden: $(<"$TMP/out")"
stop "$PID"

# ---- another kind of file system, whose line in mountinfo is too long to be read
mkdir -m 755 "$TMP/deep" "$TMP/empty" "$TMP/over" && cd "$TMP/deep" || fail "no directory"
WAY=$TMP/over
for i in {10..23}; do
	name=$(printf '%240s%d' '' "$i")
	mkdir -m 755 "$name" && cd "$name" || fail "no deep directory"
	WAY+=/$name
done
export WAY
mkdir -m 700 rdmashim.31337 && "$TMP/forge" $DEAD not-of-a-tmpfs '' rdmashim.31337/$DEAD
chown -R 31337 rdmashim.31337
cd "$TOP" || exit
if "${as_user[@]}" unshare -Urm mount -t overlay none "$TMP/over" \
	-o "lowerdir=$TMP/deep:$TMP/empty"; then
	in_mounts "${as_user[@]}" unshare -Urm -- \
		"mount -t overlay none $TMP/over -o lowerdir=$TMP/deep:$TMP/empty &&
		cd \"\$WAY\" && mount --no-canonicalize --bind . /dev/shm"
	shown overview --all
	grep not-of-a-tmpfs "$TMP/out" && fail "another file system than tmpfs is looked into"
	stop "$PID"
fi

# ---- a root directory that asks a daemon of the user's, with his rights, and one that is mapped
[[ -x $B/hostile/hangs ]] || fail "no $B/hostile/hangs"
cp "$B/hostile/hangs" "$TMP"
mknod -m 666 "$TMP/fuse" c 10 229 && mkdir -m 777 "$TMP/hangs.d" || skip "no device can be made"
chmod 666 "$TMP/fuse"
# hangs HOW: $HUNG is a process with which a look never ends; of a user with few namespaces
his=(setpriv --reuid 31338 --regid 31338 --clear-groups)
hangs() {
	mkfifo "$TMP/hold" && exec 4<>"$TMP/hold"
	: >"$TMP/hangs.log"
	"${his[@]}" "$TMP/hangs" "$1" "$TMP/hangs.d" "$TMP/fuse" <"$TMP/hold" \
		>"$TMP/hangs.log" 2>&1 3>&- 4>&- &
	PID=$!
	PIDS+=("$PID")
	there() { HUNG=$(head -n 1 "$TMP/hangs.log") && [[ $HUNG ]]; }
	within 10 there
	[[ $HUNG == [0-9]* ]] || skip "rdmastat is not made to wait: $HUNG"
}
released() {
	exec 4>&-
	rm "$TMP/hold"
	within 10 gone "$PID" || fail "the daemon does not end"
	[[ $(tail -n 1 "$TMP/hangs.log") != 'asked 0' ]] || fail "its daemon was not asked"
}
# look SECONDS COMMAND...: rdmastat ends by itself
look() {
	local most=$1 begun=$SECONDS
	shift
	env -u RDMASHIM_STAT_DIR timeout -s KILL 60 "$TMP/rdmastat" "$@" >"$TMP/out" 2>&1 4>&- &
	local looks=$!
	within "$most" gone "$looks" || { exec 4>&-; fail "rdmastat $* waits for a user's daemon"; }
	say "rdmastat $*: $((SECONDS - begun)) s"
}
hangs overlay
look 5 overview
look 5 why "$HUNG"
released
hangs program
look 28 stacks "$HUNG"
released
exit 0
