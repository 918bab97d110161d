#!/bin/bash
# The packages of deps.sh: none is named with a version, which is another one in the next Debian
# (there are packages for the default one; of a library the one with its headers); and where apt has
# lists, each is in them.
cd "$(dirname "$0")/../.." || exit 1
rc=0
mapfile -t names < <(sed -n '/^build=/,/^case/p' tests/scripts/deps.sh | grep -v '^#' |
	grep -oE ':[a-z][a-z0-9.+-]*( |"|$)' | tr -d ': "' | sort -u)
((${#names[@]} > 50)) || { echo "only ${#names[@]} packages were found in deps.sh"; exit 1; }
# One question for all: each takes apt a while.
known=" $(apt-cache --no-all-versions show "${names[@]}" bash 2>/dev/null |
	sed -n 's/^Package: //p' | tr '\n' ' ') "
for name in "${names[@]}"; do
	if [[ $name =~ -[0-9]+(\.[0-9]+)*(-|$) || $name =~ ^lib.*[0-9]$ ]]; then
		echo "$name: a version that the next Debian will not have"
		rc=1
	elif [[ $known == *" bash "* && $known != *" $name "* ]]; then
		echo "$name: no such package in $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release)"
		rc=1
	fi
done
exit $rc
