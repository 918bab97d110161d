# shellcheck shell=bash disable=SC2034
# calls_names.sh - sourced by those who look which functions of a libc belong into the table of calls (shim/calls.def).
# What may take such an fd, by name ...
want='read|write|send|recv|poll|select|epoll|accept|connect|close|dup|fcntl|ioctl|sockopt|splice|^tee$|[Ff]ork|exec|spawn'
want="$want|socket|listen|shutdown|prctl|^syscall$|dprintf|fdopen|freopen|^daemon$|^system$|popen|copy_file|aio_|lio_|pidfd"
want="$want|^_*clone|getmsg|putmsg|sockname|peername|isastream|fattach|login_tty|^bind|rcmd|sockatmark|isfdtype|uring"
want="$want|^_*(bsd_|s|sysv_)?signal$|^_*sig(action|vec|set|ignore|interrupt)$"
# ... but surely does not: other families of names
other='^_*(pthread|xdr|svc|svcerr|sem|mq|fts|fts64|re|clnt|authdes|key|posix_spawnattr|posix_spawn_file|rpc|cxa)_'
other="$other|readdir|readlink|strn?dup|wcsdup|duplocale|^(dl|cat|iconv_)close$|^closedir$|^regexec$|^bind.*domain|^bind_text"
other="$other|^tcsendbreak$|^__register_atfork$|^_IO_str_init_readonly$"

# Functions that a newer libc than Debian 12's has, and the table too.
newer='pidfd_getpid pidfd_spawn pidfd_spawnp'
