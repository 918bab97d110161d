#!/bin/bash
# soak.sh [SECS]: checked streams of random shape between long-lived processes for an hour, while
# connections are cut and rewound, the policy changes, servers fork, clients and servers are
# killed. A line every 10 s. At the end, and after a fifth of the time, all rest for a moment:
# memory, pinned pages and descriptors of the two that live all the time must be the same within 1
# % (or 256 KiB). Bells are apart: an end has one for each thread and epoll instance that ever
# waited at the same time, at most BELLS, and the other end's for each link. Beside it an emulated
# guest loses and regains its RDMA device (tests/vm/rdma-soak.sh), 63 times in an hour, with eight
# streams at each. Exit 1: a wrong byte, a lost connection, a hang, or growth. BARE=1: without the
# library, and no guest. GUEST=0: no guest. NICE= of the streams. LOG=4: what the library logs,
# kept if something is wrong.
SECS=${1:-3600}
[[ $SECS =~ ^[1-9][0-9]*$ ]] || { echo "usage: soak.sh [SECS]" >&2; exit 2; }
. "$(dirname "$0")/../apps/lib.sh"
S=$B/hostile/soak
[[ -x $S ]] || fail "no $S"
[[ -n $SHIM ]] || BARE=1
MODE=both
begin_mode both
role=shim
[[ -n ${BARE-} ]] && role=none
free_port port
free_port port2
NICE=${NICE:-0} LOG=${LOG:-2}
kills=0 toggles=0 server_kills=0 fly='' guest=''

