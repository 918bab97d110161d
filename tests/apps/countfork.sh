#!/bin/bash
# A child of fork() counts in a file of its own, also where its parent has one and could not make
# a stream: each of the parent's first mappings fails.
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer's runtime needs these mappings for itself"
MODE=both
begin_mode both
shim_env
for k in 1 2 3 4 5; do
	"$B/hostile/fault" mmap $k $k 12 env "${SHIM_ENV[@]}" "$B/apps/countfork" >"$TMP/pid" \
		2>"$TMP/fault.log"
	case $? in
	0) ;;
	77) skip "the kernel has no user notification" ;;
	*) fail "mapping $k: $(cat "$TMP/fault.log")" ;;
	esac
	say "$(<"$TMP/fault.log") (of mapping $k)"
	n=$(RDMASHIM_STAT_DIR=$STAT "$TMP/rdmastat" --json --all -p "$(<"$TMP/pid")" |
		python3 -S -E -c 'import json, sys
print(sum(p["connections"] for p in json.load(sys.stdin)["processes"]))')
	((n == 2)) || fail "mapping $k: $n ends of connections in the child's file, not 2"
done
