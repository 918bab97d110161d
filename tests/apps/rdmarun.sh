#!/bin/bash
# rdmarun: LD_PRELOAD is added to, never replaced; policy, off, exit codes, signals; --stat sums
# up what the program and its children did; --bench compares; RDMASHIM_STATS. Against a
# redis-server under the library.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
command -v redis-server >/dev/null || skip "no redis-server"
MODES=both
begin_mode both
unset RDMASHIM RDMASHIM_CONF LD_PRELOAD
export RDMASHIM_STAT_DIR=$STAT RDMASHIM_LIB=$SHIM
printf 'mode on\nearn_bytes 0\nearn_rounds 0\n' >"$CONF"
cp "$B/rdmarun" "$TMP/rdmarun"
run() { "$TMP/rdmarun" "$@"; }
# shellcheck disable=SC2053  # the right side is a pattern
is() { [[ $2 == $3 ]] || fail "$1: '$2' is not '$3'"; }

# ---- what it sets up
is "LD_PRELOAD" "$(run sh -c 'echo $LD_PRELOAD')" "$SHIM"
is "LD_PRELOAD of others first" "$(LD_PRELOAD=libdl.so.2 run -- sh -c 'echo $LD_PRELOAD')" \
	"libdl.so.2:$SHIM"
is "LD_PRELOAD not twice" "$(LD_PRELOAD="$SHIM" run sh -c 'echo $LD_PRELOAD')" "$SHIM"
is "it is loaded" "$(run cat /proc/self/maps | grep -c librdmashim)" "[1-9]*"
is "policy, by its whole path" \
	"$(cd "$TMP" && run -p "$(basename "$CONF")" sh -c 'echo $RDMASHIM_CONF')" \
	"$(realpath "$CONF")"
is "--off" "$(run --off sh -c 'echo $RDMASHIM')" off
is "memlock" "$(run sh -c 'ulimit -S -l')" "$(ulimit -H -l)"
# shellcheck disable=SC2116  # echo is the program
is "options of the program" "$(run echo --stat -p x)" "--stat -p x"

# ---- exit codes
run true || fail "true"
run sh -c 'exit 7'; is "exit 7" $? 7
run "$TMP"/none 2>/dev/null; is "not found" $? 127
run /etc/passwd 2>/dev/null; is "not executable" $? 126
run --stat sh -c 'exit 7' 2>/dev/null; is "--stat exit 7" $? 7
run --stat "$TMP"/none 2>/dev/null; is "--stat not found" $? 127
run --stat sh -c 'kill -9 $$' 2>/dev/null; is "killed" $? 137
run 2>"$TMP/err"; is "no program" "$? $(cat "$TMP/err")" "125 *name a program*"
run --stt true 2>"$TMP/err"; is "unknown option" "$? $(cat "$TMP/err")" "125 *did you mean --stat*"
run --policy 2>"$TMP/err"; is "no value" "$? $(cat "$TMP/err")" "125 *needs a value*"
run --stat=1 true 2>"$TMP/err"; is "a value" "$? $(cat "$TMP/err")" "125 *takes no value*"
run --bench --count 0 true 2>"$TMP/err"; is "count" "$? $(cat "$TMP/err")" "125 *whole number*"
run --bench --off true 2>"$TMP/err"; is "bench off" "$? $(cat "$TMP/err")" "125 *compare nothing*"
RDMASHIM=off run --bench true 2>"$TMP/err"
is "bench, switched off outside" "$? $(cat "$TMP/err")" "125 *RDMASHIM=off is set*unset RDMASHIM*"
RDMASHIM_LIB=/none run true 2>"$TMP/err"
is "no library" "$? $(cat "$TMP/err")" "125 */none cannot be read: No such file*--lib FILE*"
echo nonsense >"$TMP/bad.conf"
run -p "$TMP/bad.conf" true 2>"$TMP/err"
is "bad policy" "$? $(cat "$TMP/err")" "125 *bad.conf:1:1: *"
grep -q -- '--bench' <<<"$(run --help)" || fail "--help"

# ---- a signal goes to the program, and its status comes back
mkfifo "$TMP/up"
"$TMP/rdmarun" --stat sh \
	-c "trap 'exit 33' USR1; echo up >'$TMP/up'; while :; do sleep 0.05; done" 2>/dev/null \
	3>&- &
RUN=$!
PIDS+=("$RUN")
read -r _ <"$TMP/up"
kill -USR1 $RUN
finish $RUN 10
is "signal passed on" $? 33

# ... and what it was started to ignore is ignored by the program, too (nohup)
(trap '' HUP; run --stat sh -c 'kill -HUP $$; exit 34' 2>/dev/null); is "ignored signal" $? 34

# ---- --bench: what else is preloaded is there in both cases
LD_PRELOAD="libdl.so.2 $SHIM:libm.so.6" run --bench -n 1 sh -c 'echo "$LD_PRELOAD" >>"$1"' sh \
	"$TMP/preloads" 2>/dev/null
is "preloads without it, and with" "$(tr '\n' '|' <"$TMP/preloads")" \
	"libdl.so.2:libm.so.6|libdl.so.2 $SHIM:libm.so.6|"
