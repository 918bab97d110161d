# shellcheck shell=bash disable=SC2034
# calls_names.sh - sourced, from the top of the tree, by those who compare the table of calls
# (shim/libc/calls.def) with something: its rows, and which functions of a libc belong into it.

# rows KIND...: the names of the table's rows of these kinds
rows() {
	local kinds=" $* "
	${CC:-cc} -E -P -x c - \
		-I shim <<'END' | awk -v kinds="$kinds" 'index(kinds, " " $1 " ") { print $2 }' \
			| LC_ALL=C sort
#define CALL(ret, name, params, args, where, doc) CALL name
#define CALLV(name, params, args, where, doc) CALL name
#define VCALL(ret, name, params, last, args, where, doc) VCALL name
#define OWN(ret, name, params, where, doc) OWN name
#define ALIAS(alias, name, where) ALIAS alias
#define NONE(name, reason) NONE name
#include "libc/calls.def"
END
}

# What may take such an fd, by name ...
want='read|write|send|recv|poll|select|epoll|accept|connect|close|dup|fcntl|ioctl|sockopt|splice'
want="$want|^tee$|[Ff]ork|exec|spawn"
want="$want|socket|listen|shutdown|prctl|^syscall$|dprintf|fdopen|freopen|^daemon$|^system$|popen"
want="$want|copy_file|aio_|lio_|pidfd"
want="$want|^_*clone|getmsg|putmsg|sockname|peername|isastream|fattach|login_tty|^bind|rcmd"
want="$want|sockatmark|isfdtype|uring"
want="$want|^_*(bsd_|s|sysv_)?signal$|^_*sig(action|vec|set|ignore|interrupt)$"
# ... but surely does not: other families of names
other='^_*(pthread|xdr|svc|svcerr|sem|mq|fts|fts64|re|clnt|authdes|key'
other="$other|posix_spawnattr|posix_spawn_file|rpc|cxa)_"
other="$other|readdir|readlink|strn?dup|wcsdup|duplocale|^(dl|cat|iconv_)close$|^closedir$"
other="$other|^regexec$|^bind.*domain|^bind_text"
other="$other|^tcsendbreak$|^__register_atfork$|^_IO_str_init_readonly$"

# Functions that a newer libc than Debian 12's has, and the table too.
newer='pidfd_getpid pidfd_spawn pidfd_spawnp'
