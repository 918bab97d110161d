#!/bin/bash
# OpenLDAP: a provider and a consumer, which copies it by syncrepl and stays connected; 3,000
# entries are added, changed and read, by several clients at once, with large values, and both must
# have the same at last.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
command -v slapd >/dev/null && command -v ldapadd >/dev/null || skip "no slapd or no ldap-utils"
ENTRIES=3000

# config NAME LINE...
config() {
	local name=$1
	shift
	rm -rf "${TMP:?}/$name"
	mkdir -p "$TMP/$name"
	cat >"$TMP/$name.conf" <<-END
		include /etc/ldap/schema/core.schema
		include /etc/ldap/schema/cosine.schema
		include /etc/ldap/schema/inetorgperson.schema
		modulepath /usr/lib/ldap
		moduleload back_mdb
		moduleload syncprov
		pidfile $TMP/$name.pid
		sizelimit unlimited
		sockbuf_max_incoming 4000000
		database mdb
		maxsize 200000000
		suffix dc=zoo
		rootdn cn=root,dc=zoo
		rootpw secret
		directory $TMP/$name
		dbnosync
		index objectClass,entryUUID,entryCSN,uid eq
	END
	printf '%s\n' "$@" >>"$TMP/$name.conf"
}

entries() {
	printf 'dn: dc=zoo\nobjectClass: domain\ndc: zoo\n\n'
	awk -v n=$ENTRIES 'BEGIN { for (i = 0; i < n; i++) {
		s = ""
		for (j = 0; j < i % 50; j++) s = s " word" i * j
		printf "dn: uid=u%d,dc=zoo\nobjectClass: inetOrgPerson\nuid: u%d\ncn: user %d\n",
			i, i, i
		printf "sn: %d\ndescription: of%s\n\n", i * 7, s
	} }'
	printf 'dn: uid=large,dc=zoo\nobjectClass: inetOrgPerson\nuid: large\n'\
'cn: large\nsn: large\n'
	printf 'jpegPhoto:: '
	base64 -w 0 <"$TMP/photo"
	echo
}
changes() {
	awk -v n=$ENTRIES 'BEGIN { for (i = 0; i < n; i += 3)
		printf "dn: uid=u%d,dc=zoo\nchangetype: modify\nreplace: sn\nsn: new%d\n\n", i,
			i * 11 }'
}

as_root() {
	local tool=$1 port=$2
	shift 2
	client timeout 30 "$tool" -H "ldap://127.0.0.1:$port" -x -D cn=root,dc=zoo -w secret "$@"
}
all() {
	as_root ldapsearch "$1" -LLL -o ldif-wrap=no -b dc=zoo '(objectClass=*)' '*' | sort |
		sha256sum
}
csn() { ldapsearch -H "ldap://127.0.0.1:$1" -x -LLL -s base -b dc=zoo contextCSN 2>/dev/null; }
caught_up() { [[ $(csn "$2") == "$(csn "$1")" ]]; }

job() {
	local one two first i readers=()
	free_port one
	free_port two
	config one 'overlay syncprov'
	config two "syncrepl rid=1 provider=ldap://127.0.0.1:$one type=refreshAndPersist
 retry=\"1 +\" searchbase=dc=zoo bindmethod=simple binddn=cn=root,dc=zoo credentials=secret"
	start server "$TMP/one.log" slapd -d 0 -f "$TMP/one.conf" -h "ldap://127.0.0.1:$one"
	first=$PID
	wait_port "$one"
	as_root ldapadd "$one" -f "$TMP/entries" >"$TMP/add.log" 2>&1 ||
		fail "ldapadd: $(tail -n 3 "$TMP/add.log")"
	start client "$TMP/two.log" slapd -d 0 -f "$TMP/two.conf" -h "ldap://127.0.0.1:$two"
	SRV=$PID
	wait_port "$two"
	for i in 1 2 3 4; do	# they read what is not being changed
		as_root ldapsearch "$one" -LLL -b dc=zoo '(uid=u*1)' cn description \
			>"$TMP/read.$i" 2>&1 &
		readers+=($!)
	done
	as_root ldapmodify "$one" -f "$TMP/changes" >"$TMP/modify.log" 2>&1 ||
		fail "ldapmodify: $(tail -n 3 "$TMP/modify.log")"
	wait "${readers[@]}"
	within 20 caught_up "$one" "$two" ||
		fail "the consumer has not caught up: $(csn "$one") $(csn "$two")"
	{
		sort <"$TMP/add.log" | sha256sum
		sort <"$TMP/modify.log" | sha256sum
		for i in 1 2 3 4; do sort <"$TMP/read.$i" | sha256sum; done
		all "$one"
		all "$two"
		as_root ldapwhoami "$two"
		as_root ldapsearch "$two" -LLL -b uid=nobody,dc=zoo 2>&1
	} >>"$OUT"
	stop "$SRV"
	stop "$first"
}
make_file "$TMP/photo" 1000000
entries >"$TMP/entries"
changes >"$TMP/changes"
BALANCED=1
zoo job "$(slapd -VV 2>&1 | sed -n 's/.*slapd \([0-9.]*\).*/\1/p')" \
	"3,000 entries added, changed, read and copied by syncrepl"
