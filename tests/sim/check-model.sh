#!/bin/bash
# check-model.sh [--large] [SIM] - checks the Promela models with spin, in a temporary directory:
# cut.pml (the cut/rewind machine, safety and liveness), bell.pml (who publishes and who goes to
# sleep), rdma.pml and rdma-wait.pml (the flow on a queue pair, and who hears its completions),
# recovery.pml (its loss), fork.pml and lend.pml (streams that processes share), nested.pml (an
# epoll instance that another wait watches), atfork.pml and birth.pml (other libraries at a fork,
# and our threads at a child that libc does not make), device.pml (blocks that are taken from a
# device's snapshot), room.pml (programs that send before they read), zerocopy.pml (blocks that are
# read by RDMA), learn.pml, meet.pml and upload.pml (ends in two network namespaces). --large adds
# larger forms of some: some minutes. SIM, the simulator's binary, is asked for the states, messages
# and transitions of the machine: those that the verifier has taken must be the same. Exit: 0 clean,
# 1 errors, 77 no spin on this machine.
set -euo pipefail
model="$(cd "$(dirname "$0")" && pwd)/cut.pml"
large=false
[ "${1:-}" = --large ] && { large=true; shift; }
sim="${1:-}"

if ! command -v spin >/dev/null; then
	echo "check-model: spin is not installed; the Promela model was not checked" >&2
	exit 77
fi
[ -n "$sim" ] && sim="$(realpath "$sim")"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
cd "$dir"

if [ -n "$sim" ]; then
	grep -E '^mtype = ' "$model" | grep -oE '\b[A-Z_]+\b' | sort >model.states
	"$sim" --states | sort >code.states
	if ! diff model.states code.states; then
		echo "check-model: the model and the code have different states or messages" >&2
		exit 1
	fi
	echo "states and messages: model and code agree ($(wc -l <code.states))"
fi

