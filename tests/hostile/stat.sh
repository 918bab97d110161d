#!/bin/bash
# A user's counter file against root's rdmastat: the policy file that it names is not root's to
# read, its path not a command, and one file under many names is not one process each. However many
# and large his files are, they cost root no more than 4 MiB.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
((EUID == 0)) || skip "only root can be the victim and the user"
[[ -n $SHIM ]] || skip "no library"
OWNER=1001 TRACED='' HANGS=''
begin_mode both
D=$TMP/counters
mkdir -m 700 "$D" && chown "$OWNER" "$D" || skip "no user can be made"
setpriv --reuid "$OWNER" --regid "$OWNER" --clear-groups true || skip "no user can be made"
chmod 755 "$TMP"

# forge PATH REASON [PID]: a counter file of this shell's process, or that one, made by the user
forge() {
	local pid=${3:-$$}
	rm -f "$D"/*
	python3 -S -E - "$1" "$2" "$pid" >"$D/$pid" <<-'END'
	import struct, sys
	path, reason, pid = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3])
	start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
	head = struct.pack("<QIIIIIIQQ64s40s192sII", 0x5453444d48535331, 10, 2568, 152, 16384,
		pid, 1001, start, 0, b"liar", b"0.2", path, 0, 1)
	row = struct.pack("<IIHHHBB", 2, 7, 2, 1, 2, 0, reason)
	out = head.ljust(2568, b"\0") + row.ljust(88 + 24, b"\0") + struct.pack("<I", 1)
	sys.stdout.buffer.write(out)
	END
	truncate -s 16M "$D/$pid"
	chown "$OWNER" "$D/$pid" && chmod 600 "$D/$pid"
}
why() { RDMASHIM_STAT_DIR=$D timeout 10 "$TMP/rdmastat" why "$@" 2>&1; }

echo 'hidden-word of root' >"$TMP/secret" && chmod 600 "$TMP/secret"
forge "$TMP/secret" 0
why $$ >"$TMP/out"
grep -q '^process' "$TMP/out" || fail "the forged file is not read: $(<"$TMP/out")"
grep -q 'hidden-word' "$TMP/out" && fail "a word of a file of root's is shown: $(<"$TMP/out")"
mkdir -m 700 "$TMP/his"
echo "include $TMP/secret" >"$TMP/his/conf"
chown -R "$OWNER" "$TMP/his"
forge "$TMP/his/conf" 0
why $$ >"$TMP/out"
grep -q 'cannot be used, everything is TCP: .*his/conf' "$TMP/out" ||
	fail "what includes is not read: $(<"$TMP/out")"
grep -q 'hidden-word' "$TMP/out" && fail "a word of an included file is shown: $(<"$TMP/out")"

# He cuts it short all the time: of what is mapped that would be SIGBUS.
forge /dev/null 0
start none "$TMP/cuts.log" python3 -S -E -c 'import os, sys
data = open(sys.argv[1], "rb").read(4096)
fd = os.open(sys.argv[1], os.O_RDWR)
print("cuts", flush=True)
while True:
    os.ftruncate(fd, 100)
    os.ftruncate(fd, 16 << 20)
    os.pwrite(fd, data, 0)' "$D/$$"
cutter=$PID
within 10 grep -q cuts "$TMP/cuts.log" || fail "nobody cuts: $(<"$TMP/cuts.log")"
for what in summary '-c' calls 'why all' '--json --all'; do
	for _ in {1..10}; do
		# shellcheck disable=SC2086  # words
		RDMASHIM_STAT_DIR=$D timeout 10 "$TMP/rdmastat" $what >/dev/null 2>&1
		how=$?
		((how < 124)) || fail "rdmastat $what, of a file that is cut short: status $how"
	done
done
gone "$cutter" && fail "nobody cuts any more: $(<"$TMP/cuts.log")"
kill -KILL "$cutter"

mkfifo -m 666 "$TMP/fifo"
strace -qq -o "$TMP/trace" true 2>/dev/null || TRACED=no
for f in "$TMP/fifo" /dev/zero /dev/tty; do
	forge "$f" 0
	why $$ >"$TMP/out" || fail "$f: $(<"$TMP/out")"
	[[ -z $TRACED ]] || continue
	RDMASHIM_STAT_DIR=$D strace -f -qq -e trace=open,openat -o "$TMP/trace" \
		"$TMP/rdmastat" why $$ >/dev/null 2>&1 ||
		fail "$f: rdmastat under strace ended with $?"
	grep -F "\"$D\"" "$TMP/trace" >/dev/null || fail "nothing was traced"
	grep -F "\"$f\"" "$TMP/trace" && fail "$f was opened"
done

# A command that is printed is run as it stands, with an rdmastat that writes down its words.
mkdir "$TMP/scratch" "$TMP/bin"
printf '#!/bin/sh\nprintf "%%s\\n" "$@" >%q\n' "$TMP/words" >"$TMP/bin/rdmastat"
chmod 755 "$TMP/bin/rdmastat"
# copy COMMAND PATH: it has the path as one word
copy() {
	rm -f "$TMP/words"
	(cd "$TMP/scratch" && PATH=$TMP/bin:$PATH sh -c "$1") >"$TMP/out" 2>&1
	[[ -z $(ls -A "$TMP/scratch") ]] || fail "$1: made $(ls -A "$TMP/scratch")"
	grep -qxF "$2" "$TMP/words" || fail "$1: $(<"$TMP/out")"
}
advice() {
	python3 -S -E -c "import json,sys; print(json.load(sys.stdin)['connections'][0]['advice'])"
}
MODE_OFF=3 NOT_EARNED=1		# policy/reason.def
for name in 'x;touch pwned' "x';touch pwned;'" 'x$(touch pwned)' 'x`touch pwned`' \
	'x & touch pwned' '-f;touch pwned'; do
	forge "$TMP/$name" $MODE_OFF
	copy "$(why $$:7 --json | advice)" "$TMP/$name"
	forge "$TMP/$name" $NOT_EARNED
	command=$(why $$:7 --json | advice)
	copy "${command#*to lower them: }" "$TMP/$name"
done
# remedy CHECK: what doctor says
remedy() {
	"$TMP/rdmastat" doctor --no-transfer --json |
		python3 -S -E -c "import json,sys
for c in json.load(sys.stdin)['checks']:
    if c['name'] == sys.argv[1]:
        print(c['remedy'])" "$1"
}
name="$TMP/p';touch pwned;' q"
echo nonsense >"$name"
copy "$(RDMASHIM_CONF=$name remedy policy)" "$name"
mkdir -m 755 "$name.d"
(cd "$TMP/scratch" && sh -c "$(RDMASHIM_STAT_DIR=$name.d remedy counters)")
[[ $(stat -c %a "$name.d") == 700 && -z $(ls -A "$TMP/scratch") ]] ||
	fail "doctor's chmod: $(ls -lA "$TMP/scratch")"

# Behind the path is a file system that never answers.
mkdir "$TMP/mnt"
forge "$TMP/mnt/policy" 0
begun=$SECONDS
RDMASHIM_STAT_DIR=$D timeout -s KILL 30 python3 -S -E "$TOP/tests/hostile/stat_hang.py" "$TMP/mnt" \
	timeout -s KILL 10 "$TMP/rdmastat" why $$ >"$TMP/out" 2>&1
rc=$?
if ((rc == 77)); then
	HANGS=$(<"$TMP/out")
else
	((rc == 0 && SECONDS - begun < 6)) ||
		fail "a policy that never comes: $rc after $((SECONDS - begun)) s: $(<"$TMP/out")"
	grep -q 'takes too long' "$TMP/out" || fail "a policy that never comes: $(<"$TMP/out")"
fi

# Who writes from memory that never comes keeps the lock of his file, which is to be removed as its
# process is dead, or that of a directory; who sends, of a socket like which a row of his is.
locked() {
	local rc
	RDMASHIM_STAT_DIR=$D timeout -s KILL 30 python3 -S -E "$TOP/tests/hostile/stat_locked.py" \
		"$1" "$D/$HIS" "$TMP/rdmastat" >"$TMP/out" 2>&1
	rc=$?
	if ((rc == 77)); then
		HANGS='no userfaultfd'
	elif ((rc != 0)); then
		fail "a $1 whose lock is held: $rc: $(<"$TMP/out")"
	fi
}
setpriv --reuid "$OWNER" --regid "$OWNER" --clear-groups sleep 60 &
HIS=$!
his() { [[ $(stat -c %u "/proc/$HIS") == "$OWNER" && $(<"/proc/$HIS/comm") == sleep ]]; }
within 10 his || fail "no process of the user's"
forge "$TMP/x" 9 "$HIS"
locked socket
kill "$HIS"
wait "$HIS" 2>/dev/null
locked file
forge "$TMP/x" 9 "$$"
mv "$D/$$" "$D/$HIS"
locked directory

forge "$TMP/x" 0
ln "$D/$$" "$D/1" && grep -q '^process' <<<"$(why $$)" && fail "a file with two names is believed"

# peak DIR WORDS...: KiB that rdmastat held at most; what it printed is in $TMP/out and $TMP/err
peak() {
	local dir=$1
	shift
	RDMASHIM_STAT_DIR=$dir timeout 60 "$B/hostile/peak" "$TMP/rdmastat" "$@" 4>&1 \
		>"$TMP/out" 2>"$TMP/err"
}
files() { (umask 077 && python3 -S -E "$TOP/tests/hostile/stat_forge.py" "$@") || exit 1; }

LARGE=$TMP/large SMALL=$TMP/small NONE=$TMP/none
mkdir -m 700 "$LARGE" "$SMALL" "$NONE"
files "$LARGE" 1000000000 40 64 63 rich
files "$LARGE" 1000001000 1 16384 16384
files "$LARGE" 1000002000 360 4096 4096
files "$SMALL" 1000000000 10000 1 1
chown -R "$OWNER" "$LARGE" "$SMALL" "$NONE"
while read -r -a view; do
	least=$(peak "$NONE" "${view[@]}")
	for d in "$LARGE" "$SMALL"; do
		most=$(peak "$d" "${view[@]}") || fail "${view[*]}: $(<"$TMP/err")"
		# a sanitizer keeps what was freed
		[[ -n ${SAN-} ]] || ((most - least <= 4096)) ||
			fail "${view[*]}: $((most - least)) KiB for ${d##*/} files"
		grep -q '^rdmastat: not shown, since other users have too many: ' "$TMP/err" ||
			fail "${view[*]} does not say what was left out"
	done
