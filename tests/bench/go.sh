#!/bin/bash
# go.sh [N]: programs of Go with `go on`, both ends preloaded, and without the library: N rounds
# (default 5), in turn, medians, as ratios to TCP. For a round trip and for CPU below 1 is better,
# for requests above. SECS (default 2) per figure. With FLOORS=1 a ratio that misses its bound ends
# with 1: round trips 0.6, server's CPU 0.75, requests 1.
. "$(dirname "$0")/../apps/lib.sh"
. "$(dirname "$0")/../apps/golang.bash"
N=${1:-5}
[[ $N =~ ^[1-9][0-9]*$ ]] || { echo "usage: go.sh [N]" >&2; exit 2; }
[[ -n $SHIM ]] || skip "no library (SHIM=)"
SECS=${SECS:-2}
policy 'go on'
build_go "$TMP/goecho" "$TOP/tests/bench/goecho.go"
: >"$TMP/figures"
# figure NAME VALUE BOUND: of this mode; BOUND as "<0.6" or ">1"
figure() { echo "$MODE $1 $2 $3" >>"$TMP/figures"; }

echo_of() {	# SIZE CONNS
	local port rtt rate
	free_port port
	server "$TMP/goecho" server "$port"
	wait_port "$port"
	read -r rtt rate < <(client "$TMP/goecho" client "$port" "$1" "$SECS" "$2") ||
		fail "goecho: $(cat "$TMP/server.log")"
	finish "$SRV" 10 || fail "server: $(cat "$TMP/server.log")"
	(($2 > 1)) || figure "echo_$1_rtt_us" "$rtt" '<0.6'
	(($2 == 1)) || figure "echo_$1x$2_per_s" "$rate" '>1'
	figure "echo_$1x$2_server_cpu_us" "$(<"$TMP/server.log")" '<0.75'
}

ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
web() {	# NAME PORT PATH PID: requests a second, CPU of the server for each
	local before rate
	before=$(ticks "$4")
	client wrk -t1 -c16 -d"${SECS}s" "http://127.0.0.1:$2$3" >"$TMP/client.log" 2>&1 ||
		fail "wrk: $(cat "$TMP/client.log")"
	grep -qE 'Non-2xx|Socket errors' "$TMP/client.log" && fail "$1: $(cat "$TMP/client.log")"
	rate=$(awk '$1 == "Requests/sec:" { print $2 }' "$TMP/client.log")
	figure "$1_per_s" "$rate" '>1'
	figure "$1_server_cpu_us" "$(awk -v a="$before" -v b="$(ticks "$4")" -v r="$rate" \
		-v s="$SECS" 'BEGIN { printf "%.2f", (b - a) * 10000 / (r * s) }')" '<0.75'
}
caddy_runs() {
	local files proxy
	free_port files
	free_port proxy
	printf '{\nadmin off\nauto_https off\n}\n:%s {\nroot * %s\nfile_server\n}\n:%s {\n%s\n}\n' \
		"$files" "$TMP/www" "$proxy" "reverse_proxy 127.0.0.1:$files" >"$TMP/Caddyfile"
	server env HOME="$TMP" caddy run --config "$TMP/Caddyfile" --adapter caddyfile
	wait_port "$proxy"
	web caddy_1k "$files" /1k "$SRV"
	web caddy_100k "$files" /100k "$SRV"
	web caddy_proxy_1k "$proxy" /1k "$SRV"
	stop "$SRV"
}
mkdir "$TMP/www"
make_file "$TMP/www/1k" 1024
make_file "$TMP/www/100k" 102400
for ((i = 0; i < N; i++)); do
	for m in bare both; do
		begin_mode "$m"
		echo_of 64 1
		echo_of 64 16
		echo_of 65536 1
		command -v caddy >/dev/null && command -v wrk >/dev/null && caddy_runs
	done
done
python3 - "$TMP/figures" "${FLOORS-}" <<'END'
import collections, statistics, sys
got, order = collections.defaultdict(list), []
for line in open(sys.argv[1]):
    mode, name, value, bound = line.split()
    got[mode, name].append(float(value))
    if (name, bound) not in order:
        order.append((name, bound))
bad = 0
print(f"{'':28} {'TCP':>10} {'library':>10} {'ratio':>7}  bound")
for name, bound in order:
    tcp, lib = (statistics.median(got[m, name]) for m in ("bare", "both"))
    ratio = lib / tcp if tcp else 0
    missed = ratio > float(bound[1:]) if bound[0] == "<" else ratio < float(bound[1:])
    bad |= missed
    print(f"{name:28} {tcp:10.2f} {lib:10.2f} {ratio:7.2f}  {bound}{' missed' if missed else ''}")
sys.exit(1 if bad and sys.argv[2] else 0)
END
