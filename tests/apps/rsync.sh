#!/bin/bash
# An rsync daemon (a process per connection, which drops its privileges): a tree down and up,
# changed and sent again. The connection is shared by two processes at each end (a receiver and a
# generator, a daemon and its child), so it stays on TCP: what counts is that it works.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2034 # lib.sh: races()
SPOILS_ERRNO=1
command -v rsync >/dev/null || skip "no rsync"
mkdir "$TMP/tree"
make_file "$TMP/tree/big" 30000000
for i in {1..200}; do echo "file $i of a tree" >"$TMP/tree/f$i"; done
tree_sum() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }

job() {
	local port a=$TMP/a.$MODE b=$TMP/b.$MODE
	free_port port
	mkdir "$a" "$b"
	cat >"$TMP/rsyncd.conf" <<-END
	use chroot = no
	uid = $(id -u)
	gid = $(id -g)
	pid file = $TMP/rsyncd.pid
	[tree]
	path = $TMP/tree
	[up]
	path = $b
	read only = no
	END
	rm -f "$TMP/rsyncd.pid"
	server rsync --daemon --no-detach --port "$port" --address 127.0.0.1 \
		--config "$TMP/rsyncd.conf"
	wait_port "$port"
	client timeout 60 rsync -a --no-whole-file "rsync://127.0.0.1:$port/tree/" \
		"$a/" >"$TMP/client.log" 2>&1 || fail "down: $(cat "$TMP/client.log")"
	tree_sum "$a" >>"$OUT"
	client timeout 60 rsync -a "$a/" "rsync://127.0.0.1:$port/up/" >"$TMP/client.log" 2>&1 ||
		fail "up: $(cat "$TMP/client.log")"
	tree_sum "$b" >>"$OUT"
	printf 'changed' | dd of="$a/big" bs=1 seek=15000000 conv=notrunc 2>/dev/null
	client timeout 60 rsync -a -c "$a/" "rsync://127.0.0.1:$port/up/" >"$TMP/client.log" 2>&1 ||
		fail "again: $(cat "$TMP/client.log")"
	tree_sum "$b" >>"$OUT"
	stop "$SRV"
	rm -r "$a" "$b"
}
for_modes job none
