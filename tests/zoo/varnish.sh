#!/bin/bash
# Varnish in front of nginx: misses, hits, objects that pass through while they come, ranges, a body
# that goes up, many requests on one connection, wrk. Both are preloaded, and curl.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
command -v varnishd >/dev/null && command -v nginx >/dev/null || skip "no varnish or no nginx"
command -v curl >/dev/null && command -v wrk >/dev/null || skip "no curl or no wrk"
mkdir "$TMP/www" "$TMP/up"
make_file "$TMP/www/1k" 1024
make_file "$TMP/www/32m" 33554432

get() { client curl -sS --max-time 20 "$@"; }

job() {
	local behind port origin u i
	free_port behind
	free_port port
	cat >"$TMP/nginx.conf" <<-END
		worker_processes 2; daemon off; user root; pid $TMP/nginx.pid;
		events { worker_connections 500; }
		http {
			access_log off; keepalive_requests 100000;
			client_body_temp_path $TMP/up; proxy_temp_path $TMP/p;
			fastcgi_temp_path $TMP/f;
			uwsgi_temp_path $TMP/u; scgi_temp_path $TMP/s; client_max_body_size 100m;
			server {
				listen 127.0.0.1:$behind; root $TMP/www;
				location /up { return 200 "\$content_length\n"; }
				location /put {
					dav_methods PUT; create_full_put_path on; alias $TMP/up/;
				}
			}
		}
	END
	cat >"$TMP/zoo.vcl" <<-END
		vcl 4.1;
		backend default { .host = "127.0.0.1"; .port = "$behind"; }
		sub vcl_recv {
			if (req.url ~ "^/p/") { 
				set req.url = regsub(req.url, "^/p", ""); return (pass);
			}
			if (req.method == "PUT") { return (pipe); }
		}
		sub vcl_backend_response { set beresp.do_gzip = false; set beresp.ttl = 1h; }
	END
	rm -rf "$TMP/v"
	start server "$TMP/nginx.log" nginx -c "$TMP/nginx.conf" -e "$TMP/nginx-error.log"
	origin=$PID
	wait_port "$behind"
	server varnishd -j none -F -n "$TMP/v" -a "127.0.0.1:$port" -f "$TMP/zoo.vcl" \
		-s default,128m
	wait_port "$port" 30
	u=http://127.0.0.1:$port
	{
		for i in 1 2 3; do get "$u/32m" | sha256sum; done
		for i in 1 2; do get "$u/p/32m" | sha256sum; done
		get "$u/p/1k?[1-300]" | sha256sum
		web "$u" "$TMP/www/32m" "put/got.$MODE" "$TMP/up/got.$MODE"
	} >>"$OUT" 2>&1
	client wrk -t 1 -c 40 -d 2 "$u/1k" >"$TMP/wrk.log" 2>&1 || fail "wrk: $(cat "$TMP/wrk.log")"
	grep -e 'Socket errors' -e 'Non-2xx' "$TMP/wrk.log" && fail "wrk saw errors"
	grep -iE 'panic|died' "$TMP/server.log" && fail "varnish's worker died"
	stop "$SRV"
	stop "$origin"
}
zoo job "$(varnishd -V 2>&1 | sed -n 's/.*(varnish-\([0-9.]*\).*/\1/p')" \
	"hits, passes and pipes in front of nginx, curl and wrk"
