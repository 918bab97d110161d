#!/bin/bash
# Dovecot: four IMAP clients at a server, whose log-in process hands their connections on by
# SCM_RIGHTS; four at a proxy in front of it, which keeps them, but may make no thread. Both stay on
# TCP. And the mail of one user to another instance by dsync over TCP, which does not.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
((EUID == 0)) || skip "Dovecot's master is root's"
command -v dovecot >/dev/null || skip "no dovecot"
[[ -e /usr/lib/dovecot/imap ]] || skip "no dovecot-imapd"
id dovenull daemon >/dev/null 2>&1 || skip "no user dovenull or daemon"

# config NAME IMAP-PORT DOVEADM-PORT PASSDB-ARGS: its processes keep the library.
config() {
	local env=
	preloaded server && { shim_env dovecot; env=${SHIM_ENV[*]}; }
	rm -rf "${TMP:?}/$1"
	mkdir -p "$TMP/$1/run" "$TMP/$1/state" "$TMP/$1/mail"
	chown daemon "$TMP/$1/mail"
	cat >"$TMP/$1.conf" <<-END
		base_dir = $TMP/$1/run
		state_dir = $TMP/$1/state
		log_path = $TMP/$1-own.log
		import_environment = TZ $env
		protocols = imap
		listen = 127.0.0.1
		ssl = no
		disable_plaintext_auth = no
		default_internal_user = root
		default_internal_group = root
		first_valid_uid = 1
		first_valid_gid = 1
		mail_location = maildir:$TMP/$1/mail/%u
		mail_fsync = never
		mail_max_userip_connections = 100
		doveadm_password = secret
		auth_mechanisms = plain
		passdb {
		  driver = static
		  args = $4
		}
		userdb {
		  driver = static
		  args = uid=daemon gid=daemon home=$TMP/$1/mail/%u
		}
		service imap-login {
		  chroot =
		  inet_listener imap {
		    port = $2
		  }
		  inet_listener imaps {
		    port = 0
		  }
		}
		service anvil {
		  chroot =
		}
		service stats {
		  chroot =
		  unix_listener stats-writer {
		    mode = 0666
		  }
		}
		service doveadm {
		  user = daemon
		  inet_listener {
		    port = $3
		  }
		}
	END
}

# The clients are daemon's, and so are the counters. What is dovenull's is not counted.
AS=(setpriv --reuid daemon --regid daemon --clear-groups)
counters_of_daemon() {
	chown daemon "$STAT"
	[[ -e $TMP/rdmastat.own || ! -e $TMP/rdmastat ]] && return
	mv "$TMP/rdmastat" "$TMP/rdmastat.own"
	printf '#!/bin/sh\nexec %s %s "$@"\n' "${AS[*]}" "$TMP/rdmastat.own" >"$TMP/rdmastat"
	chmod 755 "$TMP/rdmastat"
}

mail() {
	local log=$TMP/mailclient.log
	local job=$TOP/tests/zoo/mailclient.py
	client "${AS[@]}" timeout 30 /usr/bin/python3 "$job" "$1" >>"$OUT" 2>"$log" ||
		fail "clients: $(tail -n 5 "$log")"
}
# 400 more, 40 MB: dsync's one connection must live for a while.
many_mails() {
	awk -v dir="$1/cur" 'BEGIN { for (i = 0; i < 400; i++) {
		f = dir "/1700000000." i ".zoo:2,S"
		printf "From: a@zoo\nSubject: %d\n\n", i >f
		for (j = 0; j < 2000;
		j++) print "line " j " of mail " i * 7919 ", made of some words" >f
		close(f)
	} }'
	chown -R daemon "$1"
}
mails() {
	find "$TMP/$1" -path '*/cur/*' -type f -exec sha256sum {} + | cut -d' ' -f1 | sort |
		sha256sum
}

job() {
	local a b a_adm b_adm behind
	free_port a
	free_port b
	free_port a_adm
	free_port b_adm
	counters_of_daemon
	config one "$a" "$a_adm" "password=secret"
	config two "$b" "$b_adm" "nopassword=y pass=secret proxy=y host=127.0.0.1 port=$a"
	start server "$TMP/one.log" dovecot -F -c "$TMP/one.conf"
	behind=$PID
	wait_port "$a"
	wait_port "$a_adm"
	mail "$a"
	rm -rf "$TMP/one/mail"/*
	start server "$TMP/two.log" dovecot -F -c "$TMP/two.conf"
	SRV=$PID
	wait_port "$b"
	mail "$b"
	rm -rf "$TMP/two/mail"/*
	many_mails "$TMP/one/mail/user1"
	client "${AS[@]}" timeout 30 doveadm -c "$TMP/two.conf" backup -R -u user1 \
		"tcp:127.0.0.1:$a_adm" >"$TMP/dsync.log" 2>&1 ||
		fail "dsync: $(cat "$TMP/dsync.log")"
	[[ $(mails one/mail/user1) == "$(mails two/mail/user1)" ]] || fail "dsync made other mails"
	mails two/mail/user1 >>"$OUT"
	stop "$SRV"
	stop "$behind"
	grep -hE 'Panic|Fatal|killed with signal' "$TMP"/*-own.log && fail "it says so"
	true
}
OWN_POLICY=("peer_users root dovenull daemon")	# of imap-login, whose counters are not read
zoo job "$(dovecot --version | cut -d' ' -f1)" \
	"IMAP by four clients, through a proxy, dsync over TCP"
