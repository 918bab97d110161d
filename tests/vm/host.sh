# shellcheck shell=bash
# host.sh - functions for use on a guest, sourced by process 1, the agent and the tests. A test
# uses them on its own host directly and on another with `on b FUNCTION ARGUMENTS`. Environment:
# TOP, RUN, HOST (a or b) and, in a test, TEST its name, HOSTS how many, DEVICE rxe, siw or none.
# Programs of the build directory are in PATH.
#
# Two networks join the hosts. `data` carries what is tested and has the RDMA device; tests may
# break it. `ctl` carries the commands, and can be the network where TCP goes if that shall be
# another one than RDMA's.

set -uo pipefail
declare -A ctl_addr=([a]=10.99.0.1 [b]=10.99.0.2) ctl_addr6=([a]=fd99::1 [b]=fd99::2)
declare -A data_addr=([a]=10.1.0.1 [b]=10.1.0.2) data_addr6=([a]=fd01::1 [b]=fd01::2)
export A4=${data_addr[a]} A6=${data_addr6[a]} B4=${data_addr[b]} B6=${data_addr6[b]}
TMP=/tmp/vm.${TEST-none}
LOG=$RUN/log/${TEST-none}
RSPRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so
export RDMASHIM_CONF=$TMP/policy.conf

nap() { read -rt "$1" <>/run/never; true; }

# within SECS CMD...: until it succeeds, for so many seconds and then so many tries: while the
# machine stands still for other work, so does what is waited for.
within() {
	local end=$((SECONDS + $1)) tries=$1 pause=0.02
	shift
	until "$@"; do
		((SECONDS < end || --tries > 0)) || return 1
		nap $pause
		pause=0.2
	done
}

# on HOST CMD...: runs a command or one of these functions there, as a test does here; its output
# and its exit status. It has ON_LIMIT seconds (default 600). Bash speaks to the agent itself:
# each program started costs an emulated processor much time.
on() {
	local host=$1 fd line last="" rc="" first=1 end=$((SECONDS + ${ON_LIMIT:-600}))
	shift
	if [[ $host == "$HOST" ]]; then
		("$@") </dev/null
		return
	fi
	exec {fd}<>"/dev/tcp/${ctl_addr[$host]}/7" || return 125
	{
		printf 'export TEST=%q RDMASHIM_TEST=%q HOSTS=%q DEVICE=%q\n' "${TEST-}" \
			"${RDMASHIM_TEST-}" "${HOSTS-}" "${DEVICE-}"
		printf '. tests/vm/host.sh\n'
		printf '%q ' "$@"
		printf '\0'
	} >&"$fd"
	# The last line is the status, and the line end before it is the agent's.
	while ((SECONDS < end)) && IFS= read -t $((end - SECONDS)) -ru "$fd" line; do
		if [[ $line == "exit "[0-9]* ]]; then
			rc=${line#exit }
			[[ -z $last ]] || printf '%s\n' "$last"
			break
		fi
		((first)) || printf '%s\n' "$last"
		last=$line first=0
	done
	exec {fd}>&-
	[[ -n $rc ]] || { printf '%s\n' "$last"; echo "on $host: no answer to: $*" >&2; rc=125; }
	return "$rc"
}

# ---- programs
# What `shim CMD` and `start NAME shim CMD` preload.
SHIM_ENV=(LD_PRELOAD="${PRELOAD-}" RDMASHIM_STAT_DIR="$TMP/stat" RDMASHIM_LOG_FILE="$TMP/shim.log")
shim() { env "${SHIM_ENV[@]}" "$@"; }
# The peer: librdmacm's rsockets under programs for sockets.
rsockets() { env LD_PRELOAD="$RSPRELOAD" "$@"; }

# start NAME [shim|rsockets] CMD...: in the background; its output is $LOG.NAME.HOST.
start() {
	local name=$1
	shift
	case $1 in
	shim) shift; set -- env "${SHIM_ENV[@]}" "$@" ;;
	rsockets) shift; set -- env LD_PRELOAD="$RSPRELOAD" "$@" ;;
	esac
	rm -f "$TMP/$name.status"
	# The inner shell stays to keep the status; the pid is the program's.
	(
		"$@" >"$LOG.$name.$HOST" 2>&1 </dev/null &
		echo $! >"$TMP/$name.pid"
		wait $!
		echo $? >"$TMP/$name.status"
	) >/dev/null 2>&1 </dev/null &
	within 10 test -s "$TMP/$name.pid"
}

