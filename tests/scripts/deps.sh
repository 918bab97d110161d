#!/bin/bash
# deps.sh SET: are the Debian packages there that this set (below) needs? If not: installs exactly the
# missing ones when root, else prints the command and fails. Service packages are installed without
# starting their services: the tests run private instances.
set -uo pipefail

# Python's tests are in a package of its version: of the one that is here, or that would be installed.
python=$( (/usr/bin/python3 -V || apt-cache show python3 | sed -n 's/^Version:/&/p') 2>/dev/null | grep -om1 '[0-9]*\.[0-9]*' | head -n 1)

# what-proves-it:package, where the proof is a command, or pc=NAME for pkg-config, or a file
build="gcc:gcc make:make pkg-config:pkg-config /usr/include/stdio.h:libc6-dev pc=json-c:libjson-c-dev
	pc=libibverbs:libibverbs-dev pc=librdmacm:librdmacm-dev pc=nettle:nettle-dev pc=libunwind-ptrace:libunwind-dev pc=ncursesw:libncurses-dev
	/usr/include/x86_64-linux-gnu/sys/sdt.h:systemtap-sdt-dev"
demo="redis-server:redis-server redis-benchmark:redis-tools"
check="pc=check:check shellcheck:shellcheck cppcheck:cppcheck spin:spin tcc:tcc gdb:gdb strace:strace curl:curl wrk:wrk nginx:nginx-light socat:socat python3:python3
	/usr/lib/python3*/test/test_socket.py:libpython$python-testsuite /usr/lib/python3/dist-packages/grpc:python3-grpcio
	zsh:zsh yamllint:yamllint
	/bin/nc.openbsd:netcat-openbsd /usr/sbin/sshd:openssh-server ssh:openssh-client ip:iproute2 runuser:util-linux
	haproxy:haproxy iperf3:iperf3 memcached:memcached rsync:rsync sockperf:sockperf
	vsftpd:vsftpd lftp:lftp /usr/lib/x86_64-linux-gnu/libsocket_wrapper.so:libsocket-wrapper
	ps:procps systemd-socket-activate:systemd /usr/lib/postgresql/*/bin/initdb:postgresql $demo"
fuzz="clang:clang /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a:libclang-rt-dev"
fuzz_afl="$fuzz afl-fuzz:afl++ afl-clang-fast:afl++"
jobs="slurmd:slurmd slurmctld:slurmctld srun:slurm-client munged:munge ss:iproute2 podman:podman runc:runc $demo"
counters="valgrind:valgrind python3:python3"
suites="javac:default-jdk-headless stress-ng:stress-ng"
deb="dpkg-buildpackage:dpkg-dev dh:debhelper lintian:lintian fakeroot:fakeroot"
# The guest's kernel comes out of a package too, but is not installed: tests/vm/build-guest.
vm="qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod xz:xz-utils
	ip:iproute2 rdma:iproute2 socat:socat gdb:gdb ibv_devinfo:ibverbs-utils rping:rdmacm-utils ib_send_lat:perftest
	/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so:ibverbs-providers
	/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so:rdmacm-utils setpriv:util-linux flock:util-linux python3:python3"

zoo="/usr/lib/python3/dist-packages/zmq:python3-zmq named:bind9 dig:bind9-dnsutils slapd:slapd ldapsearch:ldap-utils varnishd:varnish
	dovecot:dovecot-imapd smbd:samba smbclient:smbclient mariadbd:mariadb-server sysbench:sysbench
	mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin mpicc.mpich:libmpich-dev mpirun.mpich:mpich erl:erlang-base
	qemu-nbd:qemu-utils qemu-system-x86_64:qemu-system-x86 Xvfb:xvfb xdpyinfo:x11-utils xwd:x11-apps
	/usr/lib/python3/dist-packages/distributed:python3-distributed /usr/share/tomcat10/bin/catalina.sh:tomcat10
	java:default-jre-headless postfix:postfix curl:curl nginx:nginx-light python3:python3 ss:iproute2"

bench="gnuplot:gnuplot-nox taskset:util-linux"
bench_apps="$demo memcached:memcached memcslap:libmemcached-tools nginx:nginx-light wrk:wrk iperf3:iperf3 sockperf:sockperf
	rsync:rsync haproxy:haproxy openssl:openssl /usr/lib/postgresql/*/bin/initdb:postgresql python3:python3
	/usr/lib/python3/dist-packages/grpc:python3-grpcio /usr/sbin/sshd:openssh-server ssh:openssh-client ip:iproute2"

case ${1-} in
build | demo | check | suites | fuzz | fuzz-afl | jobs | counters | deb | vm | zoo | bench | bench-apps) list=${1//-/_}; wanted=${!list} ;;
*) echo "usage: deps.sh build|demo|check|suites|fuzz|fuzz-afl|jobs|counters|deb|vm|zoo|bench|bench-apps" >&2; exit 2 ;;
esac

PATH=$PATH:/usr/sbin:/sbin

have() {
	case $1 in
	/*) compgen -G "$1" >/dev/null ;;
	pc=*) pkg-config --exists "${1#pc=}" 2>/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

find_missing() {
	missing=()
	for w in $wanted; do
		have "${w%:*}" || missing+=("${w##*:}")
	done
}

find_missing
((${#missing[@]})) || exit 0

apt="apt-get install -y --no-install-recommends ${missing[*]}"
if ((EUID)) || ! command -v apt-get >/dev/null; then
	echo "missing for 'make $1': ${missing[*]}" >&2
	echo "install them with:  sudo apt-get update && sudo $apt" >&2
	exit 1
fi

# One installation at a time: make asks for several sets at once. Another's may have brought what is missing here.
exec 9</var/lib/dpkg && flock 9
find_missing
((${#missing[@]})) || exit 0
apt="apt-get install -y --no-install-recommends ${missing[*]}"

# Debian starts the services that it installs, unless policy-rc.d says 101.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
fi
echo "installing: ${missing[*]}"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get -q update && $apt; } >"$log" 2>&1 </dev/null 9>&-; then
	tail -n 20 "$log" >&2
	rm -f "$log"
	echo "could not install: ${missing[*]}" >&2
	exit 1
fi
rm -f "$log"
find_missing
((${#missing[@]})) || exit 0
echo "installed, but still not found: ${missing[*]}" >&2
exit 1
