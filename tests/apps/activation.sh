#!/bin/bash
# Listeners and connections that a program inherits: socket activation (systemd), once with the
# listener, once in the way of inetd, where each connection is a program's standard input and
# output.
. "$(dirname "$0")/lib.sh"
make_file "$TMP/file" 20000000

# activate OPTION... PROGRAM: gives its environment away, which it would keep for itself
activate() {
	local v pass=()
	for v in LD_PRELOAD RDMASHIM_CONF RDMASHIM_STAT_DIR RDMASHIM_LOG_FILE; do
		pass+=(-E "$v")
	done
	[[ $MODE == both || $MODE == server ]] || pass=()
	server systemd-socket-activate "${pass[@]}" -l "127.0.0.1:$port" "$@"
	wait_port "$port"
}

talk() {
	client timeout 60 python3 "$TOP/tests/apps/asyncio-echo.py" client "$port" 4 0 \
		1 >/dev/null 2>"$TMP/client.log" || fail "$1: $(tail "$TMP/client.log")"
	client timeout 60 socat -t 10 - "TCP:127.0.0.1:$port" <"$TMP/file" | sha256sum >>"$OUT"
	client timeout 60 socat -t 10 - "TCP:127.0.0.1:$port" <<<"a line" >>"$OUT" || fail "$1"
}

listener() {
	local port
	free_port port
	activate python3 "$TOP/tests/apps/inherited.py"
	talk "with a listener"
	stop "$SRV"
}

inetd() {
	local port
	free_port port
	activate --inetd -a cat
	talk "as inetd"
	stop "$SRV"
}

for_modes listener 100000
for_modes inetd none
