#!/bin/bash
# Under the libc of Debian 13, unpacked beside the build: calls that this machine's lacks. A child
# of pidfd_spawn() that inherits a connection on the fast path writes between its parent's bytes.
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the sanitizers' runtimes are for this machine's libc"
said=$("$TOP/tests/scripts/newer-libc.sh" trixie "$B/libc-trixie") || skip "$said"
lib=$B/libc-trixie/root/usr/lib/x86_64-linux-gnu
ld=("$lib/ld-linux-x86-64.so.2" --library-path "$lib")
MODES="bare both"

job() {
	local port
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	server "${ld[@]}" "$B/apps/pidfdspawn" serve "$port"
	wait_port "$port"
	client timeout 60 "${ld[@]}" "$B/apps/pidfdspawn" call "$port" 4 2>"$TMP/client.log" ||
		fail "client, status $?: $(cat "$TMP/client.log")"
	finish "$SRV" 10 || fail "server: $(cat "$TMP/server.log")"
	cat "$TMP/server.log" >"$OUT"
	grep -qx 'A;child;B;A;child;B;A;child;B;A;child;B;' "$OUT" ||
		fail "wrong order: $(cat "$OUT")"
}
for_modes job 100