done <<-END
	overview
	overview --json
	conn
	conn -o all
	conn --json
	link
	listen
	link --json
	listen --json
	calls
	calls --json
	qp -o all
	qp --json
	mr
	mr --json
	dev
	staging
	staging --json
	why 1000000000
	why 1000000000 --json
	prometheus
	record $TMP/record -n 1
END
# The page that all may ask for, and the one before it, which a slow client still reads.
free_port port
for d in "$NONE" "$LARGE" "$SMALL"; do
	start none "$TMP/page.log" env RDMASHIM_STAT_DIR="$d" \
		"$TMP/rdmastat" prometheus --listen "127.0.0.1:$port" --show all
	wait_port "$port"
	python3 -S -E - "$port" <<-'END' || fail "prometheus --listen: no page of ${d##*/} files"
	import socket, sys, time
	def ask():
	    s = socket.socket()
	    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
	    s.connect(("127.0.0.1", int(sys.argv[1])))
	    s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
	    return s, s.recv(12)
	slow = []
	for i in range(3):	# each gets a page of its own: one a second is made
	    slow.append(ask())
	    time.sleep(1.1)
	sys.exit(any(not got.startswith(b"HTTP/1.1 200") for _, got in slow))
	END
	most=$(awk '/^VmHWM/ { print $2 }' "/proc/$PID/status")
	stop "$PID"
	[[ $d == "$NONE" ]] && least=$most
	[[ -n ${SAN-} ]] || ((most - least <= 4096)) ||
		fail "prometheus --listen: $((most - least)) KiB for ${d##*/} files"