pid_of() { cat "$TMP/$1.pid"; }
output() { cat "$LOG.$1.$HOST"; }
ended() { [[ -s $TMP/$1.status ]]; }

# finish NAME SECS: the exit status of a background program that must end by itself.
finish() {
	within "$2" ended "$1" || { echo "$1 on host $HOST still runs after $2 s"; return 124; }
	return "$(<"$TMP/$1.status")"
}

# stop NAME [SIGNAL]: asks it to end, which it must within 15 s; its status does not matter.
stop() {
	ended "$1" || kill "-${2:-TERM}" "$(pid_of "$1")" 2>/dev/null
	within 15 ended "$1" || { echo "$1 on host $HOST ignores SIG${2:-TERM}"; return 1; }
}

listening() { [[ -n $(ss -Hltn "sport = :$1") ]]; }
wait_port() { within "${2:-30}" listening "$1" || { echo "host $HOST: nobody listens on port $1"; \
	return 1; }; }
# rsockets and librdmacm listen where ss does not see it: the port that a cm_id is bound to.
rdma_listening() { grep -q "state LISTEN.*:$1\b" <<<"$(rdma resource show cm_id 2>/dev/null)"; }
wait_rdma_port() { within "${2:-30}" rdma_listening "$1" ||
	{ echo "host $HOST: no RDMA listener on port $1"; return 1; }; }

