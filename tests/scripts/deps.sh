#!/bin/bash
# deps.sh SET: are the Debian packages there that this set (below) needs? If not: installs exactly
# the missing ones when root, else prints the command and fails. Service packages are installed
# without starting their services: the tests run private instances.
# deps.sh left-out: a line for make, of what cannot be built for want of a package; in words on
# stderr.
set -uo pipefail

# Python's tests are in a package of its version: of the one that is here, or that would be
# installed.
python=$( (/usr/bin/python3 -V || apt-cache show python3 | sed -n 's/^Version:/&/p') 2>/dev/null |
	grep -om1 '[0-9]*\.[0-9]*' | head -n 1)

# what-proves-it:package, where the proof is a command, h=HEADER that the compiler finds, pc=NAME
# for pkg-config, or a file
build="gcc:gcc make:make h=stdio.h:libc6-dev h=infiniband/verbs.h:libibverbs-dev
	h=rdma/rdma_cma.h:librdmacm-dev"
# What can be left out, and what wants it.
rdmastat="h=json-c/json.h:libjson-c-dev h=ncurses.h:libncurses-dev
	h=libunwind-ptrace.h:libunwind-dev"
probes="h=sys/sdt.h:systemtap-sdt-dev"
optional="rdmastat probes"
declare -A said=([rdmastat]="rdmastat" [probes]="the probes for bpftrace and perf")
demo="redis-server:redis-server redis-benchmark:redis-tools"
rpm="rpmbuild:rpm rpm2cpio:rpm2cpio cpio:cpio"
check="$rdmastat $probes $rpm pkg-config:pkg-config pc=check:check \
/usr/lib/*/libnettle.so.[678]:nettle-dev
	shellcheck:shellcheck cppcheck:cppcheck spin:spin tcc:tcc gdb:gdb strace:strace curl:curl \
wrk:wrk nginx:nginx-light socat:socat python3:python3
	/usr/lib/python3*/test/test_socket.py:libpython$python-testsuite \
/usr/lib/python3/dist-packages/grpc:python3-grpcio
	zsh:zsh yamllint:yamllint go:golang-go
	/bin/nc.openbsd:netcat-openbsd /usr/sbin/sshd:openssh-server ssh:openssh-client
	ip:iproute2 nft:nftables runuser:util-linux
	haproxy:haproxy iperf3:iperf3 memcached:memcached rsync:rsync sockperf:sockperf
	vsftpd:vsftpd lftp:lftp /usr/lib/x86_64-linux-gnu/libsocket_wrapper.so:libsocket-wrapper
	ps:procps systemd-socket-activate:systemd /usr/lib/postgresql/*/bin/initdb:postgresql $demo"
arm="aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64:qemu-user mmdebstrap:mmdebstrap"
distro="mmdebstrap:mmdebstrap unshare:util-linux objdump:binutils"
fuzz="clang:clang /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a:libclang-rt-dev"
fuzz_afl="$fuzz afl-fuzz:afl++ afl-clang-fast:afl++"
jobs="slurmd:slurmd slurmctld:slurmctld srun:slurm-client munged:munge ss:iproute2 podman:podman
	runc:runc $demo"
counters="valgrind:valgrind python3:python3"
suites="javac:default-jdk-headless stress-ng:stress-ng"
deb="dpkg-buildpackage:dpkg-dev dh:debhelper lintian:lintian fakeroot:fakeroot"
# The guest's kernel comes out of a package too, but is not installed: tests/vm/build-guest.
vm="qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod xz:xz-utils
	ip:iproute2 rdma:iproute2 socat:socat gdb:gdb ibv_devinfo:ibverbs-utils rping:rdmacm-utils \
ib_send_lat:perftest
	/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so:ibverbs-providers
	/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so:rdmacm-utils setpriv:util-linux \
flock:util-linux python3:python3"

zoo="/usr/lib/python3/dist-packages/zmq:python3-zmq named:bind9 dig:bind9-dnsutils slapd:slapd \
ldapsearch:ldap-utils varnishd:varnish
	dovecot:dovecot-imapd smbd:samba smbclient:smbclient mariadbd:mariadb-server \
sysbench:sysbench
	mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin mpicc.mpich:libmpich-dev \
mpirun.mpich:mpich erl:erlang-base rabbitmqctl:rabbitmq-server \
/usr/lib/python3/dist-packages/pika:python3-pika
	qemu-nbd:qemu-utils qemu-system-x86_64:qemu-system-x86 Xvfb:xvfb xdpyinfo:x11-utils \
xwd:x11-apps
	/usr/lib/python3/dist-packages/distributed:python3-distributed \
/usr/share/tomcat10/bin/catalina.sh:tomcat10
	java:default-jre-headless postfix:postfix curl:curl nginx:nginx-light python3:python3 \
ss:iproute2"

go="go:golang-go caddy:caddy wrk:wrk"
bench="gnuplot:gnuplot-nox taskset:util-linux"
bench_apps="$demo memcached:memcached memcslap:libmemcached-tools nginx:nginx-light wrk:wrk \
iperf3:iperf3 sockperf:sockperf
	rsync:rsync haproxy:haproxy openssl:openssl /usr/lib/postgresql/*/bin/initdb:postgresql
	python3:python3
	/usr/lib/python3/dist-packages/grpc:python3-grpcio /usr/sbin/sshd:openssh-server
	ssh:openssh-client ip:iproute2"

