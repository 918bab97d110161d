#!/bin/bash
# Programs of Go, with `go on` in the policy: a dialogue between two is the same as without the
# library, by default and under forced cuts, and goes by a fast path; so it is of one that is
# stripped, or PIE, and where no page may become executable; what is not as expected stays as it is.
# TIMEOUT: 400
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/golang.bash"
src=$TOP/tests/apps/golang.go
build_go "$TMP/prog" "$src"

job() { two_ends timeout 100 "$TMP/prog"; }
policy 'go on' 'log_level 3'
for_modes job 10000000
[[ -n $SHIM ]] || exit 0
grep -q 'a Go program, go1\.[0-9.]*, [3-8] stubs' "$TMP/shim.both" || fail "it was not patched"
said=$(grep -o '"go": *"[^"]*"' "$TMP/stat.both.json" | sort -u)
[[ $said == *'"go1.'*' stubs"' && $said != *$'\n'* ]] || fail "rdmastat --json: $said"
for cuts in 1ms 200us; do
	policy 'go on' 'log_level 3' "force_cut_every $cuts" 'earn_bytes 0' 'earn_rounds 0'
	begin_mode both
	job
	same_as_bare
	collect
	say "forced cuts each $cuts: $CUTS cuts, $REWINDS rewinds, $FAST bytes on a fast path"
	((CUTS > 100)) || fail "only $CUTS cuts"
done

# ---- what else is a Go program, and what is none that is touched
policy 'go on' 'log_level 3' 'earn_bytes 0' 'earn_rounds 0'
# alone PROGRAM [ENVIRONMENT...]: its log is in $said
alone() {
	local prog=$1 rc
	shift
	rm -f "$TMP/shim.$MODE"
	shim_env
	env "${SHIM_ENV[@]}" "$@" "$prog" alone >"$TMP/alone.log" 2>&1 3>&-
	rc=$?
	[[ $rc == 3 && $(<"$TMP/alone.log") == "40 rounds alone" ]] ||
		fail "${prog##*/}: status $rc: $(head -n 5 "$TMP/alone.log")"
	said=$(grep -s 'Go program' "$TMP/shim.$MODE")
}
# is PROGRAM WHAT PATTERN [ENVIRONMENT...]
is() {
	local prog=$1 what=$2 pattern=$3
	shift 3
	alone "$prog" "$@"
	# shellcheck disable=SC2053  # a pattern it is
	[[ $said == $pattern ]] || fail "$what: '$said'"
	say "$what: ${said:-nothing}"
}
patched='*a Go program, go1.*, [3-8] stubs'
begin_mode both
is "$TMP/prog" "alone" "$patched"
is "$TMP/prog" "RDMASHIM_GO=off" '' RDMASHIM_GO=off
strip -o "$TMP/stripped" "$TMP/prog"
is "$TMP/stripped" stripped "$patched"
build_go "$TMP/small" -ldflags '-s -w' -trimpath "$src"
is "$TMP/small" "built without symbols" "$patched"
build_go "$TMP/pie" -buildmode=pie "$src"
is "$TMP/pie" PIE "$patched"
build_go "$TMP/external" -ldflags '-linkmode=external' "$src"
is "$TMP/external" "linked by the C compiler" "$patched"
CGO_ENABLED=0 build_go "$TMP/static" "$src"
is "$TMP/static" "cgo off" ''
CGO_ENABLED=0 build_go "$TMP/own" -buildmode=pie "$src"
is "$TMP/own" "cgo off, PIE" '*untouched: without cgo*'
if go list race >/dev/null 2>&1 && nice go build -race -o "$TMP/race" "$src" 2>/dev/null; then
	is "$TMP/race" "race detector" '*untouched: built with a sanitizer'
fi
# What rdmastat says of both kinds.
# shown PROGRAM PATTERN DOCTOR
# shellcheck disable=SC2053  # patterns they are
shown() {
	local port out
	free_port port
	start shim "$TMP/server.log" "$1" server "$port"
	wait_port "$port"
	out=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" -o pid,go | grep "^ *$PID ")
	[[ $out == $2 ]] || fail "rdmastat: '$out'"
	out=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" why "$PID" | grep '^ *go ')
	[[ $out == $2 ]] || fail "why: '$out'"
	out=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" doctor | grep -A1 -w go)
	[[ $out == $3 ]] || fail "doctor: '$out'"
	say "doctor: $(head -n 1 <<<"$out")"
	kill -KILL "$PID"
	wait "$PID" 2>/dev/null
}
shown "$TMP/prog" '*go1.* stubs' '*the calls of 1 program of Go come*'
shown "$TMP/own" '*go1.*, untouched: without cgo*' \
	'*1 program of Go past the library: *without cgo*'
# rdmarun says of a static one that it runs without.
out=$(RDMASHIM_LIB=$SHIM "$B/rdmarun" "$TMP/static" print x 2>"$TMP/rdmarun.err" 3>&-)
[[ $out == x ]] && grep -q 'static is static' "$TMP/rdmarun.err" ||
	fail "rdmarun of a static program: $out, $(cat "$TMP/rdmarun.err")"