rm "$TMP/preloads"
run --bench -n 1 sh -c 'echo "$LD_PRELOAD" >>"$1"' sh "$TMP/preloads" 2>/dev/null
is "nothing without it" "$(tr '\n' '|' <"$TMP/preloads")" "|$SHIM|"

# ---- what it says at the end
free_port port
server redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$TMP"
wait_port "$port"
bench=(redis-benchmark -p "$port" -t get -n 20000 -c 5 -q)
run --stat -p "$CONF" -- "${bench[@]}" >/dev/null 2>"$TMP/err" || fail "$(cat "$TMP/err")"
grep -Eq \
	'^rdmarun: redis-benchmark \(1 process\): left TCP: '\
'[1-9][0-9.]*% of .* bytes, [1-9][0-9.]*% of [0-9]+ connections; [1-9]' "$TMP/err" ||
	fail "$(cat "$TMP/err")"
say "$(head -n 1 "$TMP/err")"
run --stat -p "$CONF" -- sh -c "${bench[*]}; ${bench[*]}" >/dev/null 2>"$TMP/err"
grep -Eq '^rdmarun: sh \(2 processes\): left TCP: [1-9]' "$TMP/err" || fail "two: $(cat "$TMP/err")"
run --stat --off -- "${bench[@]}" >/dev/null 2>"$TMP/err"
grep -Eq 'no TCP connection, or' "$TMP/err" || fail "off: $(cat "$TMP/err")"
[[ -z $(find "$STAT" -name 'run.*') ]] || fail "directories are left: $(ls "$STAT")"
run --bench -n 2 -p "$CONF" -- "${bench[@]}" >/dev/null 2>"$TMP/err" || fail "$(cat "$TMP/err")"
grep -Eq '^rdmarun: median of 2: [0-9.]+ s without, [0-9.]+ s with the library, ratio [0-9.]+$' \
	"$TMP/err" || fail "$(cat "$TMP/err")"
run --bench -n 1 false 2>"$TMP/err"
is "bench of a failure" "$? $(cat "$TMP/err")" "1 *nothing is compared*"

# ---- RDMASHIM_STATS: one line, to stderr or to a file, and none without TCP
RDMASHIM_STATS=1 run -p "$CONF" "${bench[@]}" >"$TMP/out" 2>"$TMP/err"
grep -Eq \
	'^rdmashim\[[0-9]+\]: redis-benchmark: left TCP: '\
'[1-9][0-9.]*% of [0-9]+ bytes, [1-9][0-9]* of [0-9]+ connections' "$TMP/err" ||
	fail "$(cat "$TMP/err")"
is "one line" "$(grep -c rdmashim "$TMP/err")" 1
grep -q rdmashim "$TMP/out" && fail "it wrote to stdout"
RDMASHIM_STATS=$TMP/lines run -p "$CONF" sh -c "${bench[*]}; ${bench[*]}; true" >/dev/null \
	2>"$TMP/err"
is "two lines in a file" "$(grep -c 'left TCP' "$TMP/lines") $(grep -c rdmashim "$TMP/err")" "2 0"
RDMASHIM_STATS=1 run true 2>"$TMP/err"
[[ -s $TMP/err ]] && fail "without TCP: $(cat "$TMP/err")"
RDMASHIM_STATS=1 run --off "${bench[@]}" >/dev/null 2>"$TMP/err"
grep -q 'left TCP' "$TMP/err" && fail "switched off: $(cat "$TMP/err")"
RDMASHIM_STATS=$TMP/none/x run -p "$CONF" "${bench[@]}" >/dev/null ||
	fail "a file that cannot be written"
(exec 2>&-; RDMASHIM_STATS=1 run -p "$CONF" "${bench[@]}" >/dev/null) || fail "closed stderr"
# ---- a connection that did leave TCP is none of those that have not earned it when its other end
# is closed
"$TMP/rdmarun" -p "$CONF" python3 -S -E -c 'import os, socket, sys, time
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a = l.accept()[0]
while not os.path.exists(sys.argv[1]):
    for _ in range(100):
        c.sendall(b"x" * 100)
        a.recv(100, socket.MSG_WAITALL)
c.close()
a.recv(1)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)' "$TMP/close" "$TMP/end" 2>"$TMP/ends.log" 3>&- &
ENDS=$!
PIDS+=("$ENDS")
# what its server's end shows now, in the columns $1
server_end() {
	[[ $("$TMP/rdmastat" conn -o "$1" "pid = $ENDS and role server" 2>/dev/null |
		awk 'NR == 2 { $1 = $1; print }') == "$2" ]]
}
within 15 server_end rx,reason 'shm -' ||
	fail "not on shared memory: $("$TMP/rdmastat" conn "pid = $ENDS")"
touch "$TMP/close"
within 10 server_end tx,rx,reason 'tcp tcp -' ||
	fail "the end that is left: $("$TMP/rdmastat" conn "pid = $ENDS")"
touch "$TMP/end"
finish $ENDS 10 || fail "$(cat "$TMP/ends.log")"

stop "$SRV"
exit 0
