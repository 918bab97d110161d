#!/bin/bash
# What a process is like, or is in, that the library has to live with: small stacks, real-time
# priority on one processor, a call that a filter does not know, libraries that are opened with
# RTLD_DEEPBIND or found by a run path.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library"
[[ -z ${SAN-} ]] || skip "the sanitizer's runtime needs stacks and dlopen() for itself"
MODE=both
begin_mode both
ECHO=(python3 "$TOP/tests/apps/asyncio-echo.py")
now=('earn_bytes 0' 'earn_rounds 0')

# echoes [WRAPPER...]: a server that echoes.
echoes() {
	free_port port
	shim_env
	start none "$TMP/server.log" "$@" env "${SHIM_ENV[@]}" "${ECHO[@]}" server "$port"
	SRV=$PID
	wait_port "$port"
}
ended() { collect; say "$1: $FAST bytes on a fast path, on TCP because: $REASONS"; }

for how in 'mode off' 'spin 50us' 'force_cut_every 3ms'; do
	for size in 16384 20480; do
		policy "${now[@]}" "$how"
		echoes
		out=$(run_with client timeout 40 "$B/apps/smallstack" "$port" "$size" 2>&1) ||
			fail "a stack of $size, $how: status $?: $out"
		stop "$SRV"
	done
done
ended "small stacks"

# The process polls, has its processor for itself and a priority that nothing else has there: the
# library's thread must get its turn all the same. Where the kernel leaves the others nothing
# beside real-time threads (sched_rt_runtime_us -1) nothing can be asked.
if chrt -f 50 true 2>/dev/null && (($(nproc) > 1)) &&
	[[ $(cat /proc/sys/kernel/sched_rt_runtime_us) != -1 ]]; then
	policy "${now[@]}" 'force_cut_every 20ms'
	cat >"$TMP/poller.py" <<-'END'
	import socket, sys, time
	listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
	stream = listener.accept()[0]
	for _ in range(300):
	    stream.sendall(stream.recv(100, socket.MSG_WAITALL))
	    time.sleep(0.001)
	stream.setblocking(False)
	got, last, pause = 0, time.monotonic(), 2_000_000
	while got < 20_000_000:
	    try:
	        data = stream.recv(65536)
	        if not data:
	            sys.exit("the end after %d bytes" % got)
	        got, last = got + len(data), time.monotonic()
	        while got > pause and time.monotonic() < last + 0.03:	# has other work
	            pass
	        pause = max(pause, got + 2_000_000 if got > pause else 0)
	    except BlockingIOError:
	        if time.monotonic() - last > 20:
	            sys.exit("nothing more after %d bytes" % got)
	stream.setblocking(True)
	stream.sendall(b"all")
	END
	free_port port
	shim_env
	start none "$TMP/server.log" taskset -c 1 chrt -f 50 env "${SHIM_ENV[@]}" python3 \
		-S "$TMP/poller.py" "$port"
	SRV=$PID
	wait_port "$port"
	taskset -c 0 env "${SHIM_ENV[@]}" timeout 60 python3 -S -c 'import socket, sys
stream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for _ in range(300):
    stream.sendall(bytes(100))
    stream.recv(100, socket.MSG_WAITALL)
for _ in range(200):
    stream.sendall(bytes(100_000))
print(stream.recv(3))' "$port" >"$TMP/client.log" 2>&1 3>&- ||
	fail "real-time: client, status $?: $(tail -n 3 "$TMP/client.log" "$TMP/server.log")"
	finish "$SRV" 10 || fail "real-time: server: $(cat "$TMP/server.log")"
	ended "real-time"
fi

# Older container engines answer EPERM to what they do not know.
if [[ -x $B/hostile/fault ]]; then
	policy "${now[@]}"
	echoes "$B/hostile/fault" epoll_pwait2 1 0 1
	server=$(pgrep -P "$SRV")
	run_with client timeout 40 "${ECHO[@]}" client "$port" 2 0 1 >"$TMP/client.log" 2>&1 ||
		fail "EPERM: client: $(tail -n 3 "$TMP/client.log")"
	before=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
	sleep 2
	after=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
	say "epoll_pwait2 refused: $((after - before)) ticks in two seconds without work"
	((after - before < 50)) || fail "epoll_pwait2 refused: the server does not rest"
	kill -TERM "$server"
	finish "$SRV" 10
	ended "epoll_pwait2 refused"
fi

# The address space that a limit leaves is the program's.
policy "${now[@]}"
echoes
shim_env
env "${SHIM_ENV[@]}" timeout 40 prlimit --as=4000000000 python3 \
	-S -c 'import mmap, socket, sys, time
stream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for n in range(400):
    stream.sendall(bytes(100))
    stream.recv(100, socket.MSG_WAITALL)
    time.sleep(0 if n % 50 else 0.002)
mmap.mmap(-1, 3_500_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)' "$port" \
	>"$TMP/client.log" 2>&1 3>&- || fail "a limited address space: $(tail -n 1 \
		"$TMP/client.log")"
stop "$SRV"
ended "a limited address space"

# A plug-in that finds libc's calls before ours; and one that is found by the program's own run
# path, at which the loader looks for who calls dlopen().
mkdir "$TMP/lib"
cat >"$TMP/plug.c" <<'END'
#include <sys/socket.h>
int turn(int fd, char *buf, int n)
{
	int got = 0, r = 1;

	if (send(fd, buf, n, 0) != n)
		return -1;
	while (got < n && (r = recv(fd, buf + got, n - got, 0)) > 0)
		got += r;
	return got;
}
END
cat >"$TMP/main.c" <<'END'
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), flags = RTLD_NOW | 
		(argv[2][0] == 'd' ? RTLD_DEEPBIND : 0);
	int (*turn)(int, char *, int);
	char buf[1000], was[1000];
	void *h;

	if (connect(fd, (void *)&a, sizeof a))
		return 2;
	for (int i = 0; i < 600; i++) {
		memset(buf, i, sizeof buf);
		memcpy(was, buf, sizeof buf);
		if (i == 300) {
			h = argv[2][0] == 'm' ? dlmopen(LM_ID_NEWLM, "libplug.so", flags)
				: dlopen("libplug.so", flags);
			turn = h ? dlsym(h, "turn") : NULL;
			if (!turn) {
				fprintf(stderr, "%s\n", dlerror());
				return 3;
			}
		}
		if (i < 300) {
			if (send(fd, buf, sizeof buf, 0) != sizeof buf ||
				recv(fd, buf, sizeof buf, MSG_WAITALL) != sizeof buf)
				return 4;
			usleep(i % 50 ? 0 : 2000);
		} else if (turn(fd, buf, sizeof buf) != sizeof buf) {
			return 5;
		}
		if (memcmp(buf, was, sizeof buf))
			return 6;
	}
	return 0;
}
END
cc -shared -fPIC -o "$TMP/lib/libplug.so" "$TMP/plug.c" &&
	cc -w -o "$TMP/main" "$TMP/main.c" -Wl,-rpath,"$TMP/lib" -ldl || fail "cc"
for how in plain deep mopen; do
	policy "${now[@]}"
	echoes
	run_with client timeout 15 "$TMP/main" "$port" $how >"$TMP/client.log" 2>&1 ||
		fail "a plug-in, $how: status $?: $(cat "$TMP/client.log")"
	stop "$SRV"
	ended "a plug-in, $how"
done
