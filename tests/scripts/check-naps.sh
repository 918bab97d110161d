#!/bin/bash
# A wait in the library is for an event, with a deadline (base/event.h, base/bell.h). A fixed nap
# has a comment within the ten lines before it that says "nap", and why nobody can ring.
cd "$(dirname "$0")/../.." || exit 1
# shim/gpu: at exit, and where the kernel has failed.
found=$(grep -rnE 'SYS_(clock_)?nanosleep|\<(u|nano)?sleep\(' shim rdma policy --include=*.[ch] |
	grep -v '^shim/gpu/')
[[ -n $found ]] || { echo "no naps are found: is this the source?"; exit 1; }
bad=0
while IFS=: read -r file line text; do
	from=$((line > 10 ? line - 10 : 1))
	sed -n "$from,${line}p" "$file" | grep -qiE '(/?\*|//).*\<naps?\>' && continue
	echo "$file:$line: a nap without a reason:$text"
	bad=$((bad + 1))
done <<<"$found"
echo "$(wc -l <<<"$found") naps, $bad without a reason"
((bad == 0))
