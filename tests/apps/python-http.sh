#!/bin/bash
# Python's http.server (a thread per connection, shutil.copyfileobj and sendfile-less) with curl
# and with urllib.
. "$(dirname "$0")/lib.sh"
mkdir "$TMP/www"
make_file "$TMP/www/64m" 67108864
for i in 1 2 3; do make_file "$TMP/www/small$i" $((i * 1000)); done

job() {
	local port u
	free_port port
	u=http://127.0.0.1:$port
	server python3 -u -m http.server --bind 127.0.0.1 --directory "$TMP/www" \
		--protocol HTTP/1.1 "$port"
	wait_port "$port"
	{
		client curl -sS --max-time 60 "$u/64m" | sha256sum
		client curl -sS --max-time 60 "$u/64m" "$u/small1" "$u/small2" "$u/small3" |
			sha256sum
		client curl -sS --max-time 60 "$u/" | sed "s/$port/PORT/"
		client curl -sS --max-time 60 -o /dev/null -w '%{http_code}\n' "$u/missing"
		client timeout 60 python3 -c '
import hashlib, sys, urllib.request
print(hashlib.sha256(urllib.request.urlopen(sys.argv[1], timeout=30).read()).hexdigest())' "$u/64m"
	} >>"$OUT" 2>&1
	[[ $(grep -c "$(sum "$TMP/www/64m")" "$OUT") == 2 ]] || fail "wrong content: $(cat "$OUT")"
	# http.server has no orderly end; a Python program dies of SIGTERM
	stop "$SRV"
}
for_modes job 10000000
