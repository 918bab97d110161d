#!/bin/bash
# Samba: smbd's child, which changes its effective user, and smbclient: a large file down and up, a
# hundred small ones, a listing, a log-in with a password, signed and encrypted.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
((EUID == 0)) || skip "smbd changes its user, which root alone may do"
command -v smbd >/dev/null && command -v smbclient >/dev/null || skip "no samba or no smbclient"
id daemon >/dev/null 2>&1 || skip "no user daemon"

mkdir -p "$TMP/share/small" "$TMP/got"
make_file "$TMP/share/large" 40000000
for i in {1..100}; do make_file "$TMP/share/small/f$i" $((i * i * 7)); done
chown -R daemon "$TMP/share"

setup() {
	local d
	for d in lock state cache pid private ncalrpc; do mkdir -p "$TMP/s/$d"; done
	chmod 700 "$TMP/s/private"
	cat >"$TMP/smb.conf" <<-END
		[global]
		workgroup = ZOO
		server role = standalone server
		interfaces = 127.0.0.1/8
		bind interfaces only = yes
		smb ports = $1
		disable netbios = yes
		load printers = no
		disable spoolss = yes
		map to guest = bad user
		guest account = daemon
		lock directory = $TMP/s/lock
		state directory = $TMP/s/state
		cache directory = $TMP/s/cache
		pid directory = $TMP/s/pid
		private dir = $TMP/s/private
		ncalrpc dir = $TMP/s/ncalrpc
		log file = $TMP/smbd-own.log
		[share]
		path = $TMP/share
		read only = no
		guest ok = yes
	END
	for d in root daemon; do
		printf 'secret\nsecret\n' |
			smbpasswd -c "$TMP/smb.conf" -s -a $d >"$TMP/smbpasswd.log" 2>&1 ||
			fail "smbpasswd: $(cat "$TMP/smbpasswd.log")"
	done
}

# smb COMMANDS ARG...: what smbclient says, without speeds
smb() {
	local commands=$1
	shift
	(cd "$TMP/got" && client timeout 25 smbclient -s "$TMP/smb.conf" -p "$port" \
		//127.0.0.1/share "$@" -c "prompt off; $commands") >"$TMP/smbclient.log" 2>&1 ||
		fail "smbclient: status $? $(tail -n 3 "$TMP/smbclient.log")"
	grep -oE 'NT_STATUS_[A-Z_]*' "$TMP/smbclient.log"
	true
}

job() {
	local port
	free_port port
	setup "$port"
	server smbd -F -s "$TMP/smb.conf" --debug-stdout
	wait_port "$port"
	{
		# As root smbd's child keeps its user. One that became another user before the
		# connection has earned stays on TCP (docs/limits.md).
		for how in "-U guest%any" "-U root%secret" \
			"-U root%secret --client-protection=encrypt" \
			"-U daemon%secret --client-protection=sign"; do
			echo "$how"
			# shellcheck disable=SC2086
			smb "get missing; get large; put large up; cd small; mget f*; cd ..; mkdir \
d; cd d; mput f*" $how
			sum "$TMP/got/large"
			sum "$TMP/share/up"
			cat "$TMP"/got/f* | sha256sum
			cat "$TMP"/share/d/f* | sha256sum
			rm -rf "$TMP"/got/* "$TMP/share/up" "$TMP/share/d"
		done
		smb "ls small\\*" -U guest%any
		grep -c ' f[0-9]* .* [0-9]* ' "$TMP/smbclient.log"
	} >>"$OUT"
	stop "$SRV"
	grep -hE 'PANIC|INTERNAL ERROR' "$TMP"/*.log && fail "smbd panicked"
	true
}
zoo job "$(smbd -V | sed 's/Version //; s/-Debian//')" \
	"get and put of a large and 100 small files, plain, signed, encrypted"