# verify SPIN-FLAGS CC-FLAGS PAN-FLAGS: into pan.out.
verify() {
	rm -f ./*.trail
	# shellcheck disable=SC2086
	spin -a $1 "$model" >spin.out || { cat spin.out; exit 1; }
	# shellcheck disable=SC2086
	${PAN_CC:-gcc ${OPT:--O1}} -w -DVECTORSZ=2048 $2 -o pan pan.c
	# shellcheck disable=SC2086
	./pan -m1000000 $3 >pan.out 2>&1 || true
}

# Two at a time, each in a directory of its own: queue COMMAND...; drain shows what they said and
# fails if one did.
queued=0 told=0
queue() {
	queued=$((queued + 1))
	while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
	mkdir "$queued"
	(cd "$queued" && "$@" >said 2>&1 && touch well) &
}
drain() {
	local bad=0
	wait
	while ((told < queued)); do
		told=$((told + 1))
		cat "$told/said"
		[ -e "$told/well" ] || bad=1
	done
	((bad == 0)) || exit 1
}

# check NAME SPIN-FLAGS CC-FLAGS PAN-FLAGS
check() {
	local name="$1" spinflags="$2" ccflags="$3" panflags="$4"

	verify "-DTRACE $spinflags" "$ccflags" "$panflags"
	# pan.c says which numbers its states have.
	sed -n 's/^\tcase \([0-9]*\): Printf("\([TR]X_[A-Z_]*\)"); return;/'\
's, \1 , \2 ,;s, \1$, \2,/p' pan.c >names
	sed -n 's/^transition //p' pan.out | sed -f names >>transitions
	if ! grep -q 'errors: 0' pan.out || grep -qE 'max search depth too small|out of memory' \
		pan.out; then
		echo "check-model: $name: FAILED"
		cat pan.out
		# spin cannot replay what is written in C
		verify "$spinflags" "$ccflags" "$panflags"
		# shellcheck disable=SC2086  # words
		spin -k "$(echo ./*.trail)" -p -g $spinflags "$model" | tail -60
		exit 1
	fi
	echo "$name: errors: 0, $(grep -oE '[0-9.e+]+ states, stored' pan.out)"
}

S="-DSAFETY -DNOCLAIM -DCOLLAPSE"
B="-DSAFETY -DCOLLAPSE"
CYCLES="-DCAP=1 -DM=4"		# unbounded: cycles are real
queue check "close"                  "-DBYTES=4 -DCUTS=3 -DCLOSES"                        "$S" ""
queue check "close, kill"            "-DBYTES=4 -DCUTS=2 -DCLOSES -DKILL"                 "$S" ""
queue check "close, kill, larger"    "-DBYTES=4 -DCUTS=2 -DCLOSES -DKILL -DRING=2 -DCAP=3" "$S" ""
queue check "unbounded"              "$CYCLES"                                           "$S" ""
# 800 MB; a third less time than with -DCOLLAPSE
OPT=-O2 queue check "bytes keep arriving" "$CYCLES"           "-DNP -DNOCLAIM -DNFAIR=3" "-l -f"
queue check \
	"a rewind ends"          "$CYCLES"                "-DNFAIR=3 -DCOLLAPSE" \
		    "-a -f -N fallback_ends"

# A check that cannot fail is none: without a rule the model must be found wrong.
broken() {
	local PAN_CC=tcc	# for gcc to compile it takes longer than to find it
	verify "$2" "$3" "$4"
	grep -q 'errors: 1' pan.out || { echo "check-model: $1: not found"; exit 1; }
	echo "without $1: found"
}
queue broken "max(C,S)"              "-DBYTES=4 -DCUTS=2 -DNO_MAX_CS"                     "$S" ""
queue broken "the ring's tail"       "-DBYTES=4 -DCUTS=2 -DCLOSES -DKILL -DNO_TAIL"        "$S" ""
queue broken \
	"FROZEN crossing CUT"   "$CYCLES -DNO_CROSSING"  "-DNFAIR=3 -DCOLLAPSE" \
		    "-a -f -N fallback_ends"

drain

# Transitions of the machine that the model has not, and why.
not_modelled='
.. [A-Z_]+ (PATH_DEAD|CTL_LOST) [A-Z_]+	path and control socket live as long as the process
RX ARMED FALLBACK TCP	only after the control socket was lost
RX ARMED KERNEL_EOF RING	only if the sender dies between ring header and CUT, one step here
RX RING CREDIT TCP	only a peer that says BACK before all is consumed
'
if [ -n "$sim" ]; then
	sed 's/[TR]X_//g' ./*/transitions | sort -u >model.transitions
	while IFS=$'\t' read -r what _; do
		[ -n "$what" ] && echo "^$what\$"
	done <<<"$not_modelled" >patterns
	"$sim" --transitions | sort >all.transitions
	grep -vEf patterns all.transitions >code.transitions
	while read -r what; do
		grep -qE "$what" all.transitions ||
			{ echo "check-model: the code has no transition $what" >&2; exit 1; }
	done <patterns
	if ! diff model.transitions code.transitions; then
		echo "check-model: the model and the code have different transitions" >&2
		exit 1
	fi
	echo "transitions: model and code agree ($(wc -l <code.transitions), and" \
		"$(($(wc -l <all.transitions) - $(wc -l <code.transitions))) that the model does" \
		"not have)"
fi

model="${model%cut.pml}bell.pml"
queue check "sleepers"               ""            "$B" ""
queue check "sleepers, plain stores" "-DPLAIN_ARM" "$B" ""
queue broken "the publisher's fence"        "-DNO_FENCE_TX"            "$B" ""
queue broken "the sleeper's fence"          "-DPLAIN_ARM -DNO_FENCE_RX" "$B" ""
queue broken "the look after arming"        "-DLOOK_FIRST"             "$B" ""
queue broken "the slot before the summary"  "-DSUMMARY_FIRST"          "$B" ""
queue broken "taking the bits at once"      "-DREAD_CLEAR"             "$B" ""
queue broken "the ring for a marked slot"   "-DSKIP_MARKED"            "$B" ""
drain

S=$B
model="${model%bell.pml}rdma.pml"
both="-DBYTES0=3 -DBYTES1=2 -DCUTS=0 -DRECVS=2 -DACK_EACH=1 -DSENDS=3"
one="-DBYTES0=4 -DBYTES1=0"
answer="-DBYTES0=3 -DBYTES1=0 -DCUTS=0 -DRECVS=4 -DACK_EACH=3 -DRING=4 -DCREDIT_EACH=4 -DCOLLECT=9 \
-DSENDS=9 -DANSWER"
queue check "flow both ways"       "$both"                                  "$S" ""
queue check "flow, rewind"         "$one"                                   "$S" ""
queue check "flow, answered"       "$answer"                                "$S" ""
queue check "flow, step by step"   "-DBYTES0=3 -DBYTES1=0 -DCUTS=0 -DSPLIT" "$S" ""
queue broken "the room for acknowledgements" "$both -DBREAK_RESERVE" "$S" ""
queue broken "records after a new cut"             "$one -DBREAK_FENCE"    "$S" ""
queue broken "a signalled send for who collects"   "$one -DBREAK_SIGNAL"   "$S" ""
queue broken "acknowledging unasked"               "$one -DBREAK_ACK"      "$S" ""
queue broken "posting what waited"                 "$one -DBREAK_FLUSH"    "$S" ""
queue broken "each step after FINAL"               "$one -DBREAK_FINAL"    "$S" ""
queue broken "a look at the cursor when FINAL comes" "$one -DBREAK_SEEN"   "$S" ""
queue broken "asking for the answer"               "$answer -DBREAK_ASKS"  "$S" ""
queue broken "the answer"                          "$answer -DBREAK_OWES"  "$S" ""
if $large; then
	queue check "flow both ways, larger" "-DBYTES0=3 -DBYTES1=2 -DCUTS=0"           "$S" ""
	queue check "flow, rewinds, larger"  "-DBYTES0=5 -DBYTES1=0 -DCUTS=2"           "$S" ""
fi

model="${model%rdma.pml}rdma-wait.pml"
OPT=-O0	# what is in line many times compiles slowly
queue check "completions, two sleepers" "-DSLEEPERS=2"             "$S" ""
queue check "completions, a passer-by"  "-DPASSER"                 "$S" ""
queue check "completions, a poster"     "-DPOSTER -DN=1"           "$S" ""
queue check "completions, only posters" "-DPOSTER -DSLEEPERS=0"    "$S" ""
queue broken "the request before its word"       "-DPASSER -DBREAK_REQUEST"             "$S" ""
queue broken "the look after the request"        "-DPASSER -DBREAK_LOOK"                "$S" ""
queue broken "the note for who polls"            "-DPASSER -DBREAK_AGAIN"               "$S" ""
queue broken "rings for who sleeps elsewhere"    "-DPASSER -DBREAK_NOTIFY"              "$S" ""
queue broken "the request for others"            "-DSLEEPERS=2 -DBREAK_REARM"           "$S" ""
queue broken "the background thread's watch"     "-DPOSTER -DSLEEPERS=0 -DBREAK_WATCH"  "$S" ""
if $large; then
	queue check "completions, a poster, larger" "-DPOSTER" "$S" ""
fi

model="${model%rdma-wait.pml}recovery.pml"
OPT=-O1
queue check "recovery" "" "$S" ""
queue broken "the link's stay"                   "-DBREAK_KILL"   "$S" ""
queue broken "the resend from C"                 "-DBYTES=2 -DBREAK_RESEND" "$S" ""
queue broken "the life of a record"              "-DBYTES=2 -DBREAK_LIFE" "$S" ""

model="${model%recovery.pml}fork.pml"
queue check "processes" "" "$S" ""
queue broken "the look at who has it"            "-DBREAK_OWNER"   "$S" ""
queue broken "the wait for the fallback"                 "-DBREAK_WAIT"    "$S" ""
queue broken "counting a child that is not there yet" "-DBREAK_FORKING" "$S" ""
queue broken "no cut while shared"               "-DBREAK_SHARED"  "$S" ""
queue broken "forgetting an earlier child's wish" "-DBREAK_CLEAR"  "$S" ""
queue broken "fallback before the close"             "-DBREAK_CLOSE"   "$S" ""
queue broken "the mark of a cut copy"            "-DBREAK_COPY"    "$S" ""

model="${model%fork.pml}lend.pml"
queue check "children without handlers" "" "$S" ""
queue broken "the second look at who shares it"  "-DBREAK_LOOK"    "$S" ""
queue broken "asking again for a child"          "-DBREAK_AGAIN"   "$S" ""
queue broken "a child's entry before its wish"   "-DBREAK_ENTER"   "$S" ""

model="${model%lend.pml}nested.pml"
queue check "an instance in another"             "-DN=2"         "$S" ""
queue check "an instance in another, edges"      "-DEDGE -DN=2"  "$S" ""
queue check "an instance in another, edges, read" "-DEDGE -DREADS" "$S" ""
queue check "an instance in another, alone"      "-DALONE -DREADS" "$S" ""
queue check "an instance in others"              "-DDEEP -DN=2"  "$S" ""
queue check "an instance in others, edges"       "-DDEEP -DEDGE -DREADS" "$S" ""
two="-DTWO -DREADS -DN=1"
cycles="-DNP -DNOCLAIM -DNFAIR=4"
queue check "two proofs at once have an end"     "$two" "$cycles" "-l -f"
queue broken "what another look has in hand"     "-DDEEP -DNO_WAIT" "$S" ""
queue broken "the look after arming an instance" "-DNO_LOOK"     "$S" ""
queue broken "arming what was heard inside"      "-DNO_SETTLE"   "$S" ""
queue broken "the ring for what is queued"       "-DNO_ATTENTION" "$S" ""
queue broken "the bell that stays armed"         "-DDISARM"      "$S" ""
queue broken "the look after silencing"          "-DSILENCE_LAST" "$S" ""
queue broken "arming a bell that told"           "-DEDGE -DREADS -DNO_ARM" "$S" ""
queue broken "the proof of the kernel's word"    "-DALONE -DNO_PROOF" "$S" ""
queue broken "the proof anew when a bell rang"   "-DALONE -DREADS -DBELIEVE" "$S" ""

model="${model%nested.pml}atfork.pml"
queue check "handlers of fork" "" "$S" ""
queue broken "our place among the handlers"      "-DBREAK_ORDER"   "$S" ""
queue broken "no lock over another library"      "-DBREAK_UNDER"   "$S" ""
queue broken "the list of streams before our locks" "-DBREAK_STDIO" "$S" ""

model="${model%atfork.pml}birth.pml"
queue check "children that libc does not make" "" "$S" ""
queue broken "the wait for our thread's work"    "-DBREAK_WORK"    "$S" ""
queue broken "the wait for one that begins"      "-DBREAK_BEGIN"   "$S" ""
queue broken "the wait for one that ends"        "-DBREAK_END"     "$S" ""
queue broken "the look after it is said to begin" "-DBREAK_LOOK"   "$S" ""
queue broken "the look after it is said to end"  "-DBREAK_ENDS"    "$S" ""

model="${model%birth.pml}room.pml"
queue check "both send first"        "-DTWO" "$S" ""
queue check "a circle of three"      ""      "$S" ""
queue broken "the time of a full ring"           "-DBREAK_LIMIT"   "$S" ""
queue broken "the release of what is held, two"  "-DTWO -DBREAK_RELEASE" "$S" ""
queue broken "the release of what is held, three" "-DBREAK_RELEASE" "$S" ""

model="${model%room.pml}zerocopy.pml"
OPT=-O1
queue check "blocks that are read by RDMA"       ""                "$S" ""
queue broken "the fence"                         "-DBREAK_FENCE"   "$S" ""
queue broken "the wait for a withdrawal's answer" "-DBREAK_WAIT"   "$S" ""
queue broken "the answer after the last READ"    "-DBREAK_ANSWER"  "$S" ""
queue broken "counting what is complete"         "-DBREAK_COUNT"   "$S" ""
queue broken "no freeze in a READ"               "-DBREAK_FREEZE"  "$S" ""
queue broken "no return in a READ"               "-DBREAK_RETURN"  "$S" ""
queue broken "nothing behind an offer"           "-DBREAK_BEHIND"  "$S" ""
queue broken "the ring before an offer"          "-DBREAK_ORDER"   "$S" ""
queue broken "the count of an open offer"        "-DBREAK_OPEN"    "$S" ""
queue broken "the rest of an offer that is sent" "-DBREAK_WHOLE"   "$S" ""
queue broken "the resend from C"                 "-DBREAK_RESEND"  "$S" ""
if $large; then
	queue check "blocks that are read by RDMA, larger" "-DBLOCKS=3" "$S" ""
fi

model="${model%zerocopy.pml}learn.pml"
queue check "learning the ISNs"                  ""                "$S" ""
queue broken "the look at what ERR means"        "-DBREAK_FILTER"  "$S" ""
queue broken "the question after a look"         "-DBREAK_EMPTY"   "$S" ""
queue broken "the state, and not another poll"   "-DBREAK_STATE"   "$S" ""
queue broken "emptying the queue in each wait"   "-DBREAK_LATE"    "$S" ""
queue broken "the header that a wait has taken"  "-DBREAK_KEEP"    "$S" ""
queue broken "the look after all is learned"     "-DBREAK_LEARNED" "$S" ""

model="${model%learn.pml}meet.pml"
queue check "meeting in a directory"             ""                "$S" ""
queue check "meeting in a directory, twins"      "-DSAME"          "$S" ""
queue broken "the server's mac"                  "-DBREAK_MAC"     "$S" ""
queue broken "the client's mac"                  "-DBREAK_HELLO"   "$S" ""
queue broken "the mark of a name that is taken"  "-DSAME -DBREAK_TAKEN" "$S" ""
queue broken "the pair in BIND"                  "-DBREAK_COMPARE" "$S" ""
queue broken "the end of who is asked"           "-DBREAK_END"     "$S" ""

model="${model%meet.pml}upload.pml"
queue check "a server that only reads"           ""                "$S" ""
queue broken "the look at what a client says"    "-DBREAK_CHECK"   "$S" ""
queue broken "no bytes that acknowledge one more" "-DBREAK_DATA"   "$S" ""
queue broken "what acknowledges a killed one's FIN" "-DBREAK_KILLED" "$S" ""
queue broken "the wait for what has passed"      "-DBREAK_FIRST"   "$S" ""
queue broken "all acknowledged before it"        "-DBREAK_ACKED"   "$S" ""
queue broken "the filter's end before a send"    "-DBREAK_SEND"    "$S" ""
queue broken "no filter on a shared socket"      "-DBREAK_SHARED"  "$S" ""
queue broken "one claim at a time"               "-DBREAK_CLAIM"   "$S" ""
queue broken "the pair in BIND, once known"      "-DBREAK_BOUND"   "$S" ""
queue broken "the filter's end with the search"  "-DBREAK_OVER"    "$S" ""

model="${model%upload.pml}device.pml"
truth="-DTRUTH -DFALLBACKS=0 -DCUTS=0"
async="-DASYNC -DFALLBACKS=0 -DCUTS=0"
ends="-DCLOSES -DSTOPS"
queue check "snapshots"                 "$truth"  "$S" ""
queue check "snapshots, under way"      "$async"  "$S" ""
queue check "takes, closes, a stop"     "$ends"   "$S" ""
queue check "takes, a death"            "-DKILLS -DCUTS=0" "$S" ""
queue broken "the look at written pages"         "$truth -DBREAK_WRITTEN"  "$S" ""
queue broken "the count of launches"             "$truth -DBREAK_LAUNCHED" "$S" ""
queue broken "the look at what runs"             "$truth -DBREAK_BUSY"     "$S" ""
queue broken "the end of an older snapshot"      "$truth -DBREAK_DROP"     "$S" ""
queue broken "the buffer from the snapshot"      "$truth -DBREAK_TWICE"    "$S" ""
queue broken "the wait for the copy"             "$async -DBREAK_EARLY"    "$S" ""
queue broken "the pin of a take that lasts"      "$ends -DBREAK_PIN"       "$S" ""
queue broken "withdrawing in one step"           "$ends -DBREAK_WITHDRAW"  "$S" ""
queue broken "the look at the offer after a take" "$ends -DBREAK_COMMIT"   "$S" ""
queue broken "counting before a step"            "$ends -DBREAK_SETTLE"    "$S" ""
queue broken "withdrawing before a step"         "$ends -DBREAK_CLOSE"     "$S" ""
queue broken "stepping over what was counted"    "$ends -DBREAK_DONE"      "$S" ""
queue broken "the reader's lock in a take"       "$ends -DBREAK_FREEZE"    "$S" ""
queue broken "an end of patience"                "$ends -DBREAK_PATIENCE"  "$S" ""
queue broken "the pin of what is still read"     "$ends -DBREAK_READING"   "$S" ""
queue broken "the end of what is read"           "$ends -DBREAK_TOLD"      "$S" ""
queue broken "withdrawing what nobody took"      "$ends -DBREAK_LATE"      "$S" ""
if $large; then
	OPT=-O2
	queue check "takes, a death, a new cut" "-DKILLS" "$S" ""
	queue check "takes, a death, closes"    "-DCLOSES -DKILLS" "$S" ""
	queue check "takes, two rewinds"        "$ends -DFALLBACKS=2"  "$S" ""
fi
drain