policies=(
	"force_cut_every 3ms" "force_cut_every 10ms" "force_cut_every 0" "mode off" \
		"use tcp both *:$port"
	"ring_size 4096" "ring_size 1M" "ring_budget 1M" "spin 0" "overflow 100us" "earn_bytes 64K"
)
rests=(1ms 100ms 10s)
toggle() {
	local p=${policies[RANDOM % ${#policies[@]}]} \
		base=("link_streams 32" "earn_rounds 0" "log_level $LOG")
	base+=("ring_idle ${rests[RANDOM % ${#rests[@]}]}")
	[[ $p == earn_bytes* ]] || base+=("earn_bytes 0")
	policy "${base[@]}" "$p"
	toggles=$((toggles + 1))
}

field() { od -An -tu8 -j $((8 * $2)) -N 8 "$1" | tr -d ' '; }
memory() { awk -v k="$2" '$1 == k ":" { print $2 }' "/proc/$1/status" 2>/dev/null; }
# Not from there: the kernel counts by processor, and shows the sum to some 100 kB only
# (include/linux/percpu_counter.h).
anonymous() { awk '$1 == "Anonymous:" { print $2 }' "/proc/$1/smaps_rollup" 2>/dev/null; }
BELLS=10	# 4 threads, 4 epoll instances, and two of the library's thread
descriptors() {
	find "/proc/$1/fd" -mindepth 1 -printf '%l\n' 2>/dev/null | grep -vc '\[timerfd\]'
}
bells() { find "/proc/$1/fd" -mindepth 1 -printf '%l\n' 2>/dev/null | grep -c '\[timerfd\]'; }
sockets() { find "/proc/$1/fd" -mindepth 1 -printf '%l\n' 2>/dev/null | grep -c '^socket:'; }
kinds() {
	find "/proc/$1/fd" -mindepth 1 -printf '%l\n' 2>/dev/null |
		sed 's/\[[0-9]*\]//; s/ (deleted)//' | sort | uniq -c | tr -s ' \n' ' '
}

stacks() {
	local p
	for p in "$@"; do
		echo "--- $p"
		timeout 20 gdb -q -nx -batch -ex 'set debuginfod enabled off' -p "$p" \
			-ex 'thread apply all bt' 2>/dev/null | grep -E '^(Thread|#)'
	done
}

bad() {
	KEPT=${KEPT:-$(mktemp -d /tmp/rdmashim-soak-failed.XXXXXX)}
	tail -qc 200M "$TMP"/shim.* >"$KEPT/shim.log" 2>/dev/null
	cp "$TMP"/*.log "$TMP"/*.state "$CONF" "$KEPT" 2>/dev/null
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all >"$KEPT/counters" 2>/dev/null
	stacks "$srv" "$cli" | tee "$KEPT/stacks"
	tail -n 3 "$TMP"/*.log
	fail "$* (kept: $KEPT)"
}

well() {
	local l
	for l in "$TMP"/*.log; do
		[[ -s $l ]] && grep -qv '^Killed' "$l" && bad "$(head -n 3 "$l")"
	done
	gone "$srv" && bad "the server ended"
	gone "$cli" && bad "the client ended"
	gone "$cli2" && bad "the client of the servers that are killed ended"
}

all_rest() { [[ $(field "$TMP/server.state" 5) == 0 && $(field "$TMP/client.state" 5) == 0 ]]; }

# What the two hold at rest, into the array of that name.
weigh() {
	local -n to=$1
	policy "link_streams 32" "earn_bytes 0" "earn_rounds 0" "log_level $LOG"
	kill -USR1 "$cli" "$cli2"
	[[ -n ${fly-} ]] && kill -KILL "$fly" 2>/dev/null
	within 150 all_rest ||
		bad "does not come to rest: $(field "$TMP/server.state" 5) and $(field \
		"$TMP/client.state" 5) connections under way"
	settled || bad "descriptors do not settle"
	to=("$(anonymous "$srv")" "$(anonymous "$cli")" "$(descriptors "$srv")" \
		"$(descriptors "$cli")" "$toggles" "$(bells "$srv")" "$(bells "$cli")"
		"$(($(memory "$srv" VmPin) + $(memory "$srv" VmLck)))" \
			"$(($(memory "$cli" VmPin) + $(memory "$cli" VmLck)))" "$(sockets "$cli")")
	echo "at rest: the server holds$(kinds "$srv"), the client$(kinds "$cli")"
	kill -USR2 "$cli" "$cli2"
}

# Until the numbers of descriptors stay the same for a second: links to the dead are being released.
settled() {
	local was='' now same=0 end=$((SECONDS + 60))
	while ((SECONDS < end)); do
		now="$(descriptors "$srv") $(descriptors "$cli")"
		[[ $now == "$was" ]] && same=$((same + 1)) || same=0
		((same >= 10)) && return 0
		was=$now
		sleep 0.2
	done
	return 1
}

grown() { (($2 - $1 > ($1 > 25600 ? $1 / 100 : 256))); }

counted() {
	[[ $role == none ]] && { echo "0 0 0 0"; return; }
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json 2>/dev/null |
		python3 -S -E -c 'import json, sys
try: p = [p["counters"] for p in json.load(sys.stdin)["processes"] if str(p["pid"]) in sys.argv]
except Exception: p = []
print(*(sum(c[k] for c in p) for k in ("cuts", "rewinds", "links_lost", "bad_peer")))' "$srv" "$cli"
}

guest_log=${VMDIR:-$TOP/build/vm}/run/log/rdma-soak.rxe.log
start_guest() {
	local losses=$((SECS * 63 / 3600))
	: >"$TMP/guest.out"
	VM_ARGS=$((losses < 3 ? 3 : losses)) VM_TIMEOUT=$((SECS < 1800 ? 3600 : 2 * SECS)) \
		TESTS='' "$TOP/tests/vm/run" rdma-soak >"$TMP/guest.out" 2>&1 &
	guest=$!
}
recoveries() {
	[[ -e $TMP/guest.out && $guest_log -nt $TMP/guest.out ]] &&
		sed -n 's/.* \([0-9]*\) recoveries.*/\1/p' "$guest_log" | tail -n 1
}
guest_well() {
	[[ -n $guest ]] && gone "$guest" || return 0
	wait "$guest"
	case $? in
	0) guest_said="in the guest:$(sed -n 's/^rdma-soak:\( .* losses of the device, .*\)/\1/p' \
		"$guest_log")" ;;
	77) guest_said="no device was lost: $(tail -n 1 "$TMP/guest.out")" ;;
	*) bad "in the guest: $(cat "$TMP/guest.out")" ;;
	esac
	guest=''
}
# What is to be ended with this script.
running() { PIDS=("$srv" "$srv2" "$cli" "$cli2" ${fly:+"$fly"} ${guest:+"$guest"}); }

line() {
	local r
	r=$(recoveries)
	read -r cuts rewinds lost badpeer < <(counted)
	echo "$(printf %5d $((SECONDS - begin))) s:" \
		"$(field "$TMP/server.state" \
		0) connections, $(($(field "$TMP/server.state" 1) / 1000000)) + $(($(field \
		"$TMP/client.state" 1) / 1000000)) MB," \
		"${cuts:-?} cuts, ${rewinds:-?} rewinds, ${lost:-?} links lost, $kills clients \
and $server_kills servers killed, $toggles policies," \
		"$(field "$TMP/server.state" 2) forks; kB $(anonymous "$srv") $(anonymous \
		"$cli"), shared $(memory "$srv" RssShmem), fds $(descriptors "$srv") $(descriptors \
		"$cli")${r:+, $r recoveries}"
}

