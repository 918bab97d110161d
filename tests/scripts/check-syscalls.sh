#!/bin/bash
# shim/base/syscalls.def has the system calls that the library makes: all that its sources name,
# and all that a run makes in which the first function outside libc is the library's, by strace.
# docs/syscalls.md is made of it.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the sanitizers' runtimes make system calls, too"
rc=0
bad() { say "$*"; rc=1; }
diff "$TOP/docs/syscalls.md" <("$TOP/tools/gen-syscalls-doc.sh") >"$TMP/diff" ||
	bad "docs/syscalls.md is older than what it is made of: make docs"

sed -n 's/^SYSCALL(\([a-z0-9_]*\),.*/\1/p' "$TOP/shim/base/syscalls.def" | sort >"$TMP/own"
[[ -z $(uniq -d "$TMP/own") ]] || bad "twice: $(uniq -d "$TMP/own")"
# What it passes on: the program's calls by name, and by syscall(2).
{ sed -n 's/^\(CALL\|VCALL\|ALIAS\)(\([^,]*, *\)\?\([a-z0-9_]*\),.*/\3/p' "$TOP/shim/libc/calls.def"
	sed -n 's/^ALIAS(\([a-z0-9_]*\),.*/\1/p' "$TOP/shim/libc/calls.def"
	printf '%s\n' io_uring_setup io_uring_enter io_uring_register pselect6 seccomp \
		landlock_restrict_self lsm_set_self_attr keyctl setuid setgid setreuid setregid \
		setresuid setresgid setgroups; } >"$TMP/passed"
# of NAMES...: those without a row
without() { sort -u | grep -vxFf "$TMP/own" | grep -vxFf "$TMP/passed"; }
# A name that older headers lack is no use of it.
for c in $(grep -hvE '^#(ifndef|define) SYS_' "$TOP"/{shim/*,rdma/*,policy}/*.[ch] |
	grep -o '\bSYS_[a-z0-9_]*[a-z0-9]\b' | sed 's/^SYS_//' | without); do
	bad "$c is in the sources and not in shim/base/syscalls.def"
done

grep -q stack-trace= <<<"$(strace -V 2>/dev/null)" || { ((rc)) ||
	skip "no strace that shows stacks"; exit $rc; }
policy "earn_bytes 0" "earn_rounds 0"
begin_mode both
shim_env
traced() {	# NAME COMMAND...
	local e
	e=("${SHIM_ENV[@]/#/-E}")
	strace -f -k -o "$TMP/$1.trace" "${e[@]}" timeout 60 "${@:2}" >"$TMP/$1.log" 2>&1
}
# (It gives up when a process ends while it looks at its stack.)
for _ in {1..10}; do
	traced refused "$B/apps/refused" fast && done=1 && break
	grep -q '^strace: walk' "$TMP/refused.log" ||
		fail "under strace, status $?: $(tail -n 3 "$TMP/refused.log")"
done
[[ -n ${done-} ]] || { ((rc)) || skip "strace loses processes that end"; exit $rc; }
# The program's own by syscall(2) are told by the library's function; brk is malloc's.
awk '
	/^ > / {
		if (seen)
			next
		if ($0 ~ /librdmashim/)
			ours = seen = 1
		else if ($0 !~ /\/(libc\.so|ld-linux|libpthread)/)
			seen = 1
		if (ours && $0 ~ /\((syscall|prctl)\+/)
			ours = 0
		next
	}
	{
		if (ours)
			print name
		name = $0
		sub(/^[0-9]+ +/, "", name)
		sub(/^<\.\.\. /, "", name)
		sub(/[ (].*/, "", name)
		ours = seen = 0
	}' "$TMP"/*.trace | grep -x '[a-z0-9_]*' >"$TMP/made"
n=$(sort -u "$TMP/made" | wc -l)
((n > 40)) || fail "only $n kinds of system calls were seen in a run"
for c in $(grep -vx -e brk -e wait4 "$TMP/made" | without); do
	bad "$c was made in a run and is not in shim/base/syscalls.def"
done
say "$n kinds of system calls in a run"
exit $rc
