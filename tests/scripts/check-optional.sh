#!/bin/bash
# What is optional for a build is: with its headers out of the compiler's sight, and no way to
# install them, make builds the rest and says what was left out. Without what is not, it says so.
# TIMEOUT: 600
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a build is a build"
unset MAKEFLAGS MAKELEVEL LD_PRELOAD
farm=$TMP/include hidden=()
own=$(gcc -print-file-name=include)
multi=$(gcc -print-multiarch)

# No network: nothing can be installed.
mkdir "$TMP/bin" && printf '#!/bin/sh\nexit 100\n' >"$TMP/bin/apt-get" &&
	chmod 755 "$TMP/bin/apt-get"
PATH=$TMP/bin:$PATH

# hide HEADER...: the compiler sees all of this machine's headers but these.
hide() {
	local h
	[[ -d $farm ]] || cp -rs /usr/include "$farm" || fail "a tree of links"
	for h in "${hidden[@]}"; do ln -s "/usr/include/$h" "$farm/$h"; done
	hidden=()
	for h in "$@"; do
		[[ -e $farm/$h ]] || h=$multi/$h
		rm "$farm/$h" || fail "$h is not there to be hidden"
		hidden+=("$h")
	done
	hidden_cc="gcc -nostdinc -isystem $own -isystem $farm/$multi -isystem $farm"
}
# build WHERE [TARGET]
build() {
	nice make -j2 -C "$TOP" B="$TMP/$1" CC="$hidden_cc" CFLAGS=-O0 "${@:2}" >"$TMP/$1.log" 2>&1
}
# words WHERE WORDS: said on a line of their own?
words() {
	grep -qxF "left out: $2" "$TMP/$1.log" || fail "$1: not '$2', but: $(<"$TMP/$1.log")"
}

# ---- nothing hidden: nothing is left out
hide
build all "$TMP/all/.deps-build" || fail "nothing hidden: $(tail -n 5 "$TMP/all.log")"
! grep -q "left out" "$TMP/all.log" || fail "left out though it is there: $(<"$TMP/all.log")"

# ---- one at a time
while read -r name header package; do
	hide "$header"
	build "$name" "$TMP/$name/.deps-build" || fail "$name: $(tail -n 5 "$TMP/$name.log")"
	case $name in
	sdt) words sdt "the probes for bpftrace and perf; for want of $package" ;;
	*) words "$name" "rdmastat; for want of $package" ;;
	esac
done <<'END'
json json-c/json.h libjson-c-dev
ncurses ncurses.h libncurses-dev
unwind libunwind-ptrace.h libunwind-dev
sdt sys/sdt.h systemtap-sdt-dev
END

# ---- all of them, and nettle's: library and rdmarun are built, and work; each make says it again
nettle=$(cd /usr/include && ls nettle/hmac.h 2>/dev/null)
# shellcheck disable=SC2086  # perhaps nothing
hide json-c/json.h ncurses.h curses.h libunwind-ptrace.h sys/sdt.h $nettle
for round in first second; do
	build none || fail "$round: $(tail -n 5 "$TMP/none.log")"
	words none "rdmastat; for want of libjson-c-dev libncurses-dev libunwind-dev"
	words none "the probes for bpftrace and perf; for want of systemtap-sdt-dev"
done
[[ ! -e $TMP/none/rdmastat ]] || fail "rdmastat without its libraries?"
grep -q stapsdt <<<"$(readelf -n "$TMP/none/librdmashim.so")" && fail "probes without sys/sdt.h?"
said=$("$TMP/none/rdmarun" --lib "$TMP/none/librdmashim.so" cat /proc/self/maps) ||
	fail "rdmarun: $?"
grep -q "$TMP/none/librdmashim.so" <<<"$said" || fail "a program does not have the library"

# ---- with them again: the next make builds it all, without make clean
hide
build none -n || fail "make -n: $(tail -n 5 "$TMP/none.log")"
grep -q rdmastat_json "$TMP/none.log" || fail "what was left out stays so"

# ---- what is needed is
hide infiniband/verbs.h
build needed "$TMP/needed/.deps-build" && fail "a build without the headers of libibverbs?"
grep -q "libibverbs-dev" "$TMP/needed.log" || fail "not named: $(<"$TMP/needed.log")"
echo "ok"
