#!/bin/sh
# gen-syscalls-doc.sh - docs/syscalls.md from shim/base/syscalls.def and tests/apps/filters.txt, to
# stdout.
# Usage, from the top of the tree: tools/gen-syscalls-doc.sh > docs/syscalls.md
set -eu
top=$(dirname "$0")/..

cat <<'END'
# The system calls

Made by `tools/gen-syscalls-doc.sh` from `shim/base/syscalls.def` and `tests/apps/filters.txt`; do
not edit.

What the library calls for itself, and whether the usual filters permit it. `check-syscalls`
compares the table with a run under strace; `apps/confined` has a run under filters that kill at
any other call: systemd's `@system-service` without `@resources`, Docker's, podman's. The sets are
those of systemd 252 and of the engines' default profiles, on x86-64, without capabilities (from
where: see `tests/apps/filters.txt`).

"-": not in the set. systemd ends a process for that, unless the unit has
`SystemCallErrorNumber=`; the engines answer with an error.

| call | for | @system-service | ~@resources | Docker | podman |
| --- | --- | --- | --- | --- | --- |
END
{ cat "$top/tests/apps/filters.txt"; echo rows:
	printf '%s\n' '#define SYSCALL(name, doc) name | doc' '#include "base/syscalls.def"' |
	${CC:-cc} -E -P -x c - -I "$top/shim" |
	sed -n 's/" "//g; s/^\([a-z0-9_]*\) | "\(.*\)"$/\1|\2/p'; } | awk -F '|' '
	/^#/ { next }
	/^rows:$/ { rows = 1; next }
	!rows {
		n = split($0, w, " ")
		for (i = 1; i <= n; i++)
			if (w[i] ~ /:$/) set = w[i]; else has[set, w[i]] = 1
		next
	}
	function yes(is) { return is ? "yes" : "-" }
	{
		all = has["system-service:", $1]
		printf "| `%s` | %s | %s | %s | %s | %s |\n", $1, $2, yes(all),
			yes(all && !has["resources:", $1]), yes(has["docker:", $1]),
				yes(has["podman:", $1])
	}'
