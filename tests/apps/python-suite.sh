#!/bin/bash
# CPython's own tests of sockets and what stands on them (Debian's libpython3.X-testsuite), on the
# kernel alone and preloaded with all connections cut over at once: what passes there passes here,
# and bytes take a fast path. A short set here; `make check-suites` runs all.
#	python-suite.sh [all | MODULE...]
# TIMEOUT: 200
. "$(dirname "$0")/lib.sh"

SHORT="test_epoll test_poll test_select test_asyncore test_xmlrpc test_smtplib test_httpservers
	test_httplib"
ALL="$SHORT test_asynchat test_socketserver test_socket test_selectors test_ssl test_ftplib
	test_poplib test_imaplib test_urllib2_localnet test_signal test_subprocess
	test_fork1 test_multiprocessing_fork test_asyncio"
case ${1-} in
'') MODULES=$SHORT ;;
all) MODULES=$ALL ;;
*) MODULES=$* ;;
esac
# Does not end on the kernel alone where a machine has no VSOCK host.
WITHOUT=(-i '*VSOCK*')

PYTHON=/usr/bin/python3		# Debian's: the one whose tests these are
# What fails preloaded and is known to: a pattern of the test's name, and why.
KNOWN=(
	'*close_peer_in_the_middle_of_receiving*' \
		'wants small SO_SNDBUF and SO_RCVBUF to make sendfile wait; '\
'they do not size the rings'
)

"$PYTHON" -c 'import test.test_socket' 2>/dev/null ||
	skip "no tests of $("$PYTHON" -V): libpython3.X-testsuite"
# Of those, the ones that this version still has (asyncore and asynchat went with 3.12).
# shellcheck disable=SC2086  # names
MODULES=$("$PYTHON" -c 'import importlib.util, sys
print(*(m for m in sys.argv[1:] if importlib.util.find_spec("test." + m)))' $MODULES)
[[ -n $MODULES ]] || fail "no such tests"
[[ -n $SHIM ]] || skip "no library"
begin_mode both
policy 'earn_bytes 0' 'earn_rounds 0'

# one ROLE DIR MODULE: what each test of the module said, as "ok name", "FAIL name" ..., sorted
one() {
	local dir=$TMP/$2/$3
	mkdir -p "$dir"
	(cd "$dir" && run_with "$1" timeout -k 5 "${MODULE_SECS:-400}" "$PYTHON" -m test \
		-v -u network --tempdir "$dir" "${WITHOUT[@]}" "$3" >"$dir.log" 2>&1)
	python3 -S -E - "$dir.log" >"$dir.said" <<'END'
import re, sys
# "name (place) ..." and its verdict, perhaps with other output between the two
said, name = {}, None
for line in open(sys.argv[1], errors="replace"):
    m = re.match(r"(\w+ \(test[\w.]+\)) ?\.\.\. ?(.*)|(\w+ \(test[\w.]+\))$", line)
    if m:
        name = m.group(1) or m.group(3)
        line = m.group(2) or ""
        said.setdefault(name, "no verdict")
    elif " ... " in line:
        line = line.split(" ... ", 1)[1]
    m = re.search(r"(?:^|\W)(ok|FAIL|ERROR|expected failure)$|^(skipped)\b", line.strip())
    if name and m and said[name] == "no verdict":
        said[name] = m.group(1) or m.group(2)
for name in sorted(said):
    print(said[name], name, sep="\t")
END
}

# known TEST: the reason; fails if there is none.
known() {
	local i
	for ((i = 0; i < ${#KNOWN[@]}; i += 2)); do
		# shellcheck disable=SC2053
		[[ $1 == ${KNOWN[i]} ]] && { echo "${KNOWN[i + 1]}"; return 0; }
	done
	return 1
}

for m in $MODULES; do
	one none bare "$m" &
	one library here "$m"
	wait $!
	ok=$(grep -c '^ok' "$TMP/bare/$m.said")
	lost=$(comm -23 <(grep '^ok' "$TMP/bare/$m.said" | cut -f2 | sort) \
		<(grep -E '^ok' "$TMP/here/$m.said" | cut -f2 | sort))
	say "$m: $ok pass on the kernel alone, $(grep -c '^ok' "$TMP/here/$m.said") preloaded"
	((ok > 0)) || { say "FAILED: $m: nothing passes on the kernel alone"; tail -n 20 \
		"$TMP/bare/$m.log" >&3; FAILURES=1; }
	[[ -z $lost ]] && continue
	while read -r t; do
		why=$(known "$t") && { say "known: $m: $t: $why"; continue; }
		FAILURES=1
		say "FAILED: $m: $(grep -F "$t" "$TMP/here/$m.said" | cut -f1): $t"
		grep -F -A 25 "${t%% *}" "$TMP/here/$m.log" | grep -A 25 -E '^(ERROR|FAIL):' |
			head -n 25 >&3
	done <<<"$lost"
done
collect
say "$CONNS ends of connections, $FAST bytes on a fast path, $CUTS cuts, on TCP because: $REASONS"
((FAST > 10000)) || fail "only $FAST bytes on a fast path"
((FAILURES == 0)) || fail "tests that pass without the library fail with it"
