# podman.bash - podman whose store is this test's own, and images of this machine's programs.
# Sourced after apps/lib.sh.
# shellcheck shell=bash

# image NAME PROGRAM[=AS]...: the programs, with the libraries that they load
image() {
	local name=$1 root=$TMP/image f l as
	shift
	rm -rf "$root"
	mkdir -p "$root"/{tmp,proc,sys,dev,etc,usr/bin,usr/lib/x86_64-linux-gnu,lib64}
	ln -s usr/bin usr/lib "$root"
	chmod 1777 "$root/tmp"
	for f in "$@"; do
		as=${f#*=} f=${f%%=*}
		install -D -m 755 "$f" "$root${as/#\/bin/\/usr/bin}"
		for l in $(ldd "$f" 2>/dev/null | grep -o '/[^ ]*'); do
			case $l in */ld-linux*) as=/lib64 ;; *) as=/usr/lib/x86_64-linux-gnu ;; esac
			install -m 755 "$(readlink -f "$l")" "$root$as/${l##*/}"
		done
	done
	tar -C "$root" -c . | pod import -q -c 'ENV PATH=/usr/bin' - "$name" >"$TMP/import.log" \
		2>&1 || fail "$(cat "$TMP/import.log")"
}
# Limits of descriptors and processes as they are: podman's own may be more than this user may have.
printf '[containers]\ndefault_ulimits = ["nofile=%s:%s", "nproc=4096:4096"]\n'\
'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' \
	"$(ulimit -Hn)" "$(ulimit -Hn)" >"$TMP/containers.conf"
export CONTAINERS_CONF=$TMP/containers.conf
pod() {
	podman --root "$TMP/store" --runroot "$TMP/run" --tmpdir "$TMP/tmp" --runtime runc "$@" 3>&-
}
trap 'rc=$?; for w in pod ""; do pod $w rm -fa -t 0; done >/dev/null 2>&1
	pod volume rm -fa >/dev/null 2>&1
	umount "$TMP/store/overlay" 2>/dev/null; (exit $rc); cleanup' EXIT
