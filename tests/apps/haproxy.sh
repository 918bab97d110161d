#!/bin/bash
# haproxy (splicing off and on) between curl and nginx: large and small files, uploads, 200
# requests on one connection. The server's end is haproxy and nginx together.
# TIMEOUT: 90
. "$(dirname "$0")/lib.sh"
command -v haproxy >/dev/null && command -v nginx >/dev/null || skip "no haproxy or no nginx"
mkdir "$TMP/www"
make_file "$TMP/www/1k" 1024
make_file "$TMP/www/20m" 20000000

job() {
	local port front splice
	free_port port
	start_nginx "$port" 1 <<<"server { listen 127.0.0.1:$port; root $TMP/www; }"
	for splice in "" "option splice-auto"; do
		free_port front
		cat >"$TMP/haproxy.cfg" <<-END
		global
			maxconn 200
		defaults
			mode http
			timeout client 30s
			timeout server 30s
			timeout connect 5s
			http-reuse always
			$splice
		listen front
			bind 127.0.0.1:$front
			server one 127.0.0.1:$port
		END
		start server "$TMP/haproxy.log" haproxy -db -f "$TMP/haproxy.cfg"
		wait_port "$front"
		{
			client curl -sS --max-time 40 "http://127.0.0.1:$front/20m" | sha256sum
			client curl -sS --max-time 40 "http://127.0.0.1:$front/1k?[1-200]" |
				sha256sum
			client curl -sS --max-time 40 -T "$TMP/www/1k" -o /dev/null \
				-w '%{http_code}\n' "http://127.0.0.1:$front/1k"
		} >>"$OUT"
		kill "$PID"
		wait "$PID" 2>/dev/null
	done
	stop "$SRV"
}
# With only the server preloaded haproxy and nginx hold both ends of a connection: its bytes are
# fast, rightly.
all=$MODES
MODES=${all/ server/} for_modes job 100000
[[ $all != *server* ]] || MODES=server for_modes job none
