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
and for a connection that stays on TCP for good, the call goes straight to libc. "Falls back
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
			printf "| `%s` | %s | `wrap_%s.c` | %s |\n", order[i],
				also[order[i]], where[order[i]], doc[order[i]]
	}'
cat <<'END'

## Not interposed

| call | why |
| --- | --- |
END
rows | awk '
	{ text = $0; sub(/^[^"]*"/, "", text); sub(/"$/, "", text) }
	$1 == "NONE" { printf "| `%s` | %s |\n", $2, text }'
cat "$top"/tools/pages/calls-refused.md
