#!/bin/bash
# Anybody may keep the kernel's lock of a directory in which he may make files, as /dev/shm, by
# memory that never comes (stat_locked.py). A program whose own directory of counters is there
# already starts all the same, and counts.
# TIMEOUT: 60
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
((EUID == 0)) || skip "not root: the kernel lets no one else wait for its own touches"
mkdir -m 1777 "$TMP/shm"
mkdir -m 700 "$TMP/shm/own"
echo x >"$TMP/shm/his"
cat >"$TMP/program.py" <<'END'
import os, socket, sys
socket.socket().close()
sys.exit(not os.path.exists(f"{sys.argv[1]}/{os.getpid()}"))
END
timeout -s KILL 30 python3 -S -E "$TOP/tests/hostile/stat_locked.py" directory "$TMP/shm/his" \
	env LD_PRELOAD="$SHIM" RDMASHIM_STAT_DIR="$TMP/shm/own" \
	python3 -S -E "$TMP/program.py" "$TMP/shm/own"
rc=$?
((rc == 77)) && skip "no userfaultfd"
((rc == 0)) || fail "a program with a directory of its own does not get on, or does not count: $rc"
exit 0
