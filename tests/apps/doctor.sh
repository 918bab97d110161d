#!/bin/bash
# rdmastat doctor: all well on this machine with a real transfer over shared memory; each thing
# that is wrong is named with its remedy and shows in the exit code; devices, out of made-up trees
# of /sys, /proc and /dev; the way to a peer.
# TIMEOUT: 120
. "$(dirname "$0")/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "the library needs the sanitizer's runtime before it"
MODES=both
begin_mode both
cp "$B/rdmastat" "$TMP/rdmastat"
unset RDMASHIM RDMASHIM_CONF
export RDMASHIM_STAT_DIR=$STAT COLUMNS='' TMPDIR=$TMP/tmp
mkdir "$TMPDIR"
printf 'mode on\n' >"$TMP/good.conf"
# doctor EXIT ARGS...: its output in $TMP/text
doctor() {
	local want=$1 rc
	shift
	"$TMP/rdmastat" doctor --lib "$SHIM" "$@" >"$TMP/text" 2>&1
	rc=$?
	((rc == want)) || fail "doctor $*: exit $rc, not $want: $(cat "$TMP/text")"
}
# says REGEX: a line of the last output
says() { grep -Eq -- "$1" "$TMP/text" || fail "no line '$1' in: $(cat "$TMP/text")"; }
look() { RDMASHIM_CONF=$TMP/good.conf doctor "$@"; }

# ---- a machine that is well (a lone CPU or a container may give warnings)
RDMASHIM_CONF=$TMP/good.conf "$TMP/rdmastat" doctor --lib "$SHIM" --json >"$TMP/json"
python3 - "$TMP/json" <<'END' || fail "$(cat "$TMP/json")"
import json, sys
j = json.load(open(sys.argv[1]))
c = {x["name"]: x for x in j["checks"]}
assert j["worst"] in ("ok", "warn"), j["worst"]
for n in ("library", "policy", "transfer tcp", "transfer shm", "shared memory", "identity",
    "discovery socket", "thread"):
    assert c[n]["verdict"] == "ok", c[n]
assert "every byte compared" in c["transfer shm"]["fact"]
END
[[ -z $(ls "$TMPDIR") ]] || fail "it left something behind: $(ls -R "$TMPDIR")"
say "$(grep -o 'every byte compared[^"]*' "$TMP/json" | tail -1)"

# ---- a library that does nothing: bytes arrive, but by TCP
echo 'int nothing;' | gcc -shared -x c - -o "$TMP/librdmashim-dummy.so" || fail "gcc"
RDMASHIM_CONF=$TMP/good.conf "$TMP/rdmastat" doctor --lib "$TMP/librdmashim-dummy.so" >"$TMP/text" \
	2>&1
(($? == 4)) || fail "a library that does nothing is not noticed: $(cat "$TMP/text")"
says '^FAIL transfer shm .*but none by shm'
echo garbage >"$TMP/librdmashim-bad.so"
RDMASHIM_CONF=$TMP/good.conf "$TMP/rdmastat" doctor --no-transfer --lib "$TMP/librdmashim-bad.so" \
	>"$TMP/text" 2>&1
says '^FAIL library .*does not load'
RDMASHIM_CONF=$TMP/good.conf "$TMP/rdmastat" doctor --lib "$TMP"/none >"$TMP/text" 2>&1
says '^FAIL library .*/none cannot be read: No such file'
says '^ +-> make install'

# ---- a library of another build, and a process that runs with it
build=$("$TMP/rdmastat" -V | grep -o '[0-9][^ ]* ([0-9a-f]*[^ )]*)' || "$TMP/rdmastat" -V |
	grep -o '[0-9.]*$')
