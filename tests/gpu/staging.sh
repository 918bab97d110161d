#!/bin/bash
# rdmastat staging: what a pipe's call sites show, those of a program that copies but sends
# nothing of it, and those of one whose peer cannot map device memory. All bytes of a copy are
# either taken or have a reason.
# TIMEOUT: 60
. "$(dirname "$0")/lib.sh"
export STANDIN_DELAY=20
policy "device eager" "device_memory 32M" "earn_bytes 0" "overflow 10s" "log_level 3"

# sites PYTHON: true of the list s; at(way) is the largest site of a direction, why(site) its
# reasons with bytes.
sites() {
	RDMASHIM_STAT_DIR=$STAT "$B/rdmastat" staging --json --all >"$TMP/staging.$MODE.json" ||
		fail "rdmastat staging"
	python3 -S -E -c 'import json, sys
s = [x for x in json.load(open(sys.argv[1]))["staging"] if x["call_site"][0] != "("]
at = lambda way: next((x for x in s if x["direction"] == way), None)
why = lambda x: {w["reason"]: w["bytes"] for w in x["why_not"]}
for x in s:
	assert x["bytes"] and x["taken"] + sum(why(x).values()) <= x["bytes"] * 1.01, x
assert eval(sys.argv[2]), s' "$TMP/staging.$MODE.json" "$1" || fail "not so: $1"
}

pipe() { gated "$@" || fail "$(tail -n 3 "$TMP/client.log")"; }

begin_mode pipe
pipe "$B/gpu/pipe" stream 524288 200 pinned
sites 'at("to-host")["taken"] > 0 and at("to-device")["taken"] > 0 and'\
' "pipe+0x" in at("to-host")["call_site"]'
begin_mode pageable
pipe "$B/gpu/pipe" stream 524288 200 pageable
sites 'at("to-host")["taken"] > 0 and at("to-device")["taken"] > 0'
begin_mode no-ipc
pipe env STANDIN_NO_IPC=1 "$B/gpu/pipe" stream 524288 200 pinned
sites 'at("to-host")["taken"] == 0 and why(at("to-host")).get("device-not-taken", 0) > 0'\
' and why(at("to-host")).get("device-unlearned", 0) > 0'
begin_mode unsent
pipe "$B/gpu/pipe" unsent 262144 2000 pinned
sites 'not at("to-host") or (at("to-host")["taken"] == 0 and'\
' set(why(at("to-host"))) == {"device-unlearned"})'
grep -q "bytes of device memory" "$TMP/shim.$MODE" && fail "device memory was taken for nothing"
exit 0
