#!/bin/bash
# Programs that the library does not get into: linked statically, set-user-id, and Go's, if there
# is a Go. With the preload in their environment they do what they do without it, their
# connections to a preloaded server stay on TCP, and rdmastat does not list them.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the sanitizer's runtime needs a dynamic program"
MODE=both
policy 'earn_bytes 0' 'earn_rounds 0'
chmod 644 "$CONF"

# once NAME COMMAND...: a client of the preloaded server, with the preload in its environment; its
# port is added
once() {
	local name=$1 port
	shift
	MODE=$name
	begin_mode "$name"
	free_port port
	shim_env
	start none "$TMP/server.log" env "${SHIM_ENV[@]}" "$B/hostile/victim" echo "$port"
	SRV=$PID
	wait_port "$port"
	"$@" "$port" 20 >"$TMP/client.log" 2>&1 3>&- ||
		fail "status $?: $(tail -n 3 "$TMP/client.log")"
	kill -TERM "$SRV"
	wait "$SRV" 2>/dev/null
	collect
	python3 -S -E -c 'import json, sys
print(*sorted({p["program"] for p in json.load(sys.stdin)["processes"]}))' <"$TMP/stat.$name.json" \
	>"$TMP/listed" || fail "rdmastat's output"
	say "$(tail -n 1 \
		"$TMP/client.log"); $CONNS ends of connections, $FAST bytes on a fast path, on TCP \
because: $REASONS; rdmastat lists: $(cat "$TMP/listed")"
}

V=$TOP/tests/hostile/victim.c
gcc -std=gnu11 -D_GNU_SOURCE -O1 -static -o "$TMP/static" "$V" || fail "no static libc"
cp "$B/hostile/victim" "$TMP/dynamic"

once dynamic env LD_PRELOAD="$PRELOAD" RDMASHIM_CONF="$CONF" RDMASHIM_STAT_DIR="$TMP/stat.dynamic" \
	"$TMP/dynamic" once
((FAST > 100000)) || fail "only $FAST bytes on a fast path: this shows nothing"
want=$(tail -n 1 "$TMP/client.log")

untouched() {
	[[ $(tail -n 1 "$TMP/client.log") == "$want" ]] ||
		fail "it says something else than the dynamic one: $want"
	((CONNS > 0 && FAST == 0)) || fail "$FAST bytes on a fast path"
	[[ $(cat "$TMP/listed") == victim ]] || fail "rdmastat lists more than the server"
}
once static env LD_PRELOAD="$PRELOAD" RDMASHIM_CONF="$CONF" RDMASHIM_STAT_DIR="$TMP/stat.static" \
	"$TMP/static" once
untouched
if ((EUID == 0)); then
	cp "$B/hostile/victim" "$TMP/setuid"
	chown 31337 "$TMP/setuid" && chmod 4755 "$TMP/setuid"
	once set-user-id setpriv --reuid 31338 --regid 31338 \
		--clear-groups env LD_PRELOAD="$PRELOAD" RDMASHIM_CONF="$CONF" \
		RDMASHIM_STAT_DIR="$TMP/stat.set-user-id" "$TMP/setuid" once
	untouched
else
	say "not root: set-user-id not tried"
fi
command -v go >/dev/null || { say "no Go here: not tried"; exit 0; }
mkdir "$TMP/go"
cat >"$TMP/go/main.go" <<'END'
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func main() {
	n, _ := strconv.Atoi(os.Args[3])
	total := 0
	for i := 0; i < n; i++ {
		c, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
		if err != nil {
			panic(err)
		}
		data := bytes.Repeat([]byte{byte(i), 7, 9}, 20000)
		back := make([]byte, len(data))
		go c.Write(data)
		if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(data, back) {
			panic("wrong bytes")
		}
		total += len(data)
		c.Close()
	}
	fmt.Println(total, "bytes")
}
END
(cd "$TMP/go" && HOME=$TMP GOFLAGS=-mod=mod GO111MODULE=off go build -o "$TMP/gone" main.go) \
	>"$TMP/go.log" 2>&1 || fail "go build: $(tail -n 3 "$TMP/go.log")"
want='1200000 bytes'
once go env LD_PRELOAD="$PRELOAD" RDMASHIM_CONF="$CONF" RDMASHIM_STAT_DIR="$TMP/stat.go" \
	"$TMP/gone" once
untouched
exit 0
