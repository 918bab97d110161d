# The discovery port of a host is held by somebody who lies: he hands on what is no call and no
# connection, and answers calls without the key. He gains nothing: the connection stays on TCP,
# unharmed, no descriptor is left, and when he is gone the next one is cut over.
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
rdma_retry 300ms
discovery 60s
log_level 3"

pair() {
	new_port port
	start "srv$1" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP"/log.srv"$1" pattern listen \
		-a "$P4" -n 1000000000000 -d up -z 20 -p "$TMP"/srv"$1".bytes "$port"
	wait_port "$port" || fail "no server"
	start "cli$1" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE="$TMP"/log.cli"$1" pattern connect \
		-s 1000 -n 1000000000000 -d up -z 20 -p "$TMP"/cli"$1".bytes "$P4" "$port"
}
fds() { ls "/proc/$(pid_of "$1")/fd" | wc -l; }
no_more_than() { (($(fds "$1") <= $2)); }
logs() { output liar; tail -n 20 "$TMP"/log.*; }
arrived() { local s g; read -r s g <<<"$(figures a srvlied)"; ((g >= $1)); }

start liar python3 -S -E tests/vm/rdma-liar.py "$P4" 7471
wait_port 7471 || fail "$(output liar)"
pair lied
within 90 eval 'grep -q "all told" <<<"$(output liar)" || ended liar' ||
	{ logs; fail "he is not called often enough"; }
ended liar && { logs; fail "he was answered, or something is wrong with him"; }
within 60 grep -qs 'TCP: wrong-key' "$TMP"/log.clilied ||
	{ logs; fail "an answer without the key was not noticed"; }
! grep -qs 'cut over' "$TMP"/log.*lied || { logs; fail "cut over"; }
read -r sent _ <<<"$(figures a clilied)"
within 60 arrived $((sent + 1)) || { logs; fail "the connection stands still"; }
within 30 no_more_than srvlied 16 || { ls -l "/proc/$(pid_of srvlied)/fd"; fail \
	"descriptors are left"; }
say "$(output liar | wc -l) lies, the server has $(fds srvlied) descriptors"
stop liar KILL
pair true
within 90 grep -qs 'receive cut over' "$TMP"/log.srvtrue ||
	{ logs; fail "after him nobody is met"; }
for p in clilied srvlied clitrue srvtrue; do stop $p KILL; done
exit 0
