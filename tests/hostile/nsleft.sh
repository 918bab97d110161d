#!/bin/bash
# Names that a killed process left in cross_ns_dir: the next process of the user takes them away,
# and what it believes of what lies there is that sockets of its own user may go. Files of hostile
# contents, and things in their place, hold nobody up.
# TIMEOUT: 120
. "$(dirname "$0")/../apps/lib.sh"
. "$(dirname "$0")/netns.bash"
. "$(dirname "$0")/across.bash"
[[ -z ${SAN-} ]] || skip "Python under a sanitizer is slow"
networks_for "$(dirname "$0")/across.py"

names() { find "$DIR" -name 'shim1n.*' -printf '%f\n' | sort; }
lists() { find "$DIR" -name 'shim1j.*' -printf '%f\n' | sort; }
some_names() { [[ -n $(names) ]]; }
# A server that looks for a client's library where there is none: its name is there for seconds.
searching() {
	begin_mode "$1"
	across 'earn_share off' 'earn_bytes 100' 'discovery 4s'
	serves shim python3 "$TMP/across.py" server 0.0.0.0 "$port" word
	rm -f "$TMP/go"
	start none "$TMP/client.log" nsenter -t "$N_A" -n python3 "$TMP/across.py" client \
		10.77.0.3 "$port" word "$TMP/go"
	client=$PID
}
over() {
	kill -KILL "$client" "$server" 2>/dev/null
	wait "$client" "$server" 2>/dev/null
}
kill_one() {
	searching "$1"
	within 10 some_names || fail "no name is made"
	over
}

kill_one killed
left=$(names)
list=$(lists)
say "a killed process leaves: $left, $list"
[[ -n $left && -n $list ]] || fail "nothing was left, or nothing was written down"

# Hostile: what it says names a file that is none of ours, and a socket of another user.
python3 - "$DIR" "$DIR/$list" <<'E2'
import os, socket, sys
d, path = sys.argv[1:]
with open(path, "ab") as f:
    for i, word in enumerate((b"\xaa", b"\xbb", b"\xcc")):
        name = f"{d}/shim1n.{(word * 16).hex()}"
        f.write(word * 16)
        if i == 0:
            open(name, "w").close()
        elif i == 1:
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(name)
            os.chown(name, 31337, 31337)
    f.write(os.urandom(100000))
E2
gone_are() { ! grep -qxF "$left" <<<"$(names)"; }
searching next
within 10 gone_are || fail "still there: $(names)"
grep -q 'of a process that was killed' "$TMP/shim.next" || fail "not said"
for word in aa bb; do
	[[ -e $DIR/shim1n.$(printf "$word%.0s" {1..16}) ]] || fail "another's $word was taken away"
done
over
find "$DIR" -mindepth 1 -delete

# Things in its place.
for thing in fifo link directory locked; do
	rm -rf "${DIR:?}/$list"
	case $thing in
	fifo) mkfifo "$DIR/$list" ;;
	link) echo mine >"$TMP/mine"; ln -s "$TMP/mine" "$DIR/$list" ;;
	directory) mkdir "$DIR/$list" ;;
	locked) (umask 077 && : >"$DIR/$list"); exec 5<"$DIR/$list"; flock -x 5 ;;
	esac
	kill_one "$thing"
	[[ $thing != link || $(cat "$TMP/mine") == mine ]] || fail "written through the link"
	(($(lists | wc -l) == 2)) || fail "$thing: $(lists)"
	find "$DIR" -mindepth 1 ! -name "$list" -delete
done
exec 5<&-
exit 0
