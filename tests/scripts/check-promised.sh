#!/bin/bash
# Whether bytes that nobody finds now are on their way is answered by one function, which polls,
# reads, FIONREAD and TCP_INQ ask (stream_rx_promised()): what it is made of no other file looks
# at, but those that say here what for.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0

# WORD FILE what for
table='stream_rx_coming stream_recv.h the function
stream_rx_coming stream_view.c asked by it; and who polls is off TCP
stream_rx_coming stream_cut.c a BACK ends it
stream_rx_coming stream_close.c unread input, which makes a close() a reset
stream_rx_coming stream_peeked.c what was sent and a read, or a count, waits for
stream_rx_resent stream_recv.h declared
stream_rx_resent stream_view.c the function; and is it on TCP
stream_rx_resent stream_close.c unread input
stream_rx_resent stream_recv.c asked before the bytes are, and once more in the function after
stream_rx_resent stream_peeked.c asked before the bytes are counted
fin_held recv_half.h declared
fin_held stream_view.c the function; and the end is shown when it is settled
fin_held stream_recv.c set
fin_held stream.c a connection begins
fin_held stream_work.c with one held back it is not left to the kernel alone
resent_to recv_half.h declared
resent_to stream_recv.h nothing is owed any more
resent_to stream_view.c the function
resent_to stream_cut.c set by BACK
resent_to stream_peeked.c how many bytes'

for word in stream_rx_coming stream_rx_resent fin_held resent_to; do
	# shellcheck disable=SC2013  # names of files
	for f in $(grep -lw "$word" shim/*/*.[ch]); do
		grep -q "^$word ${f##*/} " <<<"$table" ||
			{ echo "$f looks at $word: ask stream_rx_promised(), or say here what" \
			"for"; bad=1; }
	done
done
while read -r word f _; do
	grep -qw "$word" shim/*/"$f" || { echo "$f no longer looks at $word"; bad=1; }
done <<<"$table"

# asks FILE FUNCTION WORD: its body, up to the next line that begins with }
asks() {
	sed -n "/^[a-z].*\<$2(.*[^;]$/,/^}/p" shim/*/"$1" | grep -qw "$3" ||
		{ echo "$2() in $1 does not ask $3()"; bad=1; }
}
asks stream_view.c stream_rx_promised promised
asks stream_view.c stream_view view_once
asks stream_view.c view_once promised
asks stream_recv.c stream_recv recv_once
asks stream_recv.c recv_once stream_rx_promised
asks stream_recv.h stream_owes_any stream_rx_promised
asks stream_peeked.c stream_unread_count stream_owes_any
asks wrap_recv.c left_to_read stream_ioctl_count
exit $bad
