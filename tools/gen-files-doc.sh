#!/bin/bash
# gen-files-doc.sh - docs/files.md from the heads of the sources, to stdout. A head is
# "NAME - what it is", in the first comment; the first sentence is taken, from the header where the
# .c file says "see". A file without such a head is an error.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

cat <<'END'
# The source files

Made by `tools/gen-files-doc.sh` from the heads of the files; do not edit. What the folders may use
of each other is in [architecture.md](architecture.md#arrows).
END

# The first sentence of what FILE says of itself. A table (.def) may begin with its rows' form.
head_of() {
	awk -v name="${1##*/}" '
		function say(s) {
			sub(/ *\*\/.*/, "", s)
			if (match(s, /(\. |\.$|;|: )/))
				s = substr(s, 1, RSTART - 1)
			gsub(/\|/, "\\|", s)
			print s
			exit
		}
		BEGIN { form = name " - "; table = name ~ /\.def$/ }
		text == "" && (i = index($0, form)) { text = substr($0, i + length(form)) }
		text == "" && table && /^\/\* [A-Z]+\(.*\) - / {
			text = $0
			sub(/.*\) - /, "", text)
		}
		text == "" { if (FNR > 30) exit; next }
		again && /^ \*( *$|\/)/ { say(text) }
		again { sub(/^ *\* */, ""); text = text " " $0 }
		/\*\// { say(text) }
		{ again = 1 }' "$1"
}

folder='' bad=0
while read -r stem; do
	if [[ ${stem%/*} != "$folder" ]]; then
		folder=${stem%/*}
		role=''
		[[ -e $folder/README.md ]] && role=$(sed -n '1s/^# [^:]*//p' "$folder/README.md")
		printf '\n## %s%s\n\n| file | what it is |\n| --- | --- |\n' "$folder" "$role"
	fi
	text='' kinds=''
	for k in c h def; do
		[[ -e $stem.$k ]] || continue
		kinds+=${kinds:+, }.$k
		said=$(head_of "$stem.$k")
		if [[ -z $said ]]; then
			echo "$stem.$k: no '${stem##*/}.$k - what it is' in its head" >&2
			bad=1
		fi
		[[ -z $text || $text == "see "* ]] && text=$said
	done
	echo "| \`${stem##*/}\` $kinds | $text |"
done < <(find shim rdma policy tools -name '*.[ch]' -o -name '*.def' |
	sed 's/\.[^.]*$//; s|\(.*\)/|\1 |' | sort -u | tr ' ' /)
exit $bad
