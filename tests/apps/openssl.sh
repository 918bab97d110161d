#!/bin/bash
# TLS in the program: openssl s_server serves files to s_client, also through nginx and curl when
# those are there.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
command -v openssl >/dev/null || skip "no openssl"
mkdir "$TMP/www"
make_file "$TMP/www/20m" 20000000
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout "$TMP/key.pem" \
	-out "$TMP/cert.pem" 2>/dev/null || fail "openssl req"

job() {
	local port i
	free_port port
	cd "$TMP/www" || exit 1
	server openssl s_server -accept "127.0.0.1:$port" -cert "$TMP/cert.pem" \
		-key "$TMP/key.pem" -WWW -quiet
	cd "$TOP" || exit 1
	wait_port "$port"
	# one of a few hundredths of a second may meet a reader that is late, and be over on TCP
	for i in 1 2 3 4 5 6; do
		printf 'GET /20m HTTP/1.0\r\n\r\n' |
			client timeout 30 openssl s_client -connect "127.0.0.1:$port" \
			-quiet -ign_eof 2>"$TMP/client.log" |
			sha256sum >>"$OUT"
	done
	stop "$SRV"
}
for_modes job 100000	# how soon is the machine's business