policy "link_streams 32" "earn_bytes 0" "earn_rounds 0" "log_level $LOG" "force_cut_every 3ms"
start $role "$TMP/server.log" nice -n "$NICE" "$S" server "$port" "$TMP/server.state"; srv=$PID
start $role "$TMP/server2.log" nice -n "$NICE" "$S" server "$port2" "$TMP/server2.state"; srv2=$PID
wait_port "$port"
wait_port "$port2"
start $role "$TMP/client.log" nice -n "$NICE" "$S" client "$port" "$TMP/client.state"; cli=$PID
start $role "$TMP/client2.log" nice -n "$NICE" "$S" client "$port2" "$TMP/client2.state" may-die
cli2=$PID
begin=$SECONDS told=$SECONDS first=() last=() guest_said=''
[[ $role == none || -n ${SAN-} || ${GUEST-} == 0 ]] || start_guest
running
while ((SECONDS - begin < SECS)); do
	case $((RANDOM % 4)) in
	0 | 1) toggle ;;
	2)	# a client that is killed in the middle of it
		[[ -n $fly ]] && { kill -KILL "$fly"; wait "$fly"; } 2>/dev/null
		start $role "$TMP/fly.log" nice -n "$NICE" "$S" client "$port" "$TMP/fly.state" \
			may-die
		fly=$PID kills=$((kills + 1))
		running
		;;
	3)	# a server too
		if ((RANDOM % 4 == 0)); then
			{ kill -KILL "$srv2"; wait "$srv2"; } 2>/dev/null
			start $role "$TMP/server2.log" nice -n "$NICE" "$S" server "$port2" \
				"$TMP/server2.state"
			srv2=$PID server_kills=$((server_kills + 1))
			running
		fi
		;;
	esac
	sleep "0.$((RANDOM % 9 + 1))"
	well
	guest_well
	((SECONDS - told >= 10)) && { line; told=$SECONDS; }
	((${#first[@]} == 0 && SECONDS - begin >= SECS / 5)) && weigh first
done
((${#first[@]})) || weigh first
weigh last
line
echo "at rest: kB ${first[0]} ${first[1]} then ${last[0]} ${last[1]}, descriptors ${first[2]}" \
	"${first[3]} then ${last[2]} ${last[3]}, bells ${first[5]} ${first[6]} then ${last[5]}" \
	"${last[6]}, pinned kB ${first[7]} ${first[8]} then ${last[7]} ${last[8]}," \
	"$((last[4] - first[4])) policies between"
stop "$cli"
stop "$srv"
well_ended=1
for l in "$TMP"/server.log "$TMP"/client.log "$TMP"/client2.log "$TMP"/fly.log; do
	[[ -s $l ]] && grep -qv '^Killed' "$l" && { cat "$l"; well_ended=0; }
done
((well_ended)) || fail "not well at the end"
grown "${first[0]}" "${last[0]}" && fail "the server's memory grew"
grown "${first[1]}" "${last[1]}" && fail "the client's memory grew"
((last[2] > first[2] + first[2] / 100)) && fail "the server's descriptors grew"
((last[3] > first[3] + first[3] / 100)) && fail "the client's descriptors grew"
# at rest the client has no other socket; they are descriptors, and must not have become more
links=${last[9]}
((last[5] > BELLS * (1 + links) || last[6] > BELLS * (1 + links))) &&
	fail "too many bells for $links links"
((last[7] > first[7] || last[8] > first[8])) && fail "pinned pages grew"
[[ $role == none || ($cuts -gt 0 && $rewinds -gt 0) ]] || fail "nothing was ever cut over"
((${badpeer:-0} == 0)) || fail "somebody was taken for a liar $badpeer times"
while [[ -n $guest ]]; do
	sleep 1
	guest_well
	((SECONDS - told >= 10)) &&
		{ echo "$(printf %5d $((SECONDS - begin))) s: the guest is at work still"; \
		told=$SECONDS; }
done
echo "soak: $SECS s, nothing wrong${guest_said:+; $guest_said}"
