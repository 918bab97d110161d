#!/bin/bash
# What a reader can hold: no file of code above 700 lines, no C function above 80 (from its head to
# its closing brace).
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1

files() {
	if [[ -e .git ]]; then
		git ls-files -c -o --exclude-standard
	else
		find . -path ./build -prune -o -type f -printf '%P\n'
	fi | grep -E '(\.(c|h|def|py|sh|mk|pml)|Makefile)$' |
		while IFS= read -r f; do [[ -f $f ]] && echo "$f"; done
}

mapfile -t all < <(files)
((${#all[@]} > 500)) || { echo "only ${#all[@]} files found"; exit 1; }
bad=$(awk '
	FNR == 1 { file(); name = FILENAME; head = open = 0; c = name ~ /\.[ch]$/ }
	{ lines = FNR }
	!c { next }
	/^[^ \t#}\/{]/ && !open { head = FNR; what = $0 }	# the last that begins something
	/^{/ { open = 1 }
	/^}/ {
		if (open && FNR - head + 1 > 80)
			printf "%s:%d: %d lines: %s\n", name, head, FNR - head + 1, what
		open = 0
	}
	function file() { if (lines > 700) printf "%s: %d lines\n", name, lines }
	END { file() }' "${all[@]}")
[[ -z $bad ]] && { echo "${#all[@]} files"; exit; }
echo "$bad"
exit 1
