# The snippets (tests/snippets) on RDMA: both ends in one process, or in one and its child,
# connected by the data address of one guest over a device that loops back. What they print on the
# kernel alone is right; cut over at once they must print the same. VM_ARGS: other programs (or
# PROGRAM/SNIPPET), and the mode forced, cut and rewound again and again, which in a slow guest is
# hardly ever on the path.
# HOSTS: 1
# DEVICE: rxe
# TIMEOUT: 1500
. "${TOP:?}/tests/vm/lib.sh"

[[ -n $PRELOAD ]] || fail "no library to preload"
what="" modes=""
for w in ${VM_ARGS:-}; do
	case $w in cut | forced) modes+=" $w" ;; *) what+=" $w" ;; esac
done
# In a guest a sender may never find the reader behind, on the kernel alone.
not="poll_wakes_writer"
what=${what:-recv send poll epoll ends opts} modes=${modes:-cut}
progs=()
declare -A names=()
for w in $what; do
	p=${w%%/*}
	[[ -v names[$p] ]] || progs+=("$p") names[$p]=
	if [[ $w == "$p" ]]; then
		names[$p]+=" $("$VMDIR/bin/snippets/$p" list | sed 's/:.*//' | grep -vxE "$not" |
			tr '\n' ' ')"
	else
		names[$p]+=" ${w#*/}"
	fi
done

export SNIP_ADDR=$P4 SNIP_TIMEOUT=120
rules="use rdma both *:*
discovery_port 7471
rdma_networks $A4/32
earn_bytes 0
earn_rounds 0
discovery 60s
log_level ${LEVEL:-0}"
# Where the host can read it while it is written: a guest needs minutes for it.
OUT=$RUN/log/$NAME
mkdir -p "$OUT"

# all MODE: the output of each program to $OUT/MODE.PROGRAM, complaints to .err, the library's log
# to .shim.
all() {
	local mode=$1 p env ms=30000
	# One that is cut and rewound all the time may never be seen on the path in both directions.
	[[ $mode == forced ]] && ms=500
	for p in "${progs[@]}"; do
		env=()
		[[ $mode == bare ]] ||
			env=("${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$TMP/$mode" \
			RDMASHIM_LOG_FILE="$OUT/$mode.$p.shim" SNIP_WAIT_CUT=1 SNIP_CUT_MS="$ms")
		# shellcheck disable=SC2086
		env "${env[@]}" "$VMDIR/bin/snippets/$p" ${names[$p]} >"$OUT/$mode.$p" \
			2>"$OUT/$mode.$p.err"
	done
}

all bare &
for mode in $modes; do
	mkdir -m 700 "$TMP/$mode"
	policy "$rules" "$([[ $mode == forced ]] && echo "force_cut_every 50ms")"
	since=$SECONDS
	all "$mode"
	line=$(counters "$TMP/$mode")
	say "$mode, $((SECONDS - since)) s: $line"
	(($(counter shm "$line") == 0)) || fail "$mode: not all by RDMA"
	(($(counter rdma "$line") > 0)) || fail "$mode: nothing went by RDMA"
done
wait
grep -H "not on a fast path" "$OUT"/cut.*.err && stayed=1
python3 -S -E tests/snippets/compare.py "$OUT" tests/vm/rdma-snippets.txt 1 "${progs[*]}" \
	"$modes" || fail "see above"
[[ -z ${stayed-} ]] || fail "some stayed on TCP"
