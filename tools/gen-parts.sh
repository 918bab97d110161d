#!/bin/bash
# gen-parts.sh FILE - a page that is written by hand, with the parts in it that are made from tables
# as these say now, to stdout. `rdmastat policy keys`, that is policy/conf.def, gives the tunables;
# policy/reason.def the reasons. A part is what stands between two lines that begin as in the table
# below; both stay.
# Usage, from the top of the tree: tools/gen-parts.sh docs/policy.md >new; without FILE it names the
# pages.
set -euo pipefail
page=${1-}
stat=${B:-build}/rdmastat

# PAGE|first line|line behind the part|what is made there
while IFS='|' read -r name from to how; do
	[[ $page ]] || echo "$name"
	[[ $page == "$name" ]] && break
done <<'END'
docs/policy.md|<!-- keys|<!-- end|keys-md
docs/rdmashim.conf.5|.\" keys|.\" end|keys-man
docs/rdmastat.1|.SH REASONS|.SH |reasons-man
conf/rdmashim.conf|# ---- Tunables|# ---- Who|keys-conf
END
[[ $page ]] || exit 0
[[ $page == "$name" ]] || { echo "$1 has no such part" >&2; exit 1; }

# A text of several literals is one.
reasons() {
	${CC:-cc} -E -P -x c - <<'END' | sed -n 's/" "//g; /^REASON "-"/d; s/^REASON //p'
#define REASON(id, name, what, remedy) REASON name | what | remedy
#include "policy/reason.def"
END
}

{
	if [[ $how == reasons-* ]]; then reasons; else "$stat" policy keys | sed 1d; fi
	echo "page:"
	cat "$page"
} | FROM=$from TO=$to awk -v how="$how" '
	function wrap(before, text,	n, i, w, line) {
		n = split(text, w, " ")
		line = before w[1]
		for (i = 2; i <= n; i++) {
			if (length(line) + 1 + length(w[i]) > 98) {
				print line
				line = before w[i]
			} else
				line = line " " w[i]
		}
		print line
	}
	function upper(text) { return toupper(substr(text, 1, 1)) substr(text, 2) "." }
	function key(row,	w, text) {
		split(row, w, " ")
		text = row
		sub(/^ *[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +/, "", text)
		if (how == "keys-md")
			printf "| `%s` | %s | %s | %s | %s |\n", w[1], w[2], w[3], w[4], text
		else if (how == "keys-man") {
			printf ".TP\n.BR %s \" (%s; %s to %s)\"\n", w[1], w[2], w[3], w[4]
			wrap("", upper(text))
		} else {
			print ""
			wrap("# ", upper(text))
			printf "#%s %s\n", w[1], w[2]
		}
	}
	function reason(row,	part) {
		split(row, part, "\"")
		printf ".TP\n.B %s\n", part[2]
		wrap("", upper(part[4]) " Remedy: " part[6] ".")
	}
	BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
	!page && $0 == "page:" { page = 1; next }
	!page { row[++rows] = $0; next }
	inside && index($0, to) == 1 { inside = 0; if (how == "keys-conf") print "" }
	inside { next }
	{ print }
	index($0, from) == 1 {
		if (how == "keys-md")
			print "| key | default | least | most | meaning |\n" \
				"| --- | --- | --- | --- | --- |"
		for (i = 1; i <= rows; i++)
			if (how == "reasons-man") reason(row[i]); else key(row[i])
		inside = 1
		made++
	}
	END { if (made != 1 || inside || !rows) exit 1 }'
