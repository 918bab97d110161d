#!/bin/sh
# still-named.sh [ROOT]: what still names the library, and would start without it or with a
# complaint of the dynamic linker when it is gone: /etc/ld.so.preload, units of systemd,
# environments. Packages ask before they are removed. ROOT: of another system.
root=${1-}

running() {
	for maps in /proc/[0-9]*/maps; do
		if grep -q 'librdmashim\.so' "$maps" 2>/dev/null; then
			pid=${maps#/proc/}
			pid=${pid%/maps}
			echo "  $pid $(tr -d '\n' <"/proc/$pid/comm" 2>/dev/null)"
		fi
	done
}

# Files that start programs: the system's, and each user's own.
naming() {
	for f in "$root"/etc/systemd/system "$root"/etc/systemd/user "$root"/run/systemd/system \
		"$root"/usr/lib/systemd/system "$root"/lib/systemd/system "$root"/etc/environment \
		"$root"/etc/environment.d "$root"/etc/profile "$root"/etc/profile.d \
		"$root"/etc/security/pam_env.conf "$root"/etc/default "$root"/etc/sysconfig \
		"$root"/etc/cron.d "$root"/etc/crontab \
		"$root"/root/.config/systemd "$root"/home/*/.config/systemd \
		"$root"/root/.profile "$root"/home/*/.profile "$root"/home/*/.bashrc; do
		[ -e "$f" ] || continue
		grep -rlsE 'librdmashim\.so|(^|[/= ])rdmarun( |$)' "$f"
	done | sort -u | sed 's/^/  /'
}

if [ -z "$root" ]; then
	who=$(running)
	if [ -n "$who" ]; then
		echo "rdmashim: these run with the library, and keep it until they end:"
		echo "$who"
	fi
fi
if grep -qs librdmashim "$root/etc/ld.so.preload"; then
	echo "rdmashim: $root/etc/ld.so.preload names the library:" \
		"take it out, or every program complains"
fi
who=$(naming)
if [ -n "$who" ]; then
	echo "rdmashim: these still name the library or rdmarun:"
	echo "$who"
fi
exit 0
