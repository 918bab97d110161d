# Device memory between hosts: blocks that a program copies from its device and sends, and the
# other receives and copies to its own, go from the one's snapshot into the other's device memory
# by RDMA WRITE. The driver is the stand-in (tests/gpu/standin.c), whose memory Soft-RoCE can
# reach as it could a GPU's with nvidia-peermem; the verbs are real. Where it cannot be registered
# the bytes go by host memory. Every byte is compared: with rewinds in the middle, with a device
# that fails in between, and of a sender that ends as soon as it has sent.
# HOSTS: 1
# DEVICE: rxe
# KERNEL: backports
# TIMEOUT: 400
. "${TOP:?}/tests/vm/lib.sh"
export LD_LIBRARY_PATH=$VMDIR/bin/gpu PATH=$VMDIR/bin/gpu:$PATH ADDRESS=$A4 STANDIN_DELAY=50
rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32
discovery 15s
earn_bytes 0
device eager
device_memory 64M
device_shared_min 0
log_level 3"

linked() { local n; n=$(grep -sc 'bound to slot' "$TMP/shim.log"); ended prog || ((${n:-0} >= 2)); }

# gated WHAT CMD...: CMD with the library at both its ends, which begins when they have a link;
# its output to $TMP/out.
gated() {
	local what=$1
	shift
	rm -rf "$TMP/gate" "$TMP/shim.log" "$TMP/stat"/*
	start prog shim env GATE="$TMP/gate" "$@"
	within 60 linked || fail "$what: no link: $(cat "$TMP/shim.log")"
	: >"$TMP/gate"
	finish prog 200 || { tail -n 30 "$TMP/shim.log"; fail "$what: $(output prog)"; }
	rm -rf "$TMP/stat2"
	cp -a "$TMP/stat" "$TMP/stat2"		# the dead are shown once
	LINE=$(counters "$TMP/stat2")
	say "$what: $(output prog | tail -n 1); $LINE"
}

# Bytes that the sender's copies to the host had fetched from their snapshots.
by_device() {
	RDMASHIM_STAT_DIR=$TMP/stat rdmastat staging --json --all |
		python3 -S -E -c 'import json, sys
print(sum(x["taken"] for x in json.load(sys.stdin)["staging"] if x["direction"] == "to-host"))'
}

policy "$rules"
for how in reach flush refuse; do
	for mem in pinned pageable; do
		export STANDIN_RDMA=$how
		gated "$how, $mem" pipe stream 1048576 60 $mem
		n=$(by_device)
		say "$n bytes by device memory"
		if [[ $how == refuse ]]; then
			((n == 0)) || fail "memory that cannot be reached was"
			grep -q "cannot reach device memory (errno" "$TMP/shim.log" ||
				fail "and no word of it: $(cat "$TMP/shim.log")"
		else
			((n > 20000000)) ||
				{ cat "$TMP/shim.log"; fail "hardly anything went by device" \
				"memory"; }
		fi
	done
done
unset STANDIN_RDMA
gated "not supported" pipe stream 1048576 30 pinned
(($(by_device) == 0)) || fail "a device without GPUDirect RDMA"
grep -q "RDMA devices cannot write to this GPU" "$TMP/shim.log" || fail "no word of it"

export STANDIN_RDMA=reach
gated "random programs" pair linked 150 7 1000000
(($(by_device) > 1000000)) || fail "none of it by device memory"
gated "a sender that leaves" pipe leave 1048576 30 pinned
within 60 grep -q "all came, then 0" "$LOG.prog.a" ||
	{ cat "$TMP/shim.log"; fail "$(output prog)"; }
(($(by_device) > 10000000)) || fail "none of it by device memory"
policy "$rules" "force_cut_every 20ms"
gated "random programs, rewinds" pair linked 150 8 1000000
policy "$rules" "force_cut_every 300ms"
gated "rewinds" pipe stream 1048576 100 pinned
(($(by_device) > 1000000)) || fail "none of it by device memory"
[[ $(counter rewinds "$LINE") -gt 4 ]] || fail "no rewinds"

# The RDMA device goes while blocks are on the way, and comes back.
policy "$rules" "rdma_retry 100ms"
rm -rf "$TMP/gate" "$TMP/shim.log" "$TMP/stat"/*
start prog shim env GATE="$TMP/gate" pair linked 200 9 1000000
within 60 linked || fail "no link"
: >"$TMP/gate"
gone=0
while ! ended prog; do
	nap 1
	device_down rxe && device_up rxe || fail "the device"
	gone=$((gone + 1))
	nap 2
done
finish prog 1 || { tail -n 30 "$TMP/shim.log"; fail "device removed: $(output prog)"; }
say "device removed $gone times: $(output prog | tail -n 1); $(by_device) bytes by device memory"
