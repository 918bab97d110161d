#!/bin/bash
# X11 over TCP: Xvfb, and clients that ask much (xdpyinfo), draw, read the screen back (xwd), and
# send and fetch images and requests by thousands (x11perf).
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
for p in Xvfb xdpyinfo xwd xlogo x11perf; do command -v $p >/dev/null || skip "no $p"; done
export HOME=$TMP

job() {
	local n logo blank
	n=$((100 + RANDOM % 800))
	while [[ -n $(ss -Htan "sport = :$((6000 + n))") || -e /tmp/.X$n-lock ]]; do
		n=$((n + 1))
	done
	server Xvfb ":$n" -listen tcp -nolisten unix -nolisten local -ac -screen 0 1600x1200x24 \
		-noreset
	wait_port $((6000 + n)) 20
	export DISPLAY=127.0.0.1:$n
	client timeout 20 xdpyinfo -ext all 2>/dev/null | grep -v '^name of display' |
		sha256sum >>"$OUT"
	blank=$(screen)
	start client "$TMP/xlogo.log" xlogo -geometry 800x600+100+50
	logo=$PID
	within 10 drawn || fail "xlogo does not draw: $(cat "$TMP/xlogo.log")"
	{
		for _ in 1 2 3 4 5; do client timeout 20 xwd -root -silent | pixels; done
		client timeout 20 xwd -root -silent -xy | pixels
	} >>"$OUT" 2>&1
	client timeout 40 x11perf -repeat 1 -reps 60 -putimage500 -getimage500 -noop -pointer \
		-prop \
		-rect100 >"$TMP/x11perf.log" 2>&1 ||
		fail "x11perf: $(tail -n 5 "$TMP/x11perf.log")"
	client timeout 20 xwd -root -silent | pixels >>"$OUT"
	grep -iE 'error|broken' "$TMP/x11perf.log" "$TMP/xlogo.log" && fail "a client says so"
	stop "$logo"
	stop "$SRV"
}
# Without the header: its colours have a byte that xwd writes as it finds it in its memory.
pixels() { tail -c +4000 | sha256sum; }
screen() { xwd -root -silent 2>/dev/null | pixels; }
# The picture is whole: bare, when it has not changed for ten looks; else when it is as it was
# there.
drawn() {
	local now i
	now=$(screen)
	[[ $now != "$blank" ]] || return
	[[ $MODE == bare || ! -s $TMP/picture ]] || { [[ $now == "$(<"$TMP/picture")" ]]; return; }
	for i in {1..10}; do
		sleep 0.1
		[[ $(screen) == "$now" ]] || return
	done
	echo "$now" >"$TMP/picture"
}
version=$(dpkg-query -W -f '${Version}' xvfb 2>/dev/null | sed 's/^[0-9]*://; s/-.*//')
zoo job "$version" "xdpyinfo, xlogo, the screen read back by xwd, x11perf"
