#!/bin/bash
# Handlers that a library has registered with pthread_atfork(), before the constructors of
# preloaded ones: what they do to connections on a path works as without the library, in the parent
# and in the child, and fork() comes back.
# TIMEOUT: 400
. "$(dirname "$0")/lib.sh"
MODES=bare${SHIM:+ both}
A=$TMP/atfork
SRC=$TOP/tests/apps/atfork.c
WRAPPER=$(compgen -G '/usr/lib/*/libsocket_wrapper.so' | head -n 1)
[[ -n $WRAPPER ]] || say "no libsocket-wrapper: without it"

cc -O1 -w -fPIC -shared -D_GNU_SOURCE -DHOOKS -o "$TMP/libhooks.so" "$SRC" -pthread -ldl &&
	cc -O1 -D_GNU_SOURCE -o "$A" "$SRC" -pthread -ldl -L"$TMP" -lhooks -Wl,-rpath,"$TMP" ||
	fail "cc"

# A plug-in that a linked library opens with RTLD_DEEPBIND in its constructor: what it registers
# goes past the wrappers, and its handlers call the program.
cat >"$TMP/plug.c" <<'END'
#include <dlfcn.h>
#include <pthread.h>
static void call(void) { ((void (*)(void))dlsym(RTLD_DEFAULT, "handler"))(); }
__attribute__((constructor)) static void begin(void) { pthread_atfork(call, call, call); }
END
cat >"$TMP/opens.c" <<'END'
#include <dlfcn.h>
void *opened;
__attribute__((constructor)) static void begin(void)
{
	opened = dlopen(PLUG, RTLD_NOW | RTLD_DEEPBIND);
}
END
cat >"$TMP/opener.c" <<'END'
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
extern void *opened;
void handler(void) { close(socket(AF_INET, SOCK_STREAM, 0)); }
int main(void)
{
	pid_t p = fork();
	int st = -1;
	if (!p)
		_exit(4);
	waitpid(p, &st, 0);
	printf("a plug-in: %d, child's status %d\n", opened != NULL, st >> 8);
	return 0;
}
END
cc -shared -fPIC -D_GNU_SOURCE -o "$TMP/plug.so" "$TMP/plug.c" -pthread -ldl &&
	cc -shared -fPIC -D_GNU_SOURCE -DPLUG="\"$TMP/plug.so\"" -o "$TMP/libopens.so" \
		"$TMP/opens.c" -ldl &&
	cc -rdynamic -o "$TMP/opener" "$TMP/opener.c" -L"$TMP" -lopens -Wl,-rpath,"$TMP" ||
	fail "cc"

both_cut() {
	RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" -c >"$TMP/ends" &&
		awk '$7 == "shm" && $8 == "shm" { n++ } END { exit n != 2 }' "$TMP/ends"
}

# one ARGUMENTS...: what the program says; in mode both only once its connection is on shared
# memory.
one() {
	local pid
	unset GATE
	[[ $MODE == both ]] && export GATE=$TMP/gate
	rm -f "$STAT"/* "$TMP/gate"
	start client "$TMP/one.log" "$A" "$@"
	pid=$PID
	if [[ $MODE == both ]]; then
		within 15 both_cut || fail "$*: never on shared memory: $(cat "$TMP/ends")"
		within 5 rm "$GATE" 2>/dev/null || fail "$*: no program at the gate"
	fi
	finish "$pid" 70 || fail "$*: status $?: $(cat "$TMP/one.log")"
	grep -v '^port ' "$TMP/one.log" >>"$OUT"
}

# alone COMMAND...: what it says.
alone() {
	start client "$TMP/one.log" "$@"
	finish "$PID" 70 || fail "$*: status $?: $(cat "$TMP/one.log")"
	grep -v '^port ' "$TMP/one.log" >>"$OUT"
}

job() {
	local what when
	policy 'earn_bytes 0' 'earn_rounds 0'
	for what in ${WHATS:-$("$A" list)}; do
		for when in prepare parent child; do one "$what" $when; done
	done
	# Another library behind ours: it opens libc with RTLD_DEEPBIND at its first fork, with its
	# locks held.
	if [[ -n $WRAPPER && $MODE == both ]]; then
		PRELOAD=$PRELOAD:$WRAPPER alone "$A" forks
	else
		alone "$A" forks
	fi
	alone "$TMP/opener"
	one locks
	one stdio
	policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 2ms'
	one join
}
for_modes job none