PATH=$PATH:/usr/sbin:/sbin

have() {
	case $1 in
	/*) compgen -G "$1" >/dev/null ;;
	pc=*) pkg-config --exists "${1#pc=}" 2>/dev/null ;;
	h=*) echo "#include <${1#h=}>" | ${CC:-gcc} -E - >/dev/null 2>&1 ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

find_missing() {	# SET
	missing=()
	for w in $1; do
		have "${w%:*}" || missing+=("${w##*:}")
	done
}

case ${1-} in
build | demo | check | suites | fuzz | fuzz-afl | jobs | counters | deb | arm | rpm | distro | vm \
	| zoo | go | bench | bench-apps)
	list=${1//-/_}
	needed=${!list} wanted=$needed
	;;
left-out)
	left=
	for o in $optional; do
		find_missing "${!o}"
		((${#missing[@]})) || continue
		left+=" $o"
		echo "left out: ${said[$o]}; for want of ${missing[*]}" >&2
	done
	echo "left_out :=$left"
	exit 0
	;;
*) echo "usage: deps.sh \
left-out|build|demo|check|suites|fuzz|fuzz-afl|jobs|counters|deb|arm|rpm|distro|vm|zoo|go|bench\
|bench-apps" \
	>&2; exit 2 ;;
esac
[[ $1 != build ]] || for o in $optional; do wanted+=" ${!o}"; done

# done_if_there [WORDS]: the end, if nothing is missing; with WORDS, if nothing is that is needed.
done_if_there() {
	find_missing "$wanted"
	((${#missing[@]})) || exit 0
	apt="apt-get install -y --no-install-recommends ${missing[*]}"
	(($#)) || return 0
	find_missing "$needed"
	echo "$1" >&2
	echo "install with:  sudo apt-get update && sudo $apt" >&2
	exit $((${#missing[@]} > 0))
}

done_if_there
if ((EUID)) || ! command -v apt-get >/dev/null; then
	done_if_there "missing for 'make $1': ${missing[*]}"
fi

# One installation at a time: make asks for several sets at once. Another's may have brought what
# is missing here.
exec 9</var/lib/dpkg && flock 9
done_if_there

# Debian starts the services that it installs, unless policy-rc.d says 101.
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [[ ! -e $policy ]]; then
	trap 'rm -f "$log" $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get -q update && $apt -o DPkg::Lock::Timeout=300; } >"$log" 2>&1 </dev/null 9>&-; then
	tail -n 20 "$log" >&2
	done_if_there "could not install: ${missing[*]}"
fi
done_if_there "installed, but still not found: ${missing[*]}"
