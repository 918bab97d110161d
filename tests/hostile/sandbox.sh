#!/bin/bash
# A program with connections on the path puts itself in a sandbox, by calls that count for the
# calling thread alone: the library's own thread must have no more than the program has.
# TIMEOUT: 150
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -x $B/hostile/victim ]] || fail "no $B/hostile/victim"
MODE=both
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'
free_port port
start shim "$TMP/echo.log" "$B/hostile/victim" echo "$port"
echo_pid=$PID
wait_port "$port"
export ASAN_OPTIONS=detect_leaks=0
tried=0 rc=0
try() {	# HOW [WHERE]
	mkdir -p "$TMP/in"
	rm -rf "$TMP/in/empty"
	(cd "$TMP/in" && run_with shim timeout 30 python3 -S -E "$TOP/tests/hostile/sandbox.py" \
		"$port" "$@") >"$TMP/out" 2>&1
	case $? in
	0) tried=$((tried + 1)); say "$*: $(cat "$TMP/out")" ;;
	77) say "$*: not tried: $(cat "$TMP/out")" ;;
	*) say "$*: $(cat "$TMP/out")"; rc=1 ;;
	esac
}
for how in no_new_privs bound permitted by_libc inheritable ambient securebits keepcaps user group \
	groups regroups keyring landlock mounts raw_mounts net raw_net directory root \
	filter_by_prctl filter_by_call closed several failing; do
	try "$how"
done
for where in no-root no-proc; do
	for how in no_new_privs permitted user landlock filter_by_prctl several failing; do
		try "$how" "$where"
	done
done
# Threads can be made until threads_left(N) have been made.
if command -v gcc >/dev/null && [[ -z ${SAN-} ]]; then
	gcc -shared -fPIC -x c - -o "$TMP/no_thread.so" <<'END' || fail "gcc"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
static int left = 1000;
void threads_left(int n) { left = n; }
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	return left-- > 0 ? real(t, a, run, arg) : EAGAIN;
}
END
	PRELOAD=$PRELOAD:$TMP/no_thread.so try lost
fi
# While another thread of the library closes what a peer makes linger.
"$B/hostile/peer" call "$port" "$echo_pid" closes-meanwhile 3>&- || rc=1
kill -TERM "$echo_pid"
wait "$echo_pid" || fail "the victim: $(tail -n 5 "$TMP/echo.log")"
collect
((tried)) || skip "nothing of that is permitted here"
((FAST > 100000)) || fail "hardly a byte on a fast path"
exit $rc
