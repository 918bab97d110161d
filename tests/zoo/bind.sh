#!/bin/bash
# BIND: a primary and a secondary, which takes a zone of 200,000 names by AXFR and its changes by
# IXFR; dig asks both by TCP, for the whole zone and for single names on one connection.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
command -v named >/dev/null && command -v dig >/dev/null || skip "no named or no dig"

zone() {
	cat <<-END
		\$TTL 300
		@ IN SOA ns.zoo. root.zoo. ( $1 3600 600 86400 300 )
		@ IN NS ns.zoo.
		ns IN A 127.0.0.1
	END
	awk -v n="$2" \
		'BEGIN { for (i = 0; i < n; i++) print "h" i " IN TXT \"" i * 7919 " of many\"" }'
}

# config NAME PORT ZONE-STATEMENT
config() {
	mkdir -p "$TMP/$1"
	cat >"$TMP/$1.conf" <<-END
		options {
			directory "$TMP/$1"; pid-file "$TMP/$1.pid"; session-keyfile "$TMP/$1.key";
			listen-on port $2 { 127.0.0.1; }; listen-on-v6 { none; };
			recursion no; dnssec-validation no; notify explicit;
			ixfr-from-differences yes;
			tcp-clients 100; transfers-in 10; transfers-per-ns 10;
			max-journal-size unlimited;
			managed-keys-directory "$TMP/$1"; allow-new-zones no; querylog no;
		};
		controls { };
		zone "zoo" { $3 };
	END
}

ask() { client dig +tcp +noall +answer +time=20 +tries=1 -p "$@"; }
# Dig's own -f asks one name after the other on one connection.
names() { awk 'BEGIN { for (i = 0; i < 3000; i++) print "h" i * 61 ".zoo TXT" }' >"$TMP/names"; }
serial() {
	[[ $(dig +tcp +short +time=5 +tries=1 -p "$1" @127.0.0.1 zoo SOA 2>&1 |
		cut -d' ' -f3) == "$2" ]]
}

job() {
	local primary secondary first
	free_port primary
	free_port secondary
	rm -rf "$TMP/one" "$TMP/two"
	config one "$primary" "type primary; file \"zoo.db\"; allow-transfer { any; };
		also-notify { 127.0.0.1 port $secondary; };"
	config two "$secondary" "type secondary; file \"zoo.db\"; masterfile-format text;
		allow-transfer { any; }; primaries { 127.0.0.1 port $primary; };"
	zone 1 200000 >"$TMP/one/zoo.db"
	names
	start server "$TMP/one.log" named -g -n 2 -c "$TMP/one.conf"
	first=$PID
	wait_port "$primary"
	within 15 serial "$primary" 1 || fail "no zone: $(tail -n 5 "$TMP/one.log")"
	start client "$TMP/two.log" named -g -n 2 -c "$TMP/two.conf"
	SRV=$PID
	wait_port "$secondary"
	within 25 serial "$secondary" 1 || fail "no transfer: $(tail -n 5 "$TMP/two.log")"
	{
		ask "$primary" @127.0.0.1 zoo AXFR | sha256sum
		ask "$secondary" @127.0.0.1 zoo AXFR | sort | sha256sum
		client dig +tcp +keepopen +noall +answer -p "$primary" @127.0.0.1 -f "$TMP/names" |
			sha256sum
	} >>"$OUT"
	zone 2 200100 >"$TMP/one/zoo.db"	# its journal is made, and the secondary told
	kill -HUP "$first"
	within 25 serial "$secondary" 2 || fail "no second transfer: $(tail -n 5 "$TMP/two.log")"
	ask "$secondary" @127.0.0.1 zoo AXFR | sort | sha256sum >>"$OUT"
	stop "$SRV"
	stop "$first"
	grep -hE 'REQUIRE|INSIST|assertion' "$TMP/one.log" "$TMP/two.log" && fail "an assertion"
	true
}
zoo job "$(named -v | cut -d' ' -f2 | cut -d- -f1)" \
	"zone of 200,000 names by AXFR, changes by IXFR, 3,000 questions on one connection"
