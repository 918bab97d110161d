#!/bin/bash
# All shell scripts are clean under shellcheck; .shellcheckrc says what is not asked for, and why.
# And none of them with pipefail pipes into `grep -q`, which ends at the first match: who still
# writes then is ended by SIGPIPE, and so the word that was found is missing, now and then.
# TIMEOUT: 120
cd "$(dirname "$0")/../.." || exit 1
command -v shellcheck >/dev/null || { echo "no shellcheck"; exit 77; }
out=${B:-build}/shellcheck.out

# Those by name, and those whose first line names a shell.
scripts() {
	find . \( -path ./build -o -path ./.git -o -path '*/corpus' \) -prune -o -type f \
		! -name '*.[ch]' ! -name '*.md' -print0 |
		xargs -0 awk '
			FILENAME ~ /\.(ba)?sh$/ || /^#!.*[\/ ](ba|da)?sh( |$)/ { print FILENAME }
			{ nextfile }'
}

scripts | xargs grep -lE 'pipefail|^\. .*/lib\.sh' | xargs awk '
	/(^|[^|])\|[ \t]*grep -[a-zA-Z]*q/ || (piped && /^[ \t]*grep -[a-zA-Z]*q/) {
		print FILENAME ":" FNR ": piped into grep -q:" $0 }
	{ piped = /(^|[^|])\|$/ }' >"$out"
if [[ -s $out ]]; then
	cat "$out"
	exit 1
fi
if ! scripts | xargs -P 2 -n 25 shellcheck -s bash -f gcc >"$out" 2>&1; then
	head -n 40 "$out"
	exit 1
fi
echo "$(scripts | wc -l) scripts"
