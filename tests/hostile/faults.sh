#!/bin/bash
# Every system call that the library needs for itself fails: once, or for ever, at the server or
# at the client. And limits, and places that are missing. Each time all bytes must arrive, both
# ends end well and nothing hangs; where the counters can be written they must name a reason, or
# say that the fast path was found all the same.
#	faults.sh [NAME...]		two halves beside each other, since most of a run is waiting
#	faults.sh --table [CALL...]	every call of the table below, the 1st use, the 2nd and so
#					on until a run makes fewer, and all (an hour); beyond the
#				8th about every fifth; EVERY=1: each (four hours); EVERY=4,2: the
#				2nd, 6th, 10th ...; a row
#					that is never used fails
# TIMEOUT: 600
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ ${SAN-} != thread ]] || skip "the runtime needs these calls for itself"
F=$B/hostile/fault V=$B/hostile/victim
[[ -x $F && -x $V ]] || fail "not built"
MODE=both
begin_mode both
TABLE=
[[ ${1-} == --table ]] && { TABLE=1; shift; }
ONLY=("$@")
ran=0 rc=0 cut=0 hit=0 nth=0

# Two halves, each with every second run and every second port. The fourth descriptor gets "RUNS
# FAILED-IN CUT".
if [[ -z $TABLE && -z ${HALF-} && $# == 0 ]]; then
	for h in 0 1; do HALF=$h "$0" 4>"$TMP/half.$h" & halves[h]=$!; done
	PIDS=("${halves[@]}")
	for h in 0 1; do wait "${halves[$h]}" || rc=$?; done
	((rc == 77)) && exit 77
	read -r ran hit \
		cut < <(awk '{ a += $1; b += $2; c += $3 } END { print a + 0, b + 0, c + 0 }' \
		"$TMP"/half.*)
	say "$ran runs, in $hit a call failed, $cut of them reached the fast path all the same"
	((rc || (hit > 55 && cut > 20))) || { say "too few: this tried nothing"; rc=1; }
	exit $rc
fi

# AddressSanitizer's runtime ends the process when it has no memory, or at its end no /proc; any
# is too large for a small address space.
wanted() {
	[[ ${SAN-} == address && $1 =~ ^(mmap-|no-proc) ]] && return 1
	[[ -n ${SAN-} && $1 == as-* ]] && return 1
	((${#ONLY[@]} == 0)) && return 0
	local o
	# shellcheck disable=SC2053  # a pattern
	for o in "${ONLY[@]}"; do [[ $1 == $o ]] && return 0; done
	return 1
}

# What runs: SCENE, the programs' modes, BYTES that the client counts.
#	plain		many small bursts, on a lasting connection and on fresh ones
#	earns		the same, and connections earn their path only when some bytes have moved
#	vectors		as earns, by readv and writev
#	messages	vectors, but the library looks for a path from the first byte: it moves
#			them by its own calls
#	blocks		large blocks by calls that wait; the server's connections are held by a
#			child for a while; a splice
#	directory	the ends meet in a directory, where somebody's socket was left long ago;
#			the programs have executed themselves again
scene() {
	local quickly=('earn_bytes 0' 'earn_rounds 0' 'discovery 200ms' 'watch_after 0')
	SCENE=$1 SERVES=echo ASKS=once BYTES=3840000 WITH=()
	case $SCENE in
	plain) policy "${quickly[@]}" ;;
	earns) policy 'earn_bytes 300000' 'earn_rounds 100000' 'discovery 200ms' ;;
	vectors) WITH=(VICTIM_VECTORS=1); policy 'earn_bytes 300000' 'earn_rounds 100000' \
		'discovery 200ms' ;;
	messages) WITH=(VICTIM_VECTORS=1); policy "${quickly[@]}" ;;
	blocks) SERVES=lend ASKS=blocks BYTES=14155776; policy "${quickly[@]}" ;;
	directory) WITH=(VICTIM_AGAIN=1); mkdir -p -m 700 "$TMP/meet"; policy "${quickly[@]}" \
		"discovery_dir $TMP/meet" ;;
	*) fail "no scene $SCENE" ;;
	esac
}
left_long_ago() { python3 -S -E -c 'import os, socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])
os.utime(sys.argv[1], (1, 1))' "$TMP/meet/shim1.left"; }

# A call that the library makes on the program's behalf, with an error that the kernel could give:
# that it was told is right.
was_told() {
	[[ -n ${TOLD-} ]] && grep -qs "^victim: .*: $TOLD" "$TMP/server.log" "$TMP/client.log"
}

# The victim's own process, of one in which a wrapper runs it.
victim_of() {
	local p=$1 c
	until [[ $(cat "/proc/$p/comm" 2>/dev/null) == victim ]]; do
		c=$(pgrep -P "$p" | head -n 1)
		[[ -n $c ]] || return 1
		p=$c
	done
	echo "$p"
}

# Told again and again: pgrep misses one now and then while many processes end.
ends() { kill -TERM "$(victim_of "$1")" 2>/dev/null; gone "$1"; }
stacks() {
	timeout 20 gdb -q -nx -batch -ex 'set debuginfod enabled off' -p "$(victim_of "$2")" \
		-ex 'thread apply all bt' 2>/dev/null | grep -E '^(Thread|#)' | sed "s/^/$1: /" >&3
}

# The client has closed all and rests; or it has ended by itself.
rests() { grep -q ' bytes$' "$TMP/client.log" || gone "$1"; }

# What a process holds: descriptors; kB of shared memory that is mapped, but for the counters;
# mappings.
holds() {
	local p range rest kb=0 n=0
	p=$(victim_of "$1") || return
	while read -r range rest; do
		n=$((n + 1))
		[[ $rest == */memfd:* ]] && kb=$((kb + (16#${range#*-} - 16#${range%-*}) / 1024))
	done <"/proc/$p/maps"
	echo "$(find "/proc/$p/fd" -mindepth 1 | wc -l) $kb $n" \
		"$(find "/proc/$p/fd" -mindepth 1 -lname '*timerfd*' | wc -l)"
} 2>/dev/null

# No more than one end held in a run without faults; a link that was never proven goes after three
# seconds, a silent caller after two. A thread that has waited once keeps its bell, a timerfd that
# both ends hold, and whether one has is chance: one more at both is none that was left.
declare -A LIMIT=()
no_more() {	# PID ROLE, and the other end's
	local h=() limit o=() others
	read -ra h < <(holds "$1")
	((${#h[@]} == 4)) || return 0	# it has ended
	HELD="${h[*]}"
	read -ra limit <<<"${LIMIT[$SCENE.$2]}"
	read -ra o < <(holds "$3")
	read -ra others <<<"${LIMIT[$SCENE.$4]-}"
	((${#o[@]} == 4 && ${#others[@]} == 4 && h[3] == limit[3] + 1 &&
		o[3] == others[3] + 1)) && limit[0]=$((limit[0] + 1))
	((h[0] <= limit[0] && h[1] <= limit[1] && h[2] <= limit[2] + 8))
}
left_over() {	# NAME PID ROLE, and the other end's
	if [[ -z ${LIMIT[$SCENE.$3]-} ]]; then
		within 5 steady "$2"
		LIMIT[$SCENE.$3]=$HELD
		return
	fi
	within 5 no_more "$2" "$3" "$4" "$5" && return
	say "$1: the $3 at rest holds $HELD (descriptors, kB of links, mappings, timerfds)," \
		"without a fault ${LIMIT[$SCENE.$3]}:" \
		"$(find "/proc/$(victim_of "$2")/fd" -mindepth 1 -printf '%l\n' | sed 's/\[.*//' |
		sort | uniq -c | tr -s ' \n' ' ')"
	rc=1
}
steady() { local was; was=$(holds "$1"); sleep 0.2; HELD=$(holds "$1"); [[ $HELD == "$was" ]]; }

# run NAME REASONS SERVER-WRAPPER CLIENT-WRAPPER: words before `env ... victim` at that end.
# REASONS: a regular expression for the reasons that the counters may show; "" = there is no
# counting.
run() {
	local name=$1 reasons=$2 status=0 srv out ask
	wanted "$name" || return 0
	nth=$((nth + 1))
	[[ -n ${HALF-} && $name != plain* && -z ${AGAIN-} ]] && ((nth % 2 != HALF)) && return 0
	ran=$((ran + 1))
	free_port port
	while [[ -n ${HALF-} ]] && ((port % 2 != HALF)); do free_port port; done
	rm -rf "$STAT"
	mkdir -m 700 "$STAT"
	[[ $SCENE != directory || -e $TMP/meet/shim1.left ]] || left_long_ago
	ask=("$V" "$ASKS" "$port")
	[[ $ASKS == once ]] && ask+=(16 "$((${tries:-1} * 10))") || ask+=(3 10)
	shim_env
	[[ -n ${NO_STAT_DIR-} ]] && SHIM_ENV=("${SHIM_ENV[@]/RDMASHIM_STAT_DIR=*/RDMASHIM_STAT=}")
	# shellcheck disable=SC2086
	start none "$TMP/server.log" $3 env "${SHIM_ENV[@]}" "${WITH[@]}" "$V" "$SERVES" "$port"
	srv=$PID
	if ! within 5 listening "$port"; then
		was_told && { hit=$((hit + 1)); return; }
		say "$name: the server does not start: $(tail -n 3 "$TMP/server.log")"
		rc=1
		return
	fi
	# shellcheck disable=SC2086
	start none "$TMP/client.log" timeout -k 1 20 $4 env "${SHIM_ENV[@]}" "${WITH[@]}" \
		"${ask[@]}"
	within 25 rests "$PID" && { left_over "$name" "$srv" server "$PID" client
		left_over "$name" "$PID" client "$srv" server
		within 5 ends "$PID" || stacks "$name" "$PID"; }
	wait "$PID" || status=$?
	if [[ $status == 77 ]]; then
		skip "$(cat "$TMP/client.log")"
	fi
	out=$(grep -v seen "$TMP/client.log")
	if was_told; then
		hit=$((hit + 1))
		kill -TERM "$srv" 2>/dev/null
		within 5 gone "$srv" || { say "$name: the server does not end"; rc=1; kill \
			-KILL "$srv"; }
		wait "$srv" 2>/dev/null
		return
	fi
	if ((status)) || [[ $out != "$BYTES bytes" ]]; then
		say "$name: client's status $status: $(tail -n 5 "$TMP/client.log")"
		rc=1
	fi
	kill -TERM "$srv" 2>/dev/null ||
		{ say "$name: the server died: $(tail -n 5 "$TMP/server.log")"; rc=1; }
	if ! within 5 gone "$srv"; then
		say "$name: the server does not end"
		rc=1
		kill -KILL "$srv"
	fi
	wait "$srv" || { say "$name: server's status $?: $(tail -n 5 "$TMP/server.log")"; rc=1; }
	grep -q ' [1-9][0-9]* failed' "$TMP/server.log" "$TMP/client.log" && hit=$((hit + 1))
	[[ -n $reasons ]] || return 0
	collect
	# Over before the library had looked at it: says nothing about what it would have found.
	# Once more, with longer pauses.
	if ((FAST == 0)) &&
		[[ ! $REASONS =~ $reasons && $REASONS =~ ^(not-earned:[0-9]+|searching:[0-9]+|-)$ &&
		${tries:=1} -lt 5 ]]; then
		tries=$((tries + 1)) ran=$((ran - 1)) nth=$((nth - 1))
		AGAIN=1 run "$@"
		return
	fi
	tries=1
	((FAST > 0)) && cut=$((cut + 1))
	[[ $FAST -gt 0 || $REASONS =~ $reasons ]] ||
		{ say "$name: no byte on a fast path because: $REASONS, expected $reasons"; rc=1; }
	[[ -n ${VERBOSE-} ]] &&
		say "$name: $FAST bytes on a fast path, reasons $REASONS;" \
		"$(grep -h seen "$TMP"/{server,client}.log | tr '\n' ' ')"
	return 0
}

# calls KIND ERRNO REASONS WHERE...: s, c all at the server, at the client; 1 the client's first;
# 2 both second ones; 3 both third and further ones. Only where there are such calls: a run in
# which nothing fails is counted and said.
calls() {
	local kind=$1 err=$2 reasons=$3 w
	shift 3
	for w in "$@"; do
		case $w in
		s) run "$kind-server" "$reasons" "$F $kind 1 0 $err" "" ;;
		c) run "$kind-client" "$reasons" "" "$F $kind 1 0 $err" ;;
		1) run "$kind-1" "$reasons" "" "$F $kind 1 1 $err" ;;
		2) run "$kind-2" "$reasons" "$F $kind 2 2 $err" "$F $kind 2 2 $err" ;;
		3 | 4 | 5) run "$kind-$w" "$reasons" "$F $kind $w 0 $err" "$F $kind $w 0 $err" ;;
		esac
	done
}

# System calls that the library's own code makes, what they fail with, and whether they may do so
# for ever ("once": an answer that a kernel gives now and then); "told": the program may hear of
# it, because it asked; "passed": it is the program's own, which the library passes on by way of
# libc. Then the scene in which the library makes it, if not the plain one; and @TEST, which lets
# it fail where none of these programs can reach it. Every call in the sources must have a row:
# here, or among those that cannot be tried, with why.
table='
epoll_ctl 12 ever,told; getsockopt 92 ever; openat 24 ever; ioctl 25 ever; setsockopt 92 ever
ppoll 4 once; fcntl 24 ever; read 4 once; socket 24 ever; shutdown 107 ever,told; sendto 11 once
nanosleep 4 once blocks; fstat 12 ever; recvfrom 11 once; munmap 12 ever; sendmsg 11 once
recvmsg 4 once; getpeername 105 ever; futex 4 once; bind 98 ever; prlimit64 1 ever
newfstatat 12 ever; getsockname 105 ever; getrandom 38 ever; epoll_pwait 4 once; connect 111 ever
unlinkat 30 ever directory; timerfd_settime 125 ever; dup3 9 ever @unit/test_closer
open_tree 38 ever; process_vm_readv 1 ever blocks; pread64 5 ever; prctl 22 ever
pidfd_open 24 ever blocks; mmap 12 ever; listen 98 ever; ftruncate 28 ever
epoll_wait 4 once,passed; epoll_pwait2 4 once; accept4 24 ever; writev 11 once,passed vectors
timerfd_create 24 ever; readv 11 once,passed vectors; readlink 22 ever; mkdirat 28 ever
memfd_create 24 ever; madvise 22 ever; inotify_init1 24 ever; inotify_add_watch 28 ever
fstatfs 38 ever; epoll_create1 24 ever; readlinkat 22 ever blocks; munlock 12 ever
mprotect 12 ever'
# Those that move an application's bytes, and the scene in which they do: they move a third of
# them each time, as a kernel may.
declare -A short=([sendto]=plain [recvfrom]=plain [read]=earns [readv]=vectors [writev]=vectors \
	[sendmsg]=messages [recvmsg]=messages)
never='
close: what it gives says nothing; the descriptor is gone
getpid gettid geteuid getresuid getresgid clock_gettime sched_yield exit_group: cannot fail
accept dup dup2 epoll_create execve execveat sendfile splice close_range seccomp io_uring_setup:
	calls of the program that are passed on, or after which it is another
io_uring_enter io_uring_register sendmmsg recvmmsg preadv2 pwritev2 poll select pselect6:
	the same
fork clone clone3 landlock_restrict_self lsm_set_self_attr keyctl setns setuid setgid:
	the same
setreuid setregid setresuid setresgid capset:
	the same
statx:
	finds the policy before the programs here are under way (unit/test_trust: a directory
	that may not be searched)
statfs faccessat2 getcwd:
	files in directories that others may write, in user namespaces, with relative names
	(unit/test_trust)
process_mrelease: between network namespaces, and no ends here are (apps/nshalf)
lseek: sendfile() of a file of the program, which cannot fail there
tgkill kill rt_tgsigqueueinfo waitid: no use in the programs here
userfaultfd sched_getaffinity sched_setaffinity: the GPU path
sched_getscheduler: asks after the calling thread
capget unshare setgroups:
	asks what the program gives up, or whether it has one thread then, or gives its groups
	up, and no program here does
getdents64:
	directories of which a policy includes files, and no policy here does; descriptors of
	RDMA in a child, and there is none here; those of a forked child that uses CUDA, whose
	GPU path stays off then; files of ended processes, below
flock renameat pwrite64:
	files of many processes that have ended are added up, and what cannot be added stays
	where it is (apps/manyshort)
write: the log and the counters only; fault.c needs it before it listens
timerfd_gettime: fails on what is no timer only, and who passes that is a liar
rt_sigaction:
	asked after a call that a handler interrupted which the library does not know, and there
	is none here; a failure there is taken for no handler
rt_sigprocmask:
	asks whether memory is there (usermem.c), and the answer does not change between two
	looks'

complete() {
	local c rows bad=0
	# shellcheck disable=SC2001  # lines
	rows=" $(sed 's/;/\n/g' <<<"$table" | awk '{ print $1 }' |
		tr '\n' ' ') $(sed -n '/^[^\t]/s/:.*//p' <<<"$never" | tr '\n' ' ') "
	# shellcheck disable=SC2013  # names
	for c in $(grep -rhvE --include='*.[ch]' '^#(ifndef|define) SYS_' \
		"$TOP"/{shim,rdma,policy} | grep -o '\bSYS_[a-z0-9_]*[a-z0-9]\b' | sort -u); do
		[[ $rows == *" ${c#SYS_} "* ]] ||
			{ say "$c is in the sources and has no row in the table"; bad=1; }
	done
	return $bad
}
number() { printf '#include <sys/syscall.h>\nSYS_%s\n' "$1" | gcc -E -P -x c - | tail -n 1; }

# The Nth use at one end, for each N until a run has fewer; beyond 8 not each, since hundreds are
# alike, unless EVERY is set.
whole_table() {
	local call err how where nr n w end row rows used parts step first
	IFS=, read -r step first <<<"${EVERY:-0},1"
	first=${first%,*}
	# not a loop that reads: the programs would inherit its descriptor
	mapfile -t rows <<<"${table//;/$'\n'}"
	for row in "${rows[@]}"; do
		read -r call err how where <<<"$row"
		[[ -n $call ]] && wanted "$call" || continue
		nr=$(number "$call") used=0 parts=0
		# those that it asks libc for
		[[ $how != *,passed ]] && grep -qE "^(CALL|ALIAS)\([^,]*, *$call," \
			"$TOP/shim/libc/calls.def" || nr=+$nr
		TOLD=''
		[[ $how == *,told ]] &&
			TOLD=$(python3 -S -E -c "import os; print(os.strerror($err))")
		begin_scene "${where:-plain}"
		for w in s c; do
			for ((n = first; n < 3000;
				n = step ? n + step : n < 8 ? n + 1 : n * 5 / 4)); do
				hit=0
				at_end "$w" "$call-$n" "$F $nr $n $n $err"
				((hit)) || break
				used=1
			done
			[[ $w == s ]] && end=server || end=client
			say "$call at the $end: $((n - 1)) uses, errno $err"
			[[ -n ${short[$call]-} ]] && in_parts "$w" "$call" "$nr"
			[[ $how == ever* ]] || continue
			at_end "$w" "$call-ever" "$F $nr 1 0 $err"
		done
		((used)) || unused "$call" "${where-}"
		[[ -z ${short[$call]-} || $parts == 1 ]] ||
			{ say "$call: never moved a part"; rc=1; }
	done
}
unused() {
	if [[ $2 == @* ]]; then
		[[ -e $TOP/tests/${2#@}.c || -e $TOP/tests/${2#@}.sh ]] &&
			{ say "$1: never used here; it fails in ${2#@}"; return; }
		say "$1: never used, and there is no ${2#@}"
	else
		say "$1: never used: nothing failed"
	fi
	rc=1
}
in_parts() {
	local was=$SCENE nr=$3
	[[ $2 == read ]] && nr=+${nr#+}		# its own reads are of files
	begin_scene "${short[$2]}"
	hit=0
	at_end "$1" "$2-short" "$F $nr 1 0 short"
	say "$2 in parts, $1:" \
		"$(awk '/ seen, / { n += $4 } END { print n + 0 }' "$TMP"/{server,client}.log)"
	((hit)) && parts=1
	scene "$was"
}
# What an end holds without a fault is seen first.
begin_scene() {
	local name=$1
	[[ $name == @* ]] && name=plain
	scene "$name"
	[[ -n ${LIMIT[$name.client]-} ]] || one_run "plain-$name" "" ""
}
# Blocks are copied only between processes with the same filters (docs/security.md): the other end
# gets one, in which nothing fails.
at_end() {
	local other=""
	[[ $SCENE == blocks ]] && other="$F $(number getpgid) 99999 99999 1"
	if [[ $1 == s ]]; then one_run "$2-server" "$3" "$other"; else one_run "$2-client" \
		"$other" "$3"; fi
}
one_run() {
	local ONLY=()
	run "$1" "" "$2" "$3"
}

EROFS=30 EMFILE=24 ENOMEM=12 EPERM=1 ENOSYS=38 EACCES=13 EAGAIN=11
any='[a-z]'
complete || rc=1
begin_scene plain	# says what is normal
if [[ -n $TABLE ]]; then
	whole_table
	say "$ran runs"
	exit $rc
fi
run plain fast-path-only "" ""
say "at rest the server holds ${LIMIT[plain.server]}, the client ${LIMIT[plain.client]}" \
	"(descriptors, kB of links, mappings, timerfds)"
calls memfd_create $EMFILE 'no-fds|no-memory' c
calls ftruncate $ENOMEM 'no-memory|peer-no-shim|not-earned|searching' s c 1 2
calls seal $EPERM 'no-discovery|no-memory' c
calls dupfd $EMFILE 'no-fds|no-thread' s c 1 2 3
# before the fifth: the counters, the sweep of others', the places, the first streams
calls mmap $ENOMEM "$any" s c 1 2 5
calls madvise $ENOSYS "$any" s c 1
calls timerfd $EMFILE 'no-fds|no-thread' s c 1 2
calls unix-socket $EPERM 'no-discovery|no-fds' s c 2
calls netlink $EPERM 'no-discovery|identity|peer-no-shim|peer-refused' s c 1 2 3
calls bind-name $EPERM 'no-discovery' s
calls connect-name $EPERM 'no-discovery' c 1 2
calls listen $EPERM 'no-discovery' s
calls clone3 $EAGAIN 'no-thread' s c
calls epoll_create $EMFILE 'no-fds|no-thread' s c
calls epoll_pwait2 $ENOSYS "$any" s c
calls inotify_init $EMFILE "$any" s c
calls inotify_add $ENOSYS "$any" s
calls sendmsg $EPERM "$any" s c 1 2 3
calls recvmsg $EPERM "$any" s c 1 2 3
calls getsockname $EPERM "$any" s c 2
calls tcp-info $EPERM "no-counts" s c 1 2
calls peercred $EPERM "$any" s c
calls outq $EPERM "no-counts" s c 1
calls openat $EACCES "" s c 1
calls prctl $ENOSYS "$any" s
# What the plain programs have no use for.
begin_scene blocks
run lent-pidfd_open "$any" "$F $(number pidfd_open) 1 0 $EMFILE" ""
run lent-process_vm_readv "$any" "$F process_vm_readv 1 0 $EPERM" "$F process_vm_readv 1 0 $EPERM"
begin_scene directory
run directory-unlinkat "$any" "$F +$(number unlinkat) 1 0 $EROFS" ""
scene plain
# These only slow the program's own bytes down; on a crowded machine all may be over before the cut.
calls sendto-short short "" s c
calls recvfrom-short short "" s c

run nofile-64 "$any" "prlimit --nofile=64" "prlimit --nofile=64"
run nofile-16-server "$any" "prlimit --nofile=16" ""
run nofile-16-client "$any" "" "prlimit --nofile=16"
run nofile-8 "" "prlimit --nofile=8" "prlimit --nofile=8"

run as-48M "$any" "prlimit --as=48000000" "prlimit --as=48000000"
# room for the counters (13 MB) and the program, not for a segment
run as-22M "$any" "prlimit --as=22500000" "prlimit --as=22500000"
run memlock-0 "$any" "prlimit --memlock=0" "prlimit --memlock=0"

run fsize-0 "" "prlimit --fsize=0" ""
if ((EUID == 0)) && unshare -m true 2>/dev/null; then
	# RLIMIT_NPROC does not bind root: as another user, who needs the counters' directory.
	run nproc-1 "" "setpriv --reuid 31337 --regid 31337 --clear-groups prlimit --nproc=1" \
		"setpriv --reuid 31338 --regid 31338 --clear-groups prlimit --nproc=1"
	cat >"$TMP/without" <<-'END'
		#!/bin/bash
		# without proc|shm|full|overcommit COMMAND...
		what=$1
		shift
		case $what in
		proc) umount -l /proc || mount -t tmpfs -o ro none /proc ;;
		shm) mount -t tmpfs -o ro,size=4k none /dev/shm ;;
		overcommit) echo 2 >"${0%/*}/2" &&
			mount --bind "${0%/*}/2" /proc/sys/vm/overcommit_memory ;;
		full) mount -t tmpfs -o size=4k none /dev/shm &&
			head -c 4096 /dev/zero >/dev/shm/full ;;
		esac || exit 2
		exec "$@"
	END
	chmod 755 "$TMP/without"
	run no-proc "$any" "unshare -m $TMP/without proc" "unshare -m $TMP/without proc"
	run strict fast-path-only "unshare -m $TMP/without overcommit" \
		"unshare -m $TMP/without overcommit"
	run strict-madvise "$any" "unshare -m $TMP/without overcommit" \
		"unshare -m $TMP/without overcommit $F madvise 1 0 $ENOMEM"
	run strict-old fast-path-only "unshare -m $TMP/without overcommit $F madvise 1 0 22" \
		"unshare -m $TMP/without overcommit $F madvise 1 0 22"
	NO_STAT_DIR=1
	run no-shm "" "unshare -m $TMP/without shm" "unshare -m $TMP/without shm"
	run full-shm "" "unshare -m $TMP/without full" "unshare -m $TMP/without full"
	NO_STAT_DIR=
fi
[[ -n ${HALF-} ]] && { echo "$ran $hit $cut" >&4; exit $rc; }
say "$ran runs, in $hit a call failed, $cut of them reached the fast path all the same"
((${#ONLY[@]} || (hit > 55 && cut > 20))) || { say "too few: this tried nothing"; rc=1; }
exit $rc
