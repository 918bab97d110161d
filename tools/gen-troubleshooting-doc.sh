#!/bin/bash
# gen-troubleshooting-doc.sh - docs/troubleshooting.md from policy/reason.def and
# tools/troubleshooting.notes, to stdout. A note is the reason's name, and lines that begin with a
# tab. One for a reason that does not exist is an error; a reason without one is shown with its text
# and remedy alone.
set -euo pipefail
cd "$(dirname "$0")/.."

cat <<'END'
# Troubleshooting

Made by `tools/gen-troubleshooting-doc.sh` from `policy/reason.def` and
`tools/troubleshooting.notes`; do not edit.

Three commands find most of it:

| command | says |
| --- | --- |
| `rdmastat doctor` | is this machine fit? |
| `rdmastat` | does anything leave TCP, and why not the rest? |
| `rdmastat why PID:FD` | what decided for this connection |

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

# A text of several literals is one.
rows() {
	${CC:-cc} -E -P -x c - <<'END' | sed 's/" "//g'
#define REASON(id, name, what, remedy) REASON name | what | remedy
#include "policy/reason.def"
END
}

rows | awk -F'\t' '
	function wrap(text,	n, i, w, line) {
		n = split(text, w, " ")
		for (i = 1; i <= n; i++) {
			if (line != "" && length(line) + 1 + length(w[i]) > 98) {
				print line
				line = ""
			}
			line = line (line == "" ? "" : " ") w[i]
		}
		print line
	}
	NR == FNR { if ($1 != "") now = $1; else note[now] = note[now] $2 " "; next }
	/^REASON / {
		split($0, part, "\"")
		name = part[2]; what = part[4]; remedy = part[6]
		known[name] = 1
		if (name == "-") next
		printf "\n### %s\n\n", name
		wrap(toupper(substr(what, 1, 1)) substr(what, 2) ".")
		print ""
		if (remedy == "none") remedy = "none; the connection works as without the library"
		wrap("**Remedy:** " remedy ".")
		if (name in note) {
			print ""
			wrap(note[name])
		}
	}
	END {
		for (name in note) if (!(name in known)) {
			print "a note for " name ", which is no reason" > "/dev/stderr"
			exit 1
		}
	}' tools/troubleshooting.notes -
