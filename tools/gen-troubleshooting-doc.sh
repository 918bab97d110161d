#!/bin/bash
# gen-troubleshooting-doc.sh - docs/troubleshooting.md from policy/reason.def and
# tools/troubleshooting.notes, to stdout. A note is the reason's name, and lines that begin with a
# tab. One for a reason that does not exist is an error; a reason without one is shown with its text
# and remedy alone.
set -euo pipefail
cd "$(dirname "$0")/.."

cat tools/pages/troubleshooting-head.md

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
