#!/bin/bash
# nginx with two workers: curl of small and large files and ranges, wrk; then as a proxy in front
# of itself.
# TIMEOUT: 180
. "$(dirname "$0")/lib.sh"
mkdir "$TMP/www"
make_file "$TMP/www/1k" 1024
make_file "$TMP/www/64m" 67108864

begin() {
	start_nginx "$port" 2 <<-END
	sendfile ${1};
	keepalive_requests 100000;
	server {
		listen 127.0.0.1:$port reuseport;
		root $TMP/www;
		location /proxied/ { proxy_pass http://127.0.0.1:$port/;
			proxy_http_version 1.1; proxy_buffering off; }
	}
	END
}

get() { client curl -sS --max-time 60 "$@"; }

job() {
	local port u i sendfile
	for sendfile in on off; do
		free_port port
		begin $sendfile
		u=http://127.0.0.1:$port
		{
			for i in 1 2; do get "$u/64m" | sha256sum; done
			get -r 1000000-2000000 "$u/64m" | sha256sum
			# 200 requests on one connection
			get "$u/1k?[1-200]" | sha256sum
			get -o /dev/null -w '%{http_code}\n' "$u/missing"
			get -I "$u/1k" | grep -i content-length
			get -s -Z --no-progress-meter "$u/1k?[1-50]" -o /dev/null \
				-w '%{http_code} %{size_download}\n' | sort | uniq -c
		} >>"$OUT"
		client wrk -t 1 -c 40 -d 2 "$u/1k" >"$TMP/wrk.log" 2>&1 ||
			fail "wrk: $(cat "$TMP/wrk.log")"
		grep -e 'Socket errors' -e 'Non-2xx' "$TMP/wrk.log" && fail "wrk saw errors"
		say "sendfile $sendfile, wrk:" \
			"$(awk '/Requests\/sec/ { print $2 }' "$TMP/wrk.log") requests/s"
		stop "$SRV"
	done
	[[ -s $TMP/nginx-error.log ]] && grep -v 'open()' "$TMP/nginx-error.log" &&
		fail "nginx logged errors"
	true
}

# nginx as a proxy in front of itself: it holds both ends of a connection, fast bytes are right
# with only the server preloaded.
job_proxy() {
	local port
	free_port port
	begin on
	{
		get "http://127.0.0.1:$port/proxied/64m" | sha256sum
		get "http://127.0.0.1:$port/proxied/1k?[1-200]" | sha256sum
		get -T "$TMP/www/1k" -o /dev/null -w '%{http_code}\n' \
			"http://127.0.0.1:$port/proxied/1k"
	} >>"$OUT"
	stop "$SRV"
}

for_modes job 10000000
all=$MODES
rm -rf "$TMP"/out.* "$TMP"/stat.*
# Unbuffered, the proxy reads no faster than curl takes it: a direction may overflow to TCP, so
# only a part is asked for.
MODES=${all/ server/} for_modes job_proxy 1000000
[[ $all != *server* ]] || MODES=server for_modes job_proxy none
