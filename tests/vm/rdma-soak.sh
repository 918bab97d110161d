# Recoveries, many: eight endless streams and a soak's short ones by RDMA, whose device is deleted
# and made again as long as it takes. A loss counts when each of the eight fell back to TCP, moved
# on, and came back to RDMA at a later byte; every byte is looked at. Between losses children
# serve, clients and a server of the soak are killed, the policy changes. With ten losses and
# more, at rest, memory and descriptors of the four processes that live, and pinned pages and what
# the device has made for the two of the streams, must be at the end what they were after the
# first fifth. 3 losses, or $VM_ARGS.
# HOSTS: 1
# DEVICE: rxe
# TIMEOUT: 600
. "${TOP:?}/tests/vm/lib.sh"

STREAMS=8
losses=${VM_ARGS:-3}
rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32
earn_bytes 0
rdma_retry 300ms
discovery 60s
rdma_overflow 20s
log_level 3"
policies=("" "spin 0" "ring_size 64K")
policy "$rules"
gently() { start "$1" nice -n 10 env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP/log.$1" "${@:2}"; }

new_port port; new_port port2; new_port port3
gently srv pattern listen -a "$P4" -p "$TMP/srv.bytes" -k $STREAMS -z 20 -s 4000 -n 1000000000000 \
	-d both -w edge "$port"
wait_port "$port" || fail "the server does not listen"
gently cli pattern connect -p "$TMP/cli.bytes" -k $STREAMS -z 20 -s 4000 -n 1000000000000 -d both \
	-w poll "$P4" "$port"
gently soaksrv soak server "$port2" "$TMP/soaksrv.state"
gently flysrv soak server "$port3" "$TMP/flysrv.state"
wait_port "$port2" && wait_port "$port3" || fail "the soak does not listen"
gently soakcli soak client "$port2" "$TMP/soakcli.state" "$P4"
gently fly soak client "$port3" "$TMP/fly.state" may-die "$P4"

field() { od -An -tu8 -j $((8 * $2)) -N 8 "$TMP/$1.state" | tr -d ' '; }
show() { tail -n 60 "$TMP"/log.*; rdma link; }
well() {
	local n
	for n in srv cli soaksrv soakcli; do
		ended $n && { show
		fail "$n ended: $(output $n)"
		}
	done
	for n in flysrv fly; do ended $n && { show; fail "$n ended: $(output $n)"; }; done
}

# How many of the streams have come (back) to RDMA, both halves, in what the client logged beyond
# byte $1; have fallen back to TCP.
came() {
	tail -c "+$(($1 + 1))" "$TMP/log.cli" 2>/dev/null |
		awk '/cut over at/ { h[$5 " " $6] = 1 } /back on TCP/ {
			delete h[$5 " " $6] } END { n = 0; for (k in h) n++; print int(n / 2) }'
}
went() {
	tail -c "+$(($1 + 1))" "$TMP/log.cli" |
		awk '/send back on TCP/ { h[$5] = 1 } END { n = 0; for (k in h) n++; print n }'
}
all_came() { (($(came "$1") >= STREAMS)); }
all_went() { (($(went "$1") >= STREAMS)); }
size() { stat -c %s "$TMP/log.cli"; }
moved() { local s g; read -r s g <<<"$(figures a cli)"; ((s > $1 && g > $2)); }

