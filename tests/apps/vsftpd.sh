#!/bin/bash
# vsftpd and lftp, active and passive: logins, a file down, the same one up, a listing. vsftpd makes
# a child by clone() for each connection, which changes its groups and its user.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
((EUID == 0)) || skip "vsftpd's sessions change their user, which root alone may do"
command -v vsftpd >/dev/null && command -v lftp >/dev/null || skip "no vsftpd or no lftp"
# its home is a directory, which vsftpd wants
id daemon >/dev/null 2>&1 || skip "no user daemon"

mkdir -p "$TMP/empty" "$TMP/ftp/in" && chown daemon "$TMP/ftp/in" || fail "directories"
make_file "$TMP/ftp/file" 5000000
export HOME=$TMP

# login PORT PASSIVE: what lftp says to everything that a session has, without dates.
login() {
	local name=$MODE.$2
	client timeout 40 lftp \
		-c "set net:max-retries 1; set net:timeout 10; set ftp:passive-mode $2
		set ftp:use-feat false; open ftp://127.0.0.1:$1
		get file -o $TMP/got.$name; put $TMP/got.$name -o in/up.$name; cls -1 /" 2>&1 ||
		return
	sum "$TMP/got.$name"
	sum "$TMP/ftp/in/up.$name"
	rm -f "$TMP/got.$name" "$TMP/ftp/in/up.$name"
}

job() {
	local port i passive
	policy 'earn_bytes 0' 'earn_rounds 0'
	free_port port
	cat >"$TMP/vsftpd.conf" <<-END
		listen=YES
		listen_address=127.0.0.1
		listen_port=$port
		background=NO
		anonymous_enable=YES
		no_anon_password=YES
		ftp_username=daemon
		anon_root=$TMP/ftp
		anon_upload_enable=YES
		anon_umask=022
		write_enable=YES
		secure_chroot_dir=$TMP/empty
		connect_from_port_20=NO
		xferlog_enable=NO
	END
	server vsftpd "$TMP/vsftpd.conf"
	wait_port "$port"
	for i in 1 2 3 4 5; do
		for passive in true false; do
			login "$port" $passive >>"$OUT" ||
				fail "login $i, passive $passive: status $?: $(tail -n 3 "$OUT")"
		done
	done
	stop "$SRV"
}
for_modes job none
