#!/bin/sh
# gen-calls-doc.sh - docs/calls.md from shim/libc/calls.def, to stdout.
# Usage, from the top of the tree: tools/gen-calls-doc.sh > docs/calls.md
set -eu
top=$(dirname "$0")/..

# A text of several literals is one.
rows() {
	${CC:-cc} -E -P -x c - -I "$top/shim" <<'END' | sed 's/" "//g'
#define CALL(ret, name, params, args, where, doc) CALL name where - doc
#define CALLV(name, params, args, where, doc) CALL name where - doc
#define VCALL(ret, name, params, last, args, where, doc) CALL name where - doc
#define OWN(ret, name, params, where, doc) CALL name where - doc
#define ALIAS(alias, name, where) ALIAS alias where name ""
#define NONE(name, reason) NONE name - - reason
#include "libc/calls.def"
END
}

cat <<'END'
# The calls

Made by `tools/gen-calls-doc.sh` from `shim/libc/calls.def`; do not edit.

## Interposed

What a wrapper does when the fd is a TCP connection that the library follows. For any other fd,
and for a connection that stays on TCP for good, the call goes straight to libc. "Goes home
first": the connection goes back to TCP, for good, before libc's call is made.

| call | also as | in | for a stream |
| --- | --- | --- | --- |
END
rows | awk '
	{ text = $0; sub(/^[^"]*"/, "", text); sub(/"$/, "", text) }
	$1 == "CALL" { order[++n] = $2; where[$2] = $3; doc[$2] = text }
	$1 == "ALIAS" { also[$4] = also[$4] (also[$4] == "" ? "" : ", ") "`" $2 "`" }
	END {
		for (i = 1; i <= n; i++)
			printf "| `%s` | %s | `wrap_%s.c` | %s |\n", order[i], also[order[i]], where[order[i]], doc[order[i]]
	}'
cat <<'END'

## Not interposed

| call | why |
| --- | --- |
END
rows | awk '
	{ text = $0; sub(/^[^"]*"/, "", text); sub(/"$/, "", text) }
	$1 == "NONE" { printf "| `%s` | %s |\n", $2, text }'
cat <<'END'

## Calls that need TCP, and may fail

Before such a call streams go to TCP. One that fails leaves them as they were, and they are cut
again. "lent": on TCP while the call lasts, for good if it succeeds (`shim/process/fallback_while.c`).
"asked": whether it would be refused is found out before (see the file). Each is tried, failing,
beside a connection on a fast path; the last column has the cases of `tests/apps/refused.c`, which
compares with this table.

| call | streams | how | failing cases |
| --- | --- | --- | --- |
| seccomp, prctl(PR_SET_SECCOMP) | all, and the library is off | asked: the kernel of flags and rights, `wrap_seccomp.c` of the program | `probe` `probe_tsync` `probe_listener` `probe_prctl` `probe_raw_prctl` `prctl_mode` `seccomp_flags` `seccomp_op` `strict_flags` `strict_arg` `filter_empty` `filter_long` `filter_unreadable` `filter_unknown` `filter_endless` `filter_beyond` `filter_odd` `filter_rights` |
| unshare, setns | all, and the library is off, for a PID or time namespace of a process that has one thread | lent | `unshare_flags` `setns_closed` `setns_pipe` |
| io_uring_setup, io_uring_enter, io_uring_register | all; of a ring that is followed, those that it names | setup and register: after the call; enter: asked, by one that submits nothing | `setup_none` `enter_closed` `enter_pipe` `register_closed` `register_pipe` |
| dlopen(RTLD_DEEPBIND), dlmopen | all, for good: also if the library then does not load | asked: is the file there? | `open_absent` `open_mode` `dlm_absent` |
| listen | forgotten | after the call | `listen_connected` |
| connect(AF_UNSPEC) | the one, for good | asked: can the address be read? Then the kernel does not refuse it | `connect_unreadable` `connect_long` |
| setsockopt, getsockopt(TCP_ZEROCOPY_RECEIVE), FIOASYNC, F_SETFL(O_ASYNC) | the one | lent | `option_unknown` `option_ulp` `option_filter` `zerocopy_receive` `async_unreadable` |
| fdopen | the one | lent | `fdopen_mode` |
| vdprintf, dprintf | the one, for good | before: fails only with the connection | |
| aio_read, aio_write | the one | lent | `aio_priority` |
| lio_listio | those that are read or written, for good | asked: is the mode one? | `lio_mode` |
| splice | both | lent | `splice_sockets` `splice_offset` |
| sendfile from what is no file | the one, for good | asked, by one that sends nothing | `sendfile_closed` `sendfile_socket` |
| send(MSG_OOB), send(MSG_ZEROCOPY), sendmsg with ancillary data | the one | lent | `urgent_unreadable` `control_unknown` |
| recv(MSG_OOB) | the one, for good | asked: is there such a byte? | `urgent_none` |
| preadv2, pwritev2 with flags | the one | lent | `preadv_flags` `pwritev_flags` |
| epoll_ctl of an instance that is not followed | the one | lent | `epoll_closed` `epoll_pipe` |
| dup2, dup3, close_range | the target's is closed | after the kernel's checks | `dup_beyond` `close_flags` |
| sendmsg, sendmmsg with SCM_RIGHTS | those that are passed | asked: of the socket and the descriptors | `pass_alone` `pass_closed` `pass_pipe` `pass_ended` |
| exec in its forms | those without FD_CLOEXEC | lent; a child of vfork asks its parent, and holds them as long as it lives | `exec_absent` `exec_path` `exec_directory` |
| posix_spawn, system, popen, pidfd_spawn, fork, clone | those that the child has | lent to the child; to nobody if there is none | `spawn_absent` |
END
