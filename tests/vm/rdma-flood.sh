# Somebody without the key keeps a hundred calls open at the discovery port, and makes each again
# as soon as it is dropped. That costs who holds the port 64 descriptors and no more, others are
# still met, and when it is over all is as before.
# HOSTS: 1
# DEVICE: rxe
# TIMEOUT: 400
. "${TOP:?}/tests/vm/lib.sh"
printf '0123456789abcdef\n' >"$TMP"/key
chmod 600 "$TMP"/key
policy "use rdma both *:*
discovery_port 7471
key_file $TMP/key
earn_bytes 0
discovery 60s
log_level 3"

# pair NAME [bare]: a server, and a client
pair() {
	new_port port
	start "srv$1" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP"/log.srv"$1" pattern listen \
		-a "$P4" -n 1000000000000 -d up -z 20 "$port"
	wait_port "$port" || fail "no server"
	if [[ ${2-} ]]; then
		start "cli$1" pattern connect -s 1000 -n 1000000000000 -d up -z 20 "$P4" "$port"
	else
		start "cli$1" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP"/log.cli"$1" pattern \
			connect -s 1000 -n 1000000000000 -d up -z 20 "$P4" "$port"
	fi
}
fds() { ls "/proc/$(pid_of "$1")/fd" | wc -l; }
no_more_than() { (($(fds "$1") <= $2)); }

# Its client has no library: it looks for it, and so holds the port, for a minute.
pair holder bare
wait_port 7471 60 || fail "nobody holds the port"
base=$(fds srvholder)
start flooder timeout 300 python3 -S -E tests/vm/rdma-flooder.py "$P4" 7471 100
within 60 eval 'grep -q closed <<<"$(output flooder)"' || fail "the flooder: $(output flooder)"
[[ $(output flooder) == "closed 1"* ]] ||
	fail "not the oldest of 65 silent callers gives way: $(output flooder)"
within 60 eval '(($(fds srvholder) > base + 50))' ||
	fail "no flood: $(fds srvholder) descriptors, were $base"
most=0
for ((i = 0; i < 20; i++)); do
	n=$(fds srvholder)
	((n <= most)) || most=$n
	nap 0.1
done
say "the holder has $most descriptors at the most, and had $base"
((most <= base + 64 + 4)) || fail "too many"

pair late
within 90 grep -qs 'receive cut over' "$TMP"/log.srvlate ||
	{ tail -n 20 "$TMP"/log.*; fail "nobody is met in the flood"; }
say "cut over in the flood, after $(output flooder | tail -n 1) calls"
stop flooder TERM
within 30 no_more_than srvholder $((base + 4)) ||
	fail "$(fds srvholder) descriptors are left, were $base"
for p in clilate cliholder srvlate srvholder; do stop $p KILL; done
exit 0
