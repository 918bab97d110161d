#!/bin/bash
# Postfix: 204 mails by four connections to smtpd, through the queue, and by its SMTP client to
# smtp-sink, which keeps them. Postfix clears the environment of what it starts, but for what its
# settings name (conf/postfix). All is of one user.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
((EUID == 0)) || skip "Postfix's master is root's"
command -v postfix >/dev/null && command -v smtp-sink >/dev/null || skip "no postfix"
id postfix >/dev/null 2>&1 && getent group postdrop >/dev/null || skip "no user postfix"
[[ -x /usr/lib/postfix/sbin/smtpd ]] || skip "no smtpd where Debian has it"
AS=(setpriv --reuid postfix --regid postfix --clear-groups)

# config SMTPD-PORT SINK-PORT
config() {
	local env=
	preloaded server && { shim_env smtpd; env=${SHIM_ENV[*]}; }
	rm -rf "${TMP:?}/etc" "$TMP/queue" "$TMP/data" "$TMP/got"
	mkdir -p "$TMP/etc" "$TMP/queue" "$TMP/data" "$TMP/got"
	chown postfix "$TMP/data" "$TMP/got" "$STAT"
	cat >"$TMP/etc/main.cf" <<-END
		compatibility_level = 3.6
		queue_directory = $TMP/queue
		data_directory = $TMP/data
		daemon_directory = /usr/lib/postfix/sbin
		command_directory = /usr/sbin
		mail_owner = postfix
		setgid_group = postdrop
		myhostname = mail.zoo
		mydestination =
		inet_interfaces = 127.0.0.1
		inet_protocols = ipv4
		mynetworks = 127.0.0.0/8
		relayhost = [127.0.0.1]:$2
		disable_dns_lookups = yes
		smtp_tls_security_level = none
		smtpd_tls_security_level = none
		alias_maps =
		message_size_limit = 10000000
		maillog_file = $TMP/queue/maillog
		maillog_file_prefixes = $TMP
		import_environment = MAIL_CONFIG MAIL_LOGTAG POSTLOG_SERVICE POSTLOG_HOSTNAME \
LANG=C $env
		smtp_connection_cache_on_demand = yes
	END
	cat >"$TMP/etc/master.cf" <<-END
		127.0.0.1:$1 inet n - n - - smtpd
		pickup unix n - n 60 1 pickup
		cleanup unix n - n - 0 cleanup
		qmgr unix n - n 300 1 qmgr
		tlsmgr unix - - n 1000? 1 tlsmgr
		rewrite unix - - n - - trivial-rewrite
		bounce unix - - n - 0 bounce
		defer unix - - n - 0 bounce
		trace unix - - n - 0 bounce
		verify unix - - n - 1 verify
		smtp unix - - n - - smtp
		relay unix - - n - - smtp
		error unix - - n - - error
		retry unix - - n - - error
		scache unix - - n - 1 scache
		anvil unix - - n - 1 anvil
		postlog unix-dgram n - n - 1 postlogd
		proxymap unix - - n - - proxymap
	END
}

# The counters are that user's; rdmastat reads them as he.
counters_of_postfix() {
	[[ -e $TMP/rdmastat.own || ! -e $TMP/rdmastat ]] && return
	mv "$TMP/rdmastat" "$TMP/rdmastat.own"
	printf '#!/bin/sh\nexec %s %s "$@"\n' "${AS[*]}" "$TMP/rdmastat.own" >"$TMP/rdmastat"
	chmod 755 "$TMP/rdmastat"
}

arrived() {
	(($(find "$TMP/got" -type f | wc -l) == 204)) &&
		[[ -z $(find "$TMP/queue/active" "$TMP/queue/incoming" -type f) ]]
}

job() {
	local port to sink f
	free_port port
	free_port to
	counters_of_postfix
	config "$port" "$to"
	start client "$TMP/sink.log" "${AS[@]}" smtp-sink -d "$TMP/got/m." "127.0.0.1:$to" 100
	sink=$PID
	wait_port "$to"
	server postfix -c "$TMP/etc" start-fg
	wait_port "$port" 20
	client "${AS[@]}" timeout 60 /usr/bin/python3 "$TOP/tests/zoo/mailsender.py" "$port" \
		>>"$OUT" 2>"$TMP/sender.log" ||
		fail "sender, status $?: $(tail -n 3 "$TMP/sender.log" "$TMP/queue/maillog")"
	within 40 arrived ||
		fail "$(find "$TMP/got" -type f |
		wc -l) of 204 mails: $(tail -n 5 "$TMP/queue/maillog")"
	for f in "$TMP"/got/*; do
		awk 'body; /^\r?$/ { body = 1 }' "$f" | sha256sum
	done | sort >>"$OUT"
	stop "$SRV"
	stop "$sink"
	grep -hE 'fatal|panic|killed by signal' "$TMP/queue/maillog" && fail "Postfix says so"
	true
}
OWN_POLICY=("peer_users root postfix")
zoo job "$(postconf -h mail_version 2>/dev/null)" \
	"204 mails by four connections through smtpd, queue and smtp to smtp-sink"