other=$(sed 's/^./7/' <<<"$build")
sed "s/${build//./\\.}/$other/g" "$SHIM" >"$TMP/librdmashim-other.so"
grep -qF "$other" "$TMP/librdmashim-other.so" || fail "no build in the library: $build"
look 0 --no-transfer
says "^ok +versions +$(sed 's/[().]/\\&/g' <<<"$build"), and so are 0 processes"
grep -q 'library build' "$TMP/text" && fail "they are of one build: $(cat "$TMP/text")"
RDMASHIM_CONF=$TMP/good.conf "$TMP/rdmastat" doctor \
	--no-transfer --lib "$TMP/librdmashim-other.so" >"$TMP/text" 2>&1
says '^warn +library build .*other.so is not of the build'
free_port port
RDMASHIM_CONF=$TMP/good.conf LD_PRELOAD=$TMP/librdmashim-other.so python3 -c '
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)' "$port" &
OTHER=$!
PIDS+=("$OTHER")
wait_port "$port"
look 3 --no-transfer
says "^warn +versions .*with a library of another build runs: $OTHER python3 \($(sed \
	's/[().]/\\&/g' <<<"$other")\)"
says '^ +-> restart them'
kill "$OTHER"
wait "$OTHER" 2>/dev/null

# ---- a program that cleans the environment of its children
LD_PRELOAD=$SHIM bash -c 'env -u LD_PRELOAD sleep 50 & env sleep 50 & wait' &
PIDS+=("$!")
within 10 bash -c '(($(pgrep -c -x -P "$1" sleep) == 2))' _ "$!" || fail "no children"
look 0 --no-transfer
says "children .*1 child of $! \(bash\), such as $(pgrep -x -P "$!" sleep |
	head -n 1) \(sleep\): run without the library"
says '^ +-> .*import_environment'

# ---- a filter that kills is named, with the calls that it forbids; and another end, too
shim_env
if "$B/apps/filter" kill memfd_create,timerfd_create true 2>/dev/null; then
	RDMASHIM_CONF=$TMP/good.conf "$B/apps/filter" kill memfd_create,timerfd_create \
		"$TMP/rdmastat" doctor --lib "$SHIM" >"$TMP/text" 2>&1
	(($? == 4)) || fail "a filter that kills is not noticed: $(cat "$TMP/text")"
	says '^FAIL transfer shm .*ended by signal 31 .*forbids memfd_create, timerfd_create'
	says '^ +-> allow these calls where the process is started'
	! grep -q 'lost or changed' "$TMP/text" || fail "$(grep 'lost or changed' "$TMP/text")"
fi
echo '#include <stdlib.h>
__attribute__((constructor)) static void ends(void) { abort(); }' |
	gcc -shared -fPIC -x c - -o "$TMP/librdmashim-aborts.so" || fail "gcc"
RDMASHIM_CONF=$TMP/good.conf "$TMP/rdmastat" doctor --lib "$TMP/librdmashim-aborts.so" \
	>"$TMP/text" 2>&1
says '^FAIL transfer shm .*the server was ended by signal 6 '

# ---- settings
printf 'mode on\nrign_size 4K\n' >"$TMP/bad.conf"
RDMASHIM_CONF=$TMP/bad.conf doctor 4 --no-transfer
says "^FAIL policy .*bad.conf:2:1: .*did you mean 'ring_size'"
says '^ +-> rdmastat policy check'
printf 'mode off\n' >"$TMP/off.conf"
RDMASHIM_CONF=$TMP/off.conf doctor 3 --no-transfer
says '^warn policy .*mode off'
printf 'force_cut_every 1ms\n' >"$TMP/test.conf"
RDMASHIM_CONF=$TMP/test.conf doctor 3 --no-transfer
says '^warn policy .*force_cut_every'
chmod 666 "$TMP/good.conf"
look 4 --no-transfer
says "^FAIL policy .*others may write"
chmod 644 "$TMP/good.conf"
RDMASHIM_CONF=$TMP/none doctor 4 --no-transfer
says '^FAIL policy .*no such file'
RDMASHIM=off look 3 --no-transfer
says '^warn environment .*RDMASHIM=off'
says '^ +-> unset RDMASHIM'

