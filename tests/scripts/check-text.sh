#!/bin/bash
# Text that fits a window: no line above 100 columns (a tab goes to the next multiple of 8) in
# sources, scripts and documents, no paragraph above 80 words in documents. A list item and a table
# cell count as paragraphs. A table row of Markdown cannot be broken, so its line may be longer.
# LICENSE, which comes from elsewhere, and data for tests are not looked at.
# check-text.sh FILE... looks at these files alone.
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C

files() {
	if [[ -e .git ]]; then
		git ls-files -c -o --exclude-standard
	else
		find . -path ./build -prune -o -type f -printf '%P\n'
	fi | grep \
		-vE '^(LICENSE|tests/fuzz/corpus/.*|tests/apps/filters.txt|.*\.(trace|svg|png))$' |
		while IFS= read -r f; do [[ -f $f ]] && echo "$f"; done
}

# Prints FILE:LINE: what is wrong.
look() {
	awk '
	function wrong(line, what) { printf "%s:%d: %s\n", file, line, what }
	function paragraph() {
		if (words > 80)
			wrong(start, words " words in a paragraph")
		words = 0
	}
	function columns(s,	n, i, part, total) {
		n = split(s, part, "\t")
		for (i = 1; i < n; i++)
			total += length(part[i]) + 8 - (total + length(part[i])) % 8
		return total + length(part[n])
	}
	FNR == 1 {
		paragraph()
		file = FILENAME
		code = 0
		md = file ~ /\.md$/
		man = file ~ /docs\/[^\/]*\.[1-9]$/
	}
	length($0) > 12 && !(md && /^[ \t]*\|/) && (n = columns($0)) > 100 {
		wrong(FNR, n " columns") }
	!md && !man { next }
	md && /^[ \t]*```/ || man && /^\.(nf|fi|EX|EE)/ { paragraph(); code = !code; next }
	code { next }
	md && /^[ \t]*\|/ {
		paragraph()
		for (n = split($0, cell, "|"); n; n--)
			if (split(cell[n], w, " ") > 80)
				wrong(FNR, split(cell[n], w, " ") " words in a cell")
		next
	}
	/^[ \t]*$/ || md && /^#/ { paragraph(); next }
	man && /^\.(SH|SS|TP|TQ|IP|PP|LP|P|RS|RE|br|sp|TS|TE|T&)/ { paragraph(); next }
	md && /^[ \t]*([-*+]|[0-9]+\.)[ \t]/ { paragraph() }
	{ if (!words) start = FNR; words += NF }
	END { paragraph() }' "$@"
}

all=("$@")
(($#)) || mapfile -t all < <(files)
wrong=$(look "${all[@]}")
if [[ -n $wrong ]]; then
	head -n 40 <<<"$wrong"
	echo "$(wc -l <<<"$wrong") mistakes"
	exit 1
fi
echo "${#all[@]} files"