# Not from /proc/PID/status: the kernel counts it there by processor, and shows the sum to some
# 100 kB only (include/linux/percpu_counter.h).
anonymous() { awk '$1 == "Anonymous:" { print $2 }' "/proc/$(pid_of "$1")/smaps_rollup"; }
pinned() { awk '$1 == "VmPin:" { print $2 }' "/proc/$(pid_of "$1")/status"; }
# What the device has made of a kind for a process: the kernel names the thread that asked for it.
made() {
	rdma resource show "$2" |
		grep -cwE "pid ($(cd "/proc/$(pid_of "$1")/task" && echo * | tr ' ' '|'))"
}
# What a link takes is as many times there as links are: a control connection and a completion
# channel, a queue pair, a completion queue.
fds() {
	echo $(($(find "/proc/$(pid_of "$1")/fd" -mindepth 1 -printf '%l\n' |
		grep -vc '\[timerfd\]') - 2 * $(made "$1" qp)))
}
# With all streams on RDMA and the soak at rest, over the rest of what it leaves.
weigh() {
	local -n to=$1
	kill -USR1 "$(pid_of soakcli)" "$(pid_of fly)"
	within 120 at_rest || { show; fail "the soak does not come to rest"; }
	nap 4	# links to the dead are released after three seconds
	to=()
	local n kind
	for n in srv cli soaksrv soakcli; do to+=("$(anonymous $n)" "$(fds $n)"); done
	for n in srv cli; do
		to+=("$(pinned $n)")
		for kind in pd cq qp mr; do to+=("$(made $n $kind)"); done
		((to[-1])) || fail "$n has nothing registered"
	done
	kill -USR2 "$(pid_of soakcli)" "$(pid_of fly)"
}
at_rest() { (($(field soaksrv 5) == 0 && $(field soakcli 5) == 0)); }

recovered=0 kills=0 first=() last=()
mark=0
for ((i = 1; i <= losses; i++)); do
	within 90 all_came "$mark" ||
		{ show; fail "loss $i: $(came "$mark") of $STREAMS streams are on RDMA"; }
	((${#first[@]} == 0 && losses >= 10 && i > losses / 5)) && weigh first
	mark=$(size)
	read -r s g <<<"$(figures a cli)"
	nap "0.$((RANDOM % 5))"
	device_down "$DEVICE" || { show; fail "cannot delete the device"; }
	within 60 all_went "$mark" ||
		{ show; fail "loss $i: $(went "$mark") of $STREAMS streams fell back"; }
	within 60 moved "$s" "$g" || { show; fail "loss $i: nothing moves on TCP"; }
	case $((i % 4)) in
	0) stop fly KILL; gently fly soak client "$port3" "$TMP/fly.state" may-die "$P4"; \
		kills=$((kills + 1)) ;;
	1) policy "$rules" "${policies[RANDOM % ${#policies[@]}]}" ;;
	2) stop flysrv KILL; gently flysrv soak server "$port3" "$TMP/flysrv.state"; \
		kills=$((kills + 1)) ;;
	esac
	mark=$(size)
	device_up "$DEVICE" || fail "cannot make the device again"
	within 90 all_came "$mark" ||
		{ show; fail "loss $i: $(came "$mark") of $STREAMS streams came back"; }
	recovered=$((recovered + STREAMS))
	well
	((i % 10)) || say "$i losses, $recovered recoveries, $kills kills; $(figures a cli)" \
		"bytes; the soak: $(field soaksrv 0) connections, $(field soaksrv 1) bytes," \
		"$(field soaksrv 2) forks; kB $(anonymous srv) $(anonymous cli), pinned" \
		"$(pinned cli)"
done
policy "$rules"
((${#first[@]})) && weigh last
say "$losses losses of the device, $recovered recoveries, $kills kills; soak: $(field soaksrv 0)" \
	"connections, $(field soaksrv 2) forks"
say "memory and descriptors (without those of links) of four processes; pinned kB, domains," \
	"queues, queue pairs and registrations of two: ${first[*]} then ${last[*]}"
for ((i = 0; i < ${#first[@]}; i++)); do
	slack=0
	((i < 8 && i % 2 == 0)) && slack=$((first[i] > 25600 ? first[i] / 100 : 256))
	((last[i] <= first[i] + slack)) || fail "figure $i grew from ${first[i]} to ${last[i]}"
done
awk '/cut over at/ { if ($0 ~ /at [0-9]+$/ && $NF + 0 <= at[$5 $6] + 0) { print;
	exit 1 } at[$5 $6] = $NF }' "$TMP/log.cli" ||
		fail "a stream had not moved when it was cut over again"
((recovered == losses * STREAMS)) || fail "only $recovered"
for n in soakcli fly; do kill -TERM "$(pid_of $n)"; done
finish soakcli 60 || fail "the soak's client: $(output soakcli)"
stop cli KILL
finish srv 30
(($? == 3)) || fail "server: $(output srv)"
