#!/bin/bash
# Two processes listen on one port with SO_REUSEPORT; the kernel spreads the clients over them. A
# connection lasts for some 20 ms, since on a crowded machine shorter ones are over before the two
# ends have met.
. "$(dirname "$0")/lib.sh"

job() {
	local port one two n=20 end
	free_port port
	start server "$TMP/one.log" "$B/apps/pattern" listen -R -w epoll -n 16000000 -k 1000 "$port"
	one=$PID
	start server "$TMP/two.log" "$B/apps/pattern" listen -R -w edge -n 16000000 -k 1000 "$port"
	two=$PID
	within 10 both_listen "$port" || fail "two listeners"
	client "$B/apps/pattern" connect -w poll -n 16000000 -k $n 127.0.0.1 \
		"$port" >"$TMP/client.log" || fail "client: $(cat "$TMP/client.log")"
	end=$((SECONDS + 10))
	until [[ $(cat "$TMP/one.log" "$TMP/two.log" | wc -l) == "$n" ]]; do
		((SECONDS < end)) ||
			fail "servers finished" \
			"$(wc -l <"$TMP/one.log") and $(wc -l <"$TMP/two.log") of $n"
		sleep 0.05
	done
	[[ -s $TMP/one.log && -s $TMP/two.log ]] || fail "one listener got all"
	say "listeners served $(wc -l <"$TMP/one.log") and $(wc -l <"$TMP/two.log")"
	stop "$one"
	stop "$two"
	sort "$TMP/client.log" >"$OUT"
	sort "$TMP/one.log" "$TMP/two.log" >>"$OUT"
}
both_listen() { [[ $(ss -Hltn "sport = :$1" | wc -l) == 2 ]]; }
for_modes job 1000000
