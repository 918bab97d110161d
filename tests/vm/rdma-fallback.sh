# Peers that cannot or may not have RDMA with us: TCP, unharmed, at once or soon, with the reason.
# And a right key at last.
# HOSTS: 1
# DEVICE: rxe
# TIMEOUT: 400
. "${TOP:?}/tests/vm/lib.sh"

printf '0123456789abcdef\n' >"$TMP"/right.key
printf '0123456789abcdeX\n' >"$TMP"/wrong.key
printf 'short\n' >"$TMP"/short.key
cp "$TMP"/right.key "$TMP"/open.key
chmod 600 "$TMP"/*.key && chmod 644 "$TMP"/open.key
common="use rdma both *:*
earn_bytes 0
discovery 10s
log_level 3"
key() { printf '%s\ndiscovery_port 7471\nkey_file %s\n' "$common" "$TMP/$1.key"; }
trusting() { printf '%s\ndiscovery_port 7471\nrdma_networks %s\n' "$common" "$1"; }

# try NAME SERVER CLIENT LOG: policies of the two; LOG must be in the client's or the server's log.
try() {
	local port f
	new_port port
	rm -f "$TMP"/log.srv "$TMP"/log.cli
	echo "$2" >"$TMP"/srv.conf
	echo "$3" >"$TMP"/cli.conf
	if [[ $2 == bare ]]; then
		start srv pattern listen -a "$P4" -n 1000000000000 -d up "$port"
	else
		start srv env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP"/srv.conf \
			RDMASHIM_LOG_FILE="$TMP"/log.srv pattern listen -a "$P4" -n 1000000000000 \
			-d up "$port"
	fi
	wait_port "$port" || fail "$1: server does not listen"
	start cli env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP"/cli.conf \
		RDMASHIM_LOG_FILE="$TMP"/log.cli pattern connect -s 1000 -n 1000000000000 -d up \
		"$P4" "$port"
	within 60 grep -qs -- "$4" "$TMP"/log.cli "$TMP"/log.srv ||
		{ cat "$TMP"/log.*; fail "$1: no '$4'"; }
	[[ $4 == *"cut over"* ]] || ! grep -q "cut over" "$TMP"/log.* ||
		fail "$1: cut over in spite of it"
	stop cli KILL || fail "$1: client"
	finish srv 20
	f=$?
	((f == 0 || f == 3)) || fail "$1: server: $(output srv)"
	say "$1: ok"
}

try "another key" "$(key right)" "$(key wrong)" "TCP: wrong-key"
try "no key there" "$(trusting 192.0.2.0/24)" "$(key right)" "TCP: no-trust"
try "no trust here" "$(key right)" "$(trusting 192.0.2.0/24)" "TCP: no-trust"
try "address there, key here" "$(trusting "$A4"/32)" "$(key right)" "TCP: no-trust"
try "a key that all can read" "$(key open)" "$(key open)" "TCP: no-trust"
try "a short key" "$(key short)" "$(key short)" "TCP: no-trust"
try "no port" "$(key right)" "$common" "TCP: remote"
try "no shim" bare "$(key right | sed 's/discovery 10s/discovery 1s/')" "TCP: peer-no-shim"
start silent socat -u "TCP-LISTEN:7480,bind=$P4,fork,reuseaddr" OPEN:/dev/null
wait_port 7480
try "a port that says nothing" bare \
	"$(key right | sed 's/7471/7480/; s/discovery 10s/discovery 1s/')" "TCP: peer-no-shim"
stop silent KILL

# One that hangs up before the link is there is asked again.
new_port port
trusting "$A4"/32 | sed 's/7471/7481/; s/discovery 10s/discovery 60s/' >"$TMP"/cli.conf
start answerer python3 -S -E tests/vm/rdma-answerer.py "$P4" 7481 3
start srv pattern listen -a "$P4" -n 1000000000000 -d up "$port"
wait_port 7481 && wait_port "$port" || fail "nobody listens"
start cli env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP"/cli.conf RDMASHIM_LOG_FILE="$TMP"/log.cli \
	pattern connect -s 1000 -n 1000000000000 -d up "$P4" "$port"
finish answerer 60 || { cat "$TMP"/log.cli; fail "hung up on, it does not call again:" \
	"$(output answerer)"; }
stop cli KILL || fail "hung up on: client"
finish srv 20
(($? == 3)) || fail "hung up on: server: $(output srv)"
say "hung up on: ok"

# Callers without the key, or who have it and lie, at a port that is open.
new_port port
key right | sed 's/discovery 10s/discovery 60s/' >"$TMP"/srv.conf
rm -f "$TMP"/log.srv
start srv env "${SHIM_ENV[@]}" RDMASHIM_CONF="$TMP"/srv.conf RDMASHIM_LOG_FILE="$TMP"/log.srv \
	pattern listen -a "$P4" -n 1000000000000 -d down "$port"
wait_port "$port"
start caller timeout 150 python3 -S -E tests/vm/rdma-caller.py "$P4" "$port" 7471 0123456789abcdef \
	"${ctl_addr[a]}"
finish caller 160 || { cat "$TMP"/log.srv; fail "callers: $(output caller)"; }
output caller
finish srv 20
f=$?
((f == 0 || f == 3)) || fail "server: $(output srv)"
grep -q "did not prove" "$TMP"/log.srv || fail "no proof was refused"
! grep -q "cut over" "$TMP"/log.srv || fail "cut over for a stranger"

# As long as it takes: what is refused above is so at once, this is a whole link.
common=${common/discovery 10s/discovery 60s}
try "the same key" "$(key right)" "$(key right)" "receive cut over"