done

{ echo 'program *' && yes 'use shm both *:*' | head -n 60000; } >"$TMP/his/conf"
chown "$OWNER" "$TMP/his/conf"
forge "$TMP/his/conf" 0
least=$(peak "$NONE" why $$)
most=$(peak "$D" why $$) || fail "a large policy: $(<"$TMP/err")"
[[ -n ${SAN-} ]] || ((most - least <= 4096)) || fail "a large policy: $((most - least)) KiB"
[[ -n ${SAN-} ]] || grep -q 'his/conf was not read: it is larger' "$TMP/out" ||
	fail "a large policy: $(<"$TMP/out")"
peak "$LARGE" --json >/dev/null
live=$(python3 -S -E -c 'import json,sys; print(json.load(sys.stdin)["total"]["live"])' <"$TMP/out")
((live == 40 * 63 + 16384 + 360 * 4096)) || fail "not all connections are in the sums: $live"
# shellcheck disable=SC2010	# in the order in which they are read: the last
for pid in $(ls -f "$SMALL" | grep -v '^\.' | tail -n 3); do
	peak "$SMALL" why "$pid:0" >/dev/null
	grep -q "^connection" "$TMP/out" || fail "why $pid: $(<"$TMP/out") $(<"$TMP/err")"
done
[[ -z $TRACED ]] || skip "all but what is opened: strace may not trace here"
[[ -z $HANGS ]] || skip "all but a file system that never answers: $HANGS"
exit 0