# ---- other hosts: trust, key, port
free_port rport
head -c 32 /dev/urandom >"$TMP/key"
printf 'discovery_port %s\n' "$rport" >"$TMP/net.conf"
RDMASHIM_CONF=$TMP/net.conf doctor 4 --no-transfer
says '^FAIL key .*no host is trusted'
printf 'key_file %s\n' "$TMP/key" >>"$TMP/net.conf"
for m in 0604 0660 0641; do
	chmod $m "$TMP/key"
	RDMASHIM_CONF=$TMP/net.conf doctor 4 --no-transfer
	says "^FAIL key .*mode $m"
done
# Its group may read it: so says the manual page, and so does the library.
chmod 640 "$TMP/key"
RDMASHIM_CONF=$TMP/net.conf "$TMP/rdmastat" doctor --lib "$SHIM" --no-transfer >"$TMP/text"
says '^ok   key .*mode 0640, 32 bytes'
chmod 600 "$TMP/key"
RDMASHIM_CONF=$TMP/net.conf "$TMP/rdmastat" doctor --lib "$SHIM" --no-transfer >"$TMP/text"
says '^ok   key .*mode 0600, 32 bytes'
says "^ok   discovery port .*$rport is free"
if ((EUID == 0)) && unshare -n true 2>/dev/null; then
	RDMASHIM_CONF=$TMP/net.conf unshare -n sh \
		-c 'echo 0 >/proc/sys/net/ipv4/tcp_timestamps; exec "$@"' - \
		"$TMP/rdmastat" doctor --lib "$SHIM" --no-transfer >"$TMP/text"
	says '^FAIL timestamps '
fi
head -c 5 /dev/urandom >"$TMP/key"
RDMASHIM_CONF=$TMP/net.conf doctor 4 --no-transfer
says '^FAIL key .*5 bytes'

# ---- limits
(ulimit -v 300000; look 4 --no-transfer) || exit 1
says '^FAIL shared memory .*address space: .*RLIMIT_AS'
(ulimit -n 100; look 3 --no-transfer) || exit 1
says '^warn descriptors .*is 100'
taskset -c 0 true 2>/dev/null && {
	RDMASHIM_CONF=$TMP/good.conf taskset -c 0 "$TMP/rdmastat" doctor --lib "$SHIM" \
		--no-transfer >"$TMP/text"
	says '^warn cpus .*one CPU'
}
mkdir -m 755 "$TMP/open"
RDMASHIM_STAT_DIR=$TMP/open look 4 --no-transfer
says '^FAIL counters .*mode 0700'

# ---- devices, made up
R=$TMP/root
port() { echo "$3" >"$R/sys/class/infiniband/$1/ports/1/$2"; }
mkdir -p "$R"/proc/{self,driver/nvidia,sys/kernel/yama} "$R"/dev/infiniband \
	"$R"/sys/class/infiniband/mlx5_0/ports/1/gids "$R"/sys/bus/pci/devices \
	"$R"/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/{0000:02:00.0,0000:02:01.0} \
	"$R"/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0
cp /proc/self/status "$R/proc/self/status"
for d in 0000:00:01.0 0000:00:01.0/0000:01:00.0/0000:02:00.0; do
	ln -s "../../../devices/pci0000:00/$d" "$R/sys/bus/pci/devices/${d##*/}"
done
GPU=$R/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0
echo 0x10de >"$GPU/vendor"
echo 0x030200 >"$GPU/class"
echo 16 >"$GPU/max_link_width"
echo 16 >"$GPU/current_link_width"
printf '0x1000 0x1fff 0x0\n0x100000000 0x1ffffffff 0x0\n' >"$GPU/resource"
ln -s ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0 \
	"$R/sys/class/infiniband/mlx5_0/device"
