#!/bin/bash
# Programs in small quarters: 64 descriptors, no locked memory, a user namespace, and seccomp
# filters that were there before them. Where the library finds what it needs, connections are on a
# fast path; where it does not, the bytes are right all the same.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
MODE=both
policy 'earn_bytes 0' 'earn_rounds 0'
chmod 644 "$CONF"
ECHO=(python3 "$TOP/tests/apps/asyncio-echo.py")
# What container engines refuse with EPERM by default, as far as it is a matter of the call alone.
DOCKER=add_key,bpf,clock_settime,delete_module,init_module,io_uring_setup,kexec_load,keyctl,mount
DOCKER+=,open_by_handle_at,perf_event_open,process_vm_readv,process_vm_writev,ptrace,request_key
DOCKER+=,setns,swapon,umount2,unshare,userfaultfd

# scene NAME fast|tcp CLIENTS COMMAND...: server and client both run by it
scene() {
	local name=$1 want=$2 clients=$3 port
	shift 3
	MODE=$name
	begin_mode "$name"
	free_port port
	shim_env
	start none "$TMP/server.log" "$@" env "${SHIM_ENV[@]}" "${ECHO[@]}" server "$port"
	SRV=$PID
	wait_port "$port"
	"$@" env "${SHIM_ENV[@]}" timeout 40 "${ECHO[@]}" client "$port" "$clients" 0 \
		1.5 >"$TMP/client.log" 2>&1 3>&- ||
		fail "client, status $?: $(tail -n 5 "$TMP/client.log")"
	gone "$SRV" && fail "the server has ended: $(tail -n 5 "$TMP/server.log")"
	stop "$SRV"
	collect
	say "$CONNS ends of connections, $FAST bytes on a fast path, on TCP because: $REASONS"
	[[ $want != fast || $FAST -gt 100000 ]] || fail "hardly a byte on a fast path"
}

scene plain fast 6 env
# An eighth of the descriptors are the library's: enough for a few that are made at once.
scene nofile-64 fast 2 prlimit --nofile=64
scene memlock-0 fast 6 setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock prlimit --memlock=0
if unshare -Ur true 2>/dev/null; then
	scene user-namespace fast 6 unshare -Ur
else
	say "no user namespaces here: not tried"
fi
scene container-filter fast 6 "$B/apps/filter" errno "$DOCKER"
# Any call but those of a set ends the process: a unit with SystemCallFilter=@system-service and
# ~@resources, and stricter than container engines are.
# SET [WITHOUT]: the numbers of all calls but those of filters.txt's SET without WITHOUT's
forbidden() {
	echo '#include <asm/unistd.h>' | "${CC:-cc}" -E -dM - | awk -v set="$1:" -v less="${2-}:" '
		/^# / { next }
		FNR == NR { if ($1 ~ /:$/) is = $1; for (i = 1; i <= NF; i++) in_[is, $i] = 1;
			next }
		sub(/^#define __NR_/, "") && (!in_[set, $1] || in_[less, $1]) {
			printf "%s%s", n++ ? "," : "", $2 }' \
		"$TOP/tests/apps/filters.txt" -
}
for set in docker podman 'system-service resources'; do
	read -ra sets <<<"$set"
	list=$(forbidden "${sets[@]}")
	[[ $list == *,*,* ]] || fail "no list of the calls that are forbidden"
	scene "kill-${sets[0]}" fast 6 "$B/apps/filter" kill "$list"
done

# Debian's redis has such a unit.
redis() {
	local port
	begin_mode redis-system-service
	free_port port
	shim_env
	start none "$TMP/server.log" "$B/apps/filter" kill "$list" env "${SHIM_ENV[@]}" \
		redis-server --port "$port" --save '' --appendonly no
	SRV=$PID
	wait_port "$port"
	env "${SHIM_ENV[@]}" timeout 40 redis-benchmark -q -p "$port" -c 5 -n 3000 -t get,set \
		>"$TMP/client.log" 2>&1 3>&- ||
		fail "redis-benchmark: $(tail -n 3 "$TMP/client.log")"
	gone "$SRV" && fail "redis has ended: $(tail -n 5 "$TMP/server.log")"
	stop "$SRV"
	collect
	((FAST > 10000)) || fail "redis: $FAST bytes on a fast path"
	say "$FAST bytes on a fast path"
}
command -v redis-server redis-benchmark >/dev/null && redis
scene no-memfd tcp 6 "$B/apps/filter" errno memfd_create
scene no-timerfd tcp 6 "$B/apps/filter" errno timerfd_create
exit 0