RDMASHIM_LIB=$SHIM "$B/rdmarun" "$TMP/prog" print x >/dev/null 2>"$TMP/rdmarun.err" 3>&-
[[ ! -s $TMP/rdmarun.err ]] || fail "rdmarun: $(cat "$TMP/rdmarun.err")"
# A stub that is not there by its name.
damaged() {	# FROM TO WHAT
	python3 - "$TMP/prog" "$TMP/damaged" "$1" "$2" <<'END' || fail "could not damage it"
import sys
data = open(sys.argv[1], "rb").read()
a, b = (x.encode().decode("unicode_escape").encode("latin1") for x in sys.argv[3:5])
if a not in data or len(a) != len(b):
    sys.exit(1)
open(sys.argv[2], "wb").write(data.replace(a, b))
END
	chmod +x "$TMP/damaged"
	is "$TMP/damaged" "$3" '*untouched: *'
}
damaged '\0runtime.exit\0' '\0runtime.exot\0' "another name"
if grep -q 'go1\.1[89]' <<<"$(go version)"; then
	damaged '\0runtime.epollctl\0' '\0runtime.epollctx\0' "one of three"
fi
if command -v upx >/dev/null; then
	upx -qqq -o "$TMP/packed" "$TMP/prog" && is "$TMP/packed" "packed by upx" ''
else
	say "no upx: a packed program was not tried"
fi

# ---- where a page that was written may never be executed; another user; a policy for others
cat >"$TMP/mdwe.py" <<'END'
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
END
rm -f "$TMP/shim.both"
shim_env
env "${SHIM_ENV[@]}" python3 "$TMP/mdwe.py" "$TMP/prog" alone >"$TMP/alone.log" 2>&1 3>&-
case $? in
3) grep -q "a Go program, .* stubs" "$TMP/shim.both" && say "MemoryDenyWriteExecute: patched" ||
	fail "MemoryDenyWriteExecute: not patched" ;;
77) say "no MemoryDenyWriteExecute here" ;;
*) fail "MemoryDenyWriteExecute: $(head -n 5 "$TMP/alone.log")" ;;
esac
other=(setpriv --reuid 1001 --regid 1001 --clear-groups --no-new-privs)
if ((!EUID)) && "${other[@]}" true 2>/dev/null; then
	mkdir -m 700 "$TMP/stat.1001" && chown 1001:1001 "$TMP/stat.1001"
	said=$("${other[@]}" env "${SHIM_ENV[@]}" RDMASHIM_LOG_FILE= \
		RDMASHIM_STAT_DIR="$TMP/stat.1001" "$TMP/prog" alone 2>&1 3>&-)
	rc=$?
	[[ $rc == 3 && $said == *"40 rounds alone"* && $said == *"a Go program, "*" stubs"* ]] ||
		fail "another user: status $rc: $said"
	say "another user, without new privileges: patched"
fi
policy 'program other' 'go on' 'program *'
is "$TMP/prog" "go on for others" ''
policy 'program prog' 'go off' 'program *' 'go on' 'log_level 3'
is "$TMP/prog" "go off for this one" ''

# ---- SIGQUIT at any moment of a dialogue: Go shows its goroutines, and ends
policy 'go on' 'log_level 3' 'earn_bytes 0' 'earn_rounds 0'
said_so() { grep -q "^$1:" "$TMP/quit.log"; }
for after in echo echo echo bulk copy deadline many collecting profile threads; do
	free_port port
	server "$TMP/prog" server "$port"
	wait_port "$port"
	start client "$TMP/quit.log" "$TMP/prog" client "$port"
	within 30 said_so $after || fail "the client: $(tail -n 5 "$TMP/quit.log")"
	kill -QUIT "$SRV" "$PID"
	for p in "$SRV" "$PID"; do
		finish "$p" 20
		rc=$?
		((rc == 2)) || fail "SIGQUIT after $after: status $rc"
	done
	for f in "$TMP/server.log" "$TMP/quit.log"; do
		grep -q '^SIGQUIT: quit' "$f" && grep -qE '^goroutine [0-9]+ .*\[' "$f" ||
			fail "SIGQUIT after $after: $(tail -n 5 "$f")"
	done
done
say "SIGQUIT: goroutines shown, status 2, ten times at both ends"

# ---- 200 starts
policy 'go on' 'log_level 3' 'earn_bytes 0' 'earn_rounds 0'
rm -f "$TMP/shim.both"
shim_env
for ((i = 0; i < 200; i++)); do
	env "${SHIM_ENV[@]}" "$TMP/prog" alone >"$TMP/alone.log" 2>&1 3>&-
	rc=$?
	[[ $rc == 3 && $(<"$TMP/alone.log") == "40 rounds alone" ]] ||
		fail "start $i: status $rc: $(head -n 5 "$TMP/alone.log")"
done
n=$(grep -c 'stubs' "$TMP/shim.both")
say "200 starts, $n patched"
((n == 200)) || fail "$((200 - n)) were not patched"
