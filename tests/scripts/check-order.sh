#!/bin/bash
# The order of memory accesses, on machines that keep little of it: the protocols of the shared
# memory as litmus tests (tests/litmus), tried by herd7 in all executions that RC11 permits; without
# its axiom against values out of thin air, so that a load may also come after a later store. What
# a test calls bad must never be. With any one of its orders taken away it must be, so each is
# needed. And the orders are those of the sources: code.txt names them.
# TIMEOUT: 400
. "$(dirname "$0")/../apps/lib.sh"
L=$TOP/tests/litmus
# NAME FILE, and below it, behind a tab, what is in the file
while IFS= read -r text; do
	if [[ $text != $'\t'* ]]; then
		read -r name file <<<"$text"
		[[ -e $L/$name.litmus ]] || fail "code.txt: no $name.litmus"
	else
		text=${text#$'\t'}
		grep -qF -- "$text" "$TOP/$file" || fail "$name: not in $file any more: $text"
	fi
done <"$L/code.txt"
for f in "$L"/*.litmus; do
	f=${f##*/}
	grep -q "^${f%.litmus} " "$L/code.txt" || fail "code.txt: nothing of $f"
done

if command -v herd7 >/dev/null; then
	herd=(herd7)
	lib=$(herd7 -libdir)
else
	said=$("$TOP/tests/scripts/newer-libc.sh" sid "$B/herd" herdtools7) || skip "$said"
	R=$B/herd/root/usr
	lib=$R/share/herdtools7/herd
	herd=("$R/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path \
		"$R/lib/x86_64-linux-gnu" "$R/bin/herd7" -set-libdir "$lib")
fi
grep -q 'no-thin-air' "$lib/rc11.cat" || fail "rc11.cat is another"
sed '/no-thin-air/d' "$lib/rc11.cat" >"$TMP/weak.cat"

# weaker FILE: mutants of it, $TMP/m/NAME.N.litmus, each without one of its orders.
weaker() {
	awk -v out="$TMP/m/$(basename "$1" .litmus)" '
	function order(s) {
		return match(s, orders)
	}
	BEGIN {
		orders = "atomic_thread_fence\\([a-z_]*\\);|memory_order_(acquire|" \
			"release|seq_cst)|SWP[AL]|DMB ISHLD"
	}
	{ line[NR] = $0 }
	END {
		for (i = 1; i <= NR; i++) {
			at = 0
			while (order(substr(line[i], at + 1))) {
				n++
				from = at + RSTART
				what = substr(line[i], from, RLENGTH)
				at = from + RLENGTH - 1
				to = what ~ /^SWP/ ? "SWP" : what ~ /^DMB/ ? "NOP" : \
					what ~ /^atomic/ ? "" : "memory_order_relaxed"
				file = out "." n ".litmus"
				for (j = 1; j <= NR; j++)
					print(j == i ? substr(line[i], 1, from - 1) to \
						substr(line[i], at + 1) : line[j]) >file
				close(file)
			}
		}
		print n + 0
	}' "$1"
}
# observed FILE...: a line for each: Never, Sometimes, Always
observed() {
	local f model
	for f in "$@"; do
		model=("$TMP/weak.cat")
		read -r kind _ <"$f"
		[[ $kind == C ]] || model=("$lib/aarch64.cat")
		timeout 60 "${herd[@]}" -model "${model[0]}" "$f" 2>"$TMP/err" |
			sed -n 's/^Observation [^ ]* \([A-Za-z]*\) .*/\1/p'
		[[ ! -s $TMP/err ]] || echo "$f: $(<"$TMP/err")"
	done
}

mkdir "$TMP/m"
tests=0 mutants=0
for f in "$L"/*.litmus; do
	name=$(basename "$f" .litmus)
	said=$(observed "$f")
	[[ $said == Never ]] || fail "$name: what must not be is seen: $said"
	tests=$((tests + 1))
	n=$(weaker "$f")
	((n)) || fail "$name: no order in it"
	for ((i = 1; i <= n; i++)); do
		said=$(observed "$TMP/m/$name.$i.litmus")
		[[ $said == Sometimes ]] || fail "$name: without its order $i: $said" \
			"$(diff "$f" "$TMP/m/$name.$i.litmus")"
		mutants=$((mutants + 1))
	done
done
say "$tests protocols hold; each of their $mutants orders is needed"