# policy 'LINE'...: this host's policy file from now on.
policy() { if (($#)); then printf '%s\n' "$@" >"$RDMASHIM_CONF"; else : >"$RDMASHIM_CONF"; fi; }

# What this host's preloaded processes counted, living and dead: "connections C tcp N shm N rdma N
# cuts N rewinds N overflows N reasons R:N,R:N". Dead ones are shown once. Or those of another
# directory.
counters() {
	RDMASHIM_STAT_DIR=${1:-$TMP/stat} rdmastat --json --all |
		sed -n '/^ *"total":/,$ s/[{,[]/&\n/gp' | awk -F '[] ":,{}]+' '
	NF < 3 { next }
	$2 == "reason" { reason = $3; next }
	$2 == "connections" && reason { reasons = reasons sep reason ":" $3; sep = ",";
		reason = ""; next }
	!($2 in v) { v[$2] = $3 }
	END {
		n = split("connections tcp shm rdma cuts rewinds overflows", key, " ")
		for (i = 1; i <= n; i++) {
			if (v[key[i]] == "") exit 1
			printf "%s %s ", key[i], v[key[i]]
		}
		print "reasons", reasons ? reasons : "-"
	}'
}

# ---- the machine
host_boot() {
	local m eth=(/sys/class/net/eth*)
	# Memory is weighed: one page of 2 MiB that the kernel makes of small ones would be more
	# than what is looked for.
	echo never >/sys/kernel/mm/transparent_hugepage/enabled
	sysctl -q net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 kernel.sysrq=1 \
		2>/dev/null
	ip link set lo up
	ip link set eth0 name data && ip link set eth1 name ctl ||
		{ echo "no network cards: ${eth[*]}"; return 1; }
	ip link set ctl up
	ip addr add "${ctl_addr[$HOST]}/24" dev ctl
	ip -6 addr add "${ctl_addr6[$HOST]}/64" dev ctl nodad
	# rxe needs crc32 before it is told to make a device, and does not ask for it.
	for m in crc32_generic ib_uverbs rdma_ucm; do modprobe "$m" || return 1; done
	modprobe -a rdma_rxe siw 2>/dev/null
	data_up
}

# The data network as it should be, whatever was done to it.
data_up() {
	tc qdisc del dev data root 2>/dev/null
	ip link set data mtu "${VM_MTU:-1500}" up
	ip addr replace "${data_addr[$HOST]}/24" dev data
	ip -6 addr replace "${data_addr6[$HOST]}/64" dev data nodad
}

device_active() { grep -q 'state ACTIVE' <<<"$(rdma link show "$1/1" 2>/dev/null)"; }
# The address table that librdmacm looks in: without the data network's addresses nobody can
# connect.
device_has_gids() {
	local want
	# shellcheck disable=SC2046,SC2183  # four numbers
	want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' \
		$(tr . ' ' <<<"${data_addr[$HOST]}"))
	grep -qsx "$want" /sys/class/infiniband/"$1"/ports/1/gids/*
}

# device_up rxe|siw: rxe0 or siw0 on the data network, active.
device_up() {
	rdma link add "$1"0 type "$1" netdev data || return 1
	within 20 device_active "$1"0 || { echo "host $HOST: $1 does not become active"; rdma \
		link; return 1; }
	[[ $1 == siw ]] || within 20 device_has_gids "$1"0 ||
		{ echo "host $HOST: $1 has no address"; return 1; }
}

# Who has the RDMA devices open.
device_users() {
	find /proc/[0-9]*/fd \( -lname '/dev/infiniband/*' -o -lname '*infinibandevent*' \) \
		-printf '%h %f %l\n' 2>/dev/null
	grep -H /dev/infiniband/ /proc/[0-9]*/maps
	ps -o pid,ppid,args
	rdma resource show cm_id
	rdma resource show qp
}

# device_down rxe|siw: the removal waits for those who have the device open.
device_down() {
	local p
	rdma link delete "$1"0 &
	p=$!
	within 30 test ! -e "/proc/$p/fd/0" || { echo "host $HOST: somebody keeps $1 open:"; \
		device_users; host_stacks; return 1; }
	wait "$p"
}

# All RDMA devices go but the one that the test wants.
devices_as_wanted() {
	local d
	for d in $(rdma link show | sed -n 's,^link \([^/]*\)/.*,\1,p'); do
		[[ $d == "$DEVICE"0 ]] && device_active "$d" && continue
		device_down "${d%0}" || return 1
	done
	[[ $DEVICE == none ]] || rdma link show "$DEVICE"0/1 >/dev/null 2>&1 || device_up "$DEVICE"
}

# host_dmesg NAME: the kernel's log since the last time, beside the test's own.
host_dmesg() { dmesg -c >"$RUN/log/$1.dmesg.$HOST"; }

host_prepare() {
	rm -rf "$TMP"
	mkdir -p "$TMP/stat"
	chmod 700 "$TMP/stat"
	: >"$RDMASHIM_CONF"
	devices_as_wanted
}

# The children of a test carry its name in their environment, also after a fork, setsid and exec.
# Not so process 1, the agent and their subshells: what a process was started with does not
# change. Nor those who are looking.
members() (
	unset RDMASHIM_TEST
	grep -lsz "^RDMASHIM_TEST=$TEST\$" /proc/[0-9]*/environ | cut -d/ -f3
)

none_left() {
	local p all
	all=$(members)
	[[ -z $all ]] && return
	for p in $all; do kill -KILL "$p" 2>/dev/null; done
	return 1
}

host_clean() {
	within 20 none_left || { echo "host $HOST: processes cannot be killed: $(members)"; return \
		1; }
	data_up
	rm -rf "$TMP"
}

host_stacks() {
	local p
	for p in $(members); do
		case $(<"/proc/$p/comm") in bash | sh | timeout) continue ;; esac
		echo "--- pid $p: $(tr '\0' ' ' <"/proc/$p/cmdline")"
		grep -H . /proc/"$p"/task/*/stack /proc/"$p"/task/*/wchan 2>/dev/null |
			sed "s,^/proc/$p/task/,    ," | head -n 60
		timeout 60 gdb -q -nx -batch -ex 'set debuginfod enabled off' \
			-ex 'set pagination off' \
			-p "$p" -ex 'thread apply all bt' 2>/dev/null | grep -E '^(Thread|#)' |
			head -n 150
	done
	echo "--- sockets"
	ss -tnaieom 2>/dev/null | head -n 60
	rdma resource show qp 2>/dev/null | head -n 30
	# Into the kernel's log, which is kept beside the test's: tasks that are blocked, then all.
	echo w >/proc/sysrq-trigger
	echo t >/proc/sysrq-trigger
}
