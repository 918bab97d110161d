#!/bin/bash
# ssh to a private sshd: its processes fork, exec themselves with the connection inherited, drop
# their privileges and put themselves behind seccomp filters. A command, 20 MB each way, many
# small lines, scp, a forwarded port. No minimum of fast bytes: sshd gets its connection as
# descriptor 0 across an exec. What counts is that it works.
. "$(dirname "$0")/lib.sh"
sshd=$(command -v sshd) || skip "no sshd"
make_file "$TMP/file" 20000000
# sshd wants nobody else to be able to write; the library is read as root or as ourselves
chmod 700 "$TMP"
((EUID == 0)) && mkdir -p -m 755 /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$TMP/host" && ssh-keygen -q -t ed25519 -N '' -f "$TMP/key" ||
	fail "ssh-keygen"
cp "$TMP/key.pub" "$TMP/authorized"

copy() { client timeout 60 scp -q -F none -i "$TMP/key" -P "$port" \
	-o BatchMode=yes -o StrictHostKeyChecking=no \
	-o UserKnownHostsFile="$TMP/known" -o LogLevel=ERROR "$@"; }
go_cmd() { local cmd=$1; shift; client timeout 60 ssh -F none -i "$TMP/key" -p "$port" \
	-o BatchMode=yes -o StrictHostKeyChecking=no \
	-o UserKnownHostsFile="$TMP/known" -o LogLevel=ERROR "$@" 127.0.0.1 "$cmd"; }

job() {
	local port port2 port3
	free_port port
	rm -f "$TMP/known"
	cat >"$TMP/sshd_config" <<-END
	Port $port
	ListenAddress 127.0.0.1
	HostKey $TMP/host
	AuthorizedKeysFile $TMP/authorized
	PidFile $TMP/sshd.pid
	StrictModes no
	UsePAM no
	PermitRootLogin yes
	PasswordAuthentication no
	KbdInteractiveAuthentication no
	LogLevel INFO
	Subsystem sftp internal-sftp
	END
	server "$sshd" -D -e -f "$TMP/sshd_config"
	wait_port "$port"
	if ! go_cmd true </dev/null 2>"$TMP/client.log"; then
		[[ $MODE == bare ]] &&
			skip "sshd lets nobody in here: $(tail -n 1 "$TMP/client.log")"
		fail "no login: $(cat "$TMP/client.log")"
	fi
	# shellcheck disable=SC2094  # `fail` shows what was said so far
	{
		go_cmd 'echo hello from $((6 * 7))' </dev/null
		go_cmd 'sha256sum' <"$TMP/file"
		go_cmd "cat $TMP/file" </dev/null | sha256sum
		go_cmd cat <"$TMP/file" | sha256sum
		go_cmd 'while read -r l; do echo "<$l>"; done' < <(seq 1 2000) | sha256sum
		go_cmd 'exit 42' </dev/null
		echo "status $?"
		go_cmd "cat $TMP/file" -C </dev/null | sha256sum
		copy "$TMP/file" "127.0.0.1:$TMP/there" </dev/null ||
			fail "scp there: $(cat "$TMP/client.log")"
		sum "$TMP/there"
		copy "127.0.0.1:$TMP/file" "$TMP/here" </dev/null ||
			fail "scp here: $(cat "$TMP/client.log")"
		sum "$TMP/here"
		rm -f "$TMP/there" "$TMP/here"
	} >>"$OUT" 2>"$TMP/client.log"

	# A port forwarded through the connection.
	free_port port2
	free_port port3
	start none "$TMP/sink.log" "$B/apps/pattern" listen -w poll "$port2"
	local sink=$PID
	wait_port "$port2"
	start client "$TMP/forward.log" ssh -F none -i "$TMP/key" -p "$port" \
		-o BatchMode=yes -o StrictHostKeyChecking=no \
		-o UserKnownHostsFile="$TMP/known" -o ExitOnForwardFailure=yes -N -L \
		"127.0.0.1:$port3:127.0.0.1:$port2" 127.0.0.1
	local forward=$PID
	wait_port "$port3"
	timeout 30 "$B/apps/pattern" connect -w poll 127.0.0.1 "$port3" >>"$OUT" ||
		fail "through the forwarded port"
	finish "$sink" 10 || fail "behind the forwarded port"
	stop "$forward"
	stop "$SRV"
}

for_modes job none
for m in $MODES; do
	[[ $m == bare ]] && continue
	begin_mode "$m"
	collect
	((CONNS > 0)) || fail "the library saw no connection"
	say "$CONNS ends of connections, $FAST bytes on a fast path, on TCP because: $REASONS"
	[[ $m == both ]] || ((FAST == 0)) || fail "fast bytes with only the $m preloaded"
done
