#!/bin/bash
# What the GPU path has to do at exit() is registered where no lock is held, and not inside of a
# send or a receive: a library before the library notes who registers something.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
cat >"$TMP/noted.c" <<'EOF'
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static __thread const char *inside;
#define NEXT(name) (*(typeof(name) *)dlsym(RTLD_NEXT, #name))
ssize_t send(int fd, const void *p, size_t n, int flags)
{
	ssize_t r;
	inside = "inside of send\n";
	r = NEXT(send)(fd, p, n, flags);
	inside = NULL;
	return r;
}
ssize_t recv(int fd, void *p, size_t n, int flags)
{
	ssize_t r;
	inside = "inside of recv\n";
	r = NEXT(recv)(fd, p, n, flags);
	inside = NULL;
	return r;
}
int __cxa_atexit(void (*f)(void *), void *arg, void *dso)
{
	const char *how = inside ? inside : "elsewhere\n";
	Dl_info is;
	int fd;
	if (dladdr((void *)f, &is) && strstr(is.dli_fname, "librdmashim")) {
		fd = open(getenv("NOTED"), O_WRONLY | O_APPEND | O_CREAT, 0600);
		write(fd, how, strlen(how));
		close(fd);
	}
	return ((int (*)(void (*)(void *), void *, void *))dlsym(RTLD_NEXT, "__cxa_atexit"))(f, arg,
		dso);
}
EOF
cc -w -D_GNU_SOURCE -shared -fPIC -o "$TMP/libnoted.so" "$TMP/noted.c" -ldl || fail "cc"
export STANDIN_DELAY=20 NOTED=$TMP/noted
PRELOAD=$TMP/libnoted.so:$PRELOAD
policy "device eager" "device_memory 64M" "earn_bytes 0" "overflow 10s" "log_level 3"
begin_mode both
STANDIN_DEVICES=2 gated "$B/gpu/pipe" stream 1048576 60 pinned ||
	fail "$(tail -n 3 "$TMP/client.log")"
[[ -s $NOTED ]] || fail "nothing was registered"
say "registered: $(sort "$NOTED" | uniq -c | xargs)"
if grep -q inside "$NOTED"; then fail "one inside of a send or a receive"; fi