echo 0x060400 >"$R/sys/devices/pci0000:00/0000:00:01.0/class"
port mlx5_0 state "4: ACTIVE"
port mlx5_0 rate "100 Gb/sec (4X EDR)"
port mlx5_0 link_layer Ethernet
echo fe80:0000:0000:0000:0000:0000:0000:0001 >"$R/sys/class/infiniband/mlx5_0/ports/1/gids/0"
touch "$R"/dev/infiniband/{uverbs0,rdma_cm}; chmod 666 "$R"/dev/infiniband/*
echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build' \
	>"$R/proc/driver/nvidia/version"
mkdir -p "$R/sys/module/nvidia_peermem"; echo 550.54 >"$R/sys/module/nvidia_peermem/version"
head -c 4096 /dev/zero >"$R/sys/devices/pci0000:00/0000:00:01.0/config"
"$TMP/rdmastat" doctor --lib "$SHIM" --root "$R" >"$TMP/text"
says '^ok   mlx5_0/1 .*active, Ethernet, 100 Gb/sec .*1 GIDs'
says '^ok   verbs device .*1 of 1'
says '^ok   gpu driver .*550.54.15, open'
says '^ok   nvidia_peermem .*550.54'
says '^ok   gpu 0000:02:00.0 .*x16 .*BAR1 4.0G'
says '^ok   mlx5_0 .*PIX'
says '^ok   acs '
# extended capability 0x0d at 0x100, request redirect on
printf '\x0d\x00\x01\x00\x00\x00\x04\x00' |
	dd of="$R/sys/devices/pci0000:00/0000:00:01.0/config" bs=1 seek=256 conv=notrunc status=none
port mlx5_0 state "1: DOWN"
rm "$R"/dev/infiniband/uverbs0 "$R/sys/class/infiniband/mlx5_0/device" \
	"$R/sys/module/nvidia_peermem/version"
ln -s ../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0 "$R/sys/class/infiniband/mlx5_0/device"
echo 8 >"$GPU/current_link_width"
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.1  x' >"$R/proc/driver/nvidia/version"
mkdir -p "$R/sys/kernel/iommu_groups/0"; echo DMA >"$R/sys/kernel/iommu_groups/0/type"
(ulimit -l 64; "$TMP/rdmastat" doctor --lib "$SHIM" --root "$R" >"$TMP/text")
(($? == 4)) || fail "failures do not show in the exit code"
says '^FAIL mlx5_0/1 .*DOWN'
says '^FAIL verbs device .*not there'
says '^FAIL memlock .*64.0K'
says '^warn gpu driver .*470.1'
says '^warn nvidia_peermem '
says '^warn gpu 0000:02:00.0 .*x8, could x16'
says '^warn mlx5_0 .*SYS'
says '^warn acs .*1 bridges'
says '^warn iommu .*1 of 1'

# ---- the way to a peer
free_port port
look 4 --no-transfer "localhost:$port"
says "^FAIL peer port .*$port .*Connection refused"
server "$B/apps/idle" server epoll "$port"
wait_port "$port"
"$TMP/rdmastat" doctor --lib "$SHIM" --no-transfer "127.0.0.1:$port" >"$TMP/text"
says "^ok   peer port .*accepts connections"
says "^ok   peer library .*idle"
# A name of two addresses, of which the server has the second.
printf '::1 two\n127.0.0.1 two\n' >"$TMP/hosts"
if ((EUID == 0)) && unshare -m mount --bind "$TMP/hosts" /etc/hosts 2>/dev/null; then
	unshare -m sh -c 'mount --bind "$1" /etc/hosts && shift && exec "$@"' - "$TMP/hosts" \
		"$TMP/rdmastat" doctor --lib "$SHIM" --no-transfer "two:$port" >"$TMP/text"
	says "^ok   peer name +two is 127.0.0.1$"
	says "^ok   peer port .*accepts connections"
fi
printf 'use tcp both 127.0.0.0/8:*\n' >"$TMP/tcp.conf"
RDMASHIM_CONF=$TMP/tcp.conf doctor 3 --no-transfer "127.0.0.1:$port"
says '^warn peer policy .*tcp.conf:1 leaves'
look 4 --no-transfer no-such-host.invalid
says '^FAIL peer name '
look 4 --no-transfer localhost:99999999
says '^FAIL peer .*not a peer'
stop "$SRV"

# ---- the way to another host: a network namespace beside this one, in which somebody has the
# discovery port
unshare -n ip link add v0 type veth peer name v1 2>/dev/null ||
	{ say "network namespaces are not permitted here: the way to another host was not tried"; \
	exit 0; }
cat >"$TMP/port.py" <<'P'
import socket, struct, sys
listener = socket.create_server(("10.77.0.2", 7471))
print("there", flush=True)
for how in sys.argv[1:]:
    s, _ = listener.accept()
    call = b""
    while len(call) < 160:
        call += s.recv(160 - len(call))
    magic, order, version, kind, mode = struct.unpack("<8sIHHI", call[:20])
    if magic != b"rdmashim" or order != 0x01020304 or version != 7 or kind != 1 or len(call) != 160:
        sys.exit("not a call: %r" % call)
    refused = lambda version, why=3: struct.pack("<8sIHHI", magic, order, version, 4,
        why).ljust(160, b"\0")
    s.sendall({"good": refused(7), "newer": refused(8), "beside": refused(8, 0), "echo": call,
        "other": b"220 mail.example ESMTP\r\n", "short": refused(7)[:50]}[how])
    s.close()
P
cat >"$TMP/beside" <<'N'
tmp=$1 tool=$2
unshare -n sleep 60 &
far=$!
until ns=$(readlink /proc/$far/ns/net) && [[ $ns != "$(readlink /proc/self/ns/net)" ]]; do
	sleep 0.02	# quoted: brackets are a pattern otherwise
done
ip link set lo up
ip link add v0 type veth peer name v1 netns $far
ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up
nsenter -t $far -n sh -c 'ip addr add 10.77.0.2/24 dev v1 && ip link set v1 up && ip link set lo up'
# What is sent before the kernel has seen the carrier (a work item of its own, under RTNL) is
# dropped.
for ((i = 0; i < 600; i++)); do
	[[ $(ip -br link show v0) == *" UP "* &&
		$(nsenter -t $far -n ip -br link show v1) == *" UP "* ]] && break
	sleep 0.05
done
nsenter -t $far -n python3 -S -E "$tmp/port.py" good newer beside echo other short \
	>"$tmp/port.log" 2>&1 &
until [[ -s $tmp/port.log ]]; do sleep 0.05; kill -0 $! || break; done
for n in 1 2 3 4 5 6 7; do RDMASHIM_CONF=$tmp/far.conf "$tool" doctor --no-transfer 10.77.0.2; done
{ echo "link seen up after $i looks"; ip -s link show v0; ip neigh
	nsenter -t $far -n ip -s link show v1; } >>"$tmp/port.log" 2>&1
kill $far
N
printf 'use rdma both *:*\ndiscovery_port 7471\nrdma_networks 10.77.0.0/24\n' >"$TMP/far.conf"
unshare -n bash "$TMP/beside" "$TMP" "$TMP/rdmastat" 2>&1 | grep -A1 'peer discovery' >"$TMP/text"
nth() {
	grep -q -- "$2" <<<"$(grep 'peer discovery' "$TMP/text" | sed -n "$1p")" ||
		fail "answer $1 is not '$2': $(cat "$TMP/text" "$TMP/port.log")"
}
nth 1 "^ok .*port 7471 of 10.77.0.2: the library is there"
nth 2 "^FAIL .*speaks version 8, this is 7"
nth 3 "^warn .*who has it speaks version 8, this is 7, and finds others of this version there"
nth 4 "^FAIL .*does not speak rdmashim's protocol"
nth 5 "^FAIL .*does not speak rdmashim's protocol"
nth 6 "^FAIL .*does not speak rdmashim's protocol"
nth 7 "^FAIL .*Connection refused"
exit 0
