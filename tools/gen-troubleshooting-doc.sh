#!/bin/bash
# gen-troubleshooting-doc.sh - docs/troubleshooting.md from policy/reason.def and tools/troubleshooting.notes, to stdout.
# A note for a reason that does not exist is an error; a reason without a note is shown with its text and remedy alone.
set -euo pipefail
cd "$(dirname "$0")/.."

cat <<'END'
# Troubleshooting

Made by `tools/gen-troubleshooting-doc.sh` from `policy/reason.def` and `tools/troubleshooting.notes`; do not edit.

Three commands find most of it: `rdmastat doctor` (is this machine fit?), `rdmastat` (does anything leave TCP, and why not the rest?), `rdmastat why PID:FD` (this connection).

## By symptom

| what you see | where to look |
| --- | --- |
| rdmastat shows no process | It was started without the library: `grep -c librdmashim /proc/PID/maps`. Or it has made no TCP connection yet. Or it belongs to another user, or has another `RDMASHIM_STAT_DIR`. |
| "object 'librdmashim.so' from LD_PRELOAD cannot be preloaded" | The linker does not find the library, or the program is for another machine (32 bit). Name it by its whole path, or use rdmarun. |
| rdmastat says "an older library, restart it to see it" | That program still runs with the library as it was before an update. |
| no program starts: "version GLIBC_... not found (required by ...librdmashim.so)" | Their C library is older than the one that the library was built with, as in a container of an older system: take the library out of LD_PRELOAD or /etc/ld.so.preload there, or build it there. |
| processes are there, but HIT-BYTES is 0 | The reasons below the table, with their remedies. |
| only some connections leave TCP | `rdmastat conn path tcp -o pid,fd,peer,reason,remedy` |
| nothing leaves TCP in a container or service | `rdmastat doctor` inside it: seccomp, address families, limits. |
| it is slower than before | Short connections, or one CPU: `rdmarun --bench`, `rdmastat doctor`. If TCP is better here: `RDMASHIM=off` or a rule. |
| a CPU is busier | Waiting threads poll for up to `spin`: `rdmastat policy set spin 0`. |
| tcpdump shows nothing | Bytes in shared memory pass no network stack. To see them: a `use tcp` rule, or `mode off`, and back. |
| a program hangs | `rdmastat stacks PID` says where each thread stands, and what the library waits for, if it does. |
| a program behaves differently | `RDMASHIM=off` for comparison, then limits.md; `RDMASHIM_LOG=debug:/tmp/rdmashim.log` for a report. |
| everything back to TCP, at once | `rdmastat policy set mode off`: live connections too, within a second. |

## By reason

What `rdmastat` shows in the column REASON and below "On TCP because".
END

rows() {
	${CC:-cc} -E -P -x c - <<'END'
#define REASON(id, name, what, remedy) REASON name what remedy
#include "policy/reason.def"
END
}

rows | awk -F'\t' '
	NR == FNR { note[$1] = $2; next }
	/^REASON / {
		split($0, part, "\"")
		name = part[2]; what = part[4]; remedy = part[6]
		known[name] = 1
		if (name == "-") next
		printf "\n### %s\n\n%s%s.\n", name, toupper(substr(what, 1, 1)), substr(what, 2)
		if (remedy != "none") printf "\n**Remedy:** %s.\n", remedy
		else printf "\n**Remedy:** none; the connection works as without the library.\n"
		if (name in note) printf "\n%s\n", note[name]
	}
	END {
		for (name in note) if (!(name in known)) { print "a note for " name ", which is no reason" > "/dev/stderr"; exit 1 }
	}' tools/troubleshooting.notes -
