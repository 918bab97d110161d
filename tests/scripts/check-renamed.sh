#!/bin/bash
# Old names of keys and words in policy files (policy/renamed.def), as users meet them: rdmastat
# understands them and says what they are called now, changes the line that has them, and the
# library tells it in its log.
# TIMEOUT: 60
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath "${B:-build}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
conf=$tmp/p.conf
bad=0
wrong() { echo "$*"; bad=1; }
policy() { timeout 20 "$B/rdmastat" policy "$@" 2>&1; }

printf 'mode on\nrendezvous_port 7471 # why\ndevice deferred\n#rendezvous 2s\n' >"$conf"
got=$(policy check "$conf") || wrong "check fails: $got"
for line in "2:1: warning: rendezvous_port is called discovery_port now" \
	"3:1: warning: device deferred is called device lazy now"; do
	[[ $got == *"$conf:$line"* ]] || wrong "no '$line' in: $got"
done
got=$(policy check --json "$conf" | python3 -c 'import json, sys
print([w["line"] for w in json.load(sys.stdin)["warnings"]])')
[[ $got == "[2, 3]" ]] || wrong "warnings in JSON: $got"
got=$(policy show -f "$conf") || wrong "show fails: $got"
grep -Eq '^discovery_port +7471 +.*:2$' <<<"$got" || wrong "show: $got"
grep -Eq '^device +lazy +.*:3$' <<<"$got" || wrong "show: $got"

# An edit finds the line by either name, and writes the new one.
got=$(policy set -f "$conf" discovery_port 1) || wrong "set fails: $got"
got=$(policy set -f "$conf" device truthful) || wrong "set fails: $got"
[[ $got == *"truthful is called eager now"* ]] || wrong "set: $got"
got=$(policy set -f "$conf" rendezvous 3s) || wrong "set fails: $got"
[[ $got == *"rendezvous is called discovery now"* ]] || wrong "set: $got"
printf 'mode on\ndiscovery_port 1 # why\ndevice eager\n#rendezvous 2s\ndiscovery 3s\n' \
	>"$tmp/want"
diff "$tmp/want" "$conf" || wrong "not what set should have written"
got=$(policy unset -f "$conf" rendezvous_port) || wrong "unset fails: $got"
sed -i 2d "$tmp/want"
diff "$tmp/want" "$conf" || wrong "not what unset should have written"

printf 'earn_learn off\nlog_level 2\n' >"$conf"
RDMASHIM_CONF=$conf RDMASHIM_LOG=2:$tmp/log RDMASHIM_STAT_DIR=$tmp LD_PRELOAD=$B/librdmashim.so \
	timeout 20 python3 -c 'import socket
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a, _ = l.accept()
c.sendall(b"x")
assert a.recv(1) == b"x"' || wrong "the program fails"
grep -q "$conf:1: earn_learn is called earn_lifetime now" "$tmp/log" || {
	wrong "the log does not say it:"
	cat "$tmp/log"
}
# a filter takes a reason by either name
for name in no-discovery no-rendezvous rendezvous-unreachable; do
	got=$(RDMASHIM_STAT_DIR=$tmp timeout 20 "$B/rdmastat" conn reason $name 2>&1) ||
		wrong "conn reason $name fails: $got"
done
exit $bad
