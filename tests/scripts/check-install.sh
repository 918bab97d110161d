#!/bin/bash
# make install puts everything into place, what was installed works from there, and make uninstall
# leaves nothing. Completion offers commands, options and columns. The unit files and manifests
# are well-formed, as far as tools for that are here.
# TIMEOUT: 180
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "a sanitizer's library is not for installing"
cd "$TOP" || exit 1
unset MAKEFLAGS MAKELEVEL
D=$TMP/root
# Other people's programs: which of them it was that did not end is to be seen.
within60() {
	timeout -k 5 60 "$@"
	local rc=$?
	((rc != 124 && rc != 137)) || say "not within 60 s: $*"
	return $rc
}
within60 make -s install DESTDIR="$D" PREFIX=/opt/x >"$TMP/make.log" 2>&1 ||
	fail "make install: $(tail "$TMP/make.log")"
for f in lib/librdmashim.so bin/rdmastat bin/rdmarun share/man/man1/rdmastat.1 \
	share/man/man1/rdmarun.1 share/man/man5/rdmashim.conf.5 share/man/man7/rdmashim.7 \
	share/rdmashim/rdmashim.conf share/rdmashim/examples/redis.conf \
	share/rdmashim/systemd/rdmashim.conf share/doc/rdmashim/troubleshooting.md \
	share/bash-completion/completions/rdmastat share/bash-completion/completions/rdmarun \
	share/zsh/site-functions/_rdmastat; do
	[[ -s $D/opt/x/$f ]] || fail "not installed: $f"
done
[[ -z $(find "$D" -type f -perm /022) ]] || fail "others may write: $(find "$D" -type f -perm /022)"

# ---- it works from there: rdmarun finds the library of its own prefix
export RDMASHIM_STAT_DIR=$TMP/stat RDMASHIM_CONF=$D/opt/x/share/rdmashim/rdmashim.conf
unset RDMASHIM_LIB LD_PRELOAD
[[ $("$D/opt/x/bin/rdmarun" sh \
	-c 'echo $LD_PRELOAD') == "$(realpath "$D")/opt/x/lib/librdmashim.so" ]] ||
	fail "rdmarun does not find its library"
"$D/opt/x/bin/rdmastat" policy check >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
if command -v man >/dev/null; then
	for p in 1/rdmastat.1 1/rdmarun.1 5/rdmashim.conf.5 7/rdmashim.7; do
		within60 man -l --warnings "$D/opt/x/share/man/man$p" >"$TMP/page" 2>"$TMP/err" ||
			fail "man $p"
		[[ -s $TMP/err ]] && fail "man $p: $(head -n 3 "$TMP/err")"
		grep -q EXAMPLES "$TMP/page" || fail "$p has no EXAMPLES"
	done
fi

for p in rdmastat rdmarun; do sed 's/\\-/-/g' docs/$p.1 >"$TMP/$p.1"; done
# ---- every option and command of the usage texts stands in the manual page
for o in $("$D/opt/x/bin/rdmastat" --help | grep -o -- '--[a-z-]*' | sort -u) ; do
	grep -Eq -- "^\.BR? .*$o" "$TMP/rdmastat.1" || fail "rdmastat.1 lacks $o"
done
for c in $("$D/opt/x/bin/rdmastat" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
	grep -Eq "^\.BR? (\")?$c( |\"|\$)" docs/rdmastat.1 || fail "rdmastat.1 lacks the command $c"
done
for o in $("$D/opt/x/bin/rdmarun" --help | grep -o -- '--[a-z][a-z-]*' | sort -u); do
	grep -Eq -- "^\.BR? .*$o" "$TMP/rdmarun.1" || fail "rdmarun.1 lacks $o"
done

# ---- and every reason with its remedy, every tunable in the pages about them with its default
"$D/opt/x/bin/rdmastat" reasons --json >"$TMP/reasons.json"
python3 -S -E - "$TMP/reasons.json" "$TMP/rdmastat.1" \
	<<'END' >"$TMP/out" || fail "the reasons in rdmastat.1 are stale: $(cat "$TMP/out")"
import json, re, sys
want = [(r["reason"], "%s%s. Remedy: %s." % (r["text"][0].upper(), r["text"][1:], r["remedy"]))
    for r in json.load(open(sys.argv[1]))["reasons"]]
page = re.search(r"(?s)\.SH REASONS\n(.*?)\.SH ", open(sys.argv[2]).read())[1]
have = [(name, " ".join(text.split())) for name, text in
        re.findall(r"\.TP\n\.B (\S+)\n((?:(?!\.).*\n)*)", page)]
for x in set(want) ^ set(have):
    print("page" if x in have else "table", *x)
sys.exit(want != have)
END
"$D/opt/x/bin/rdmastat" policy keys | sed 1d >"$TMP/keys"
for f in docs/rdmashim.conf.5 docs/policy.md conf/rdmashim.conf; do
	sed 's/\\-/-/g' $f >"$TMP/${f##*/}.text"
done
while read -r k default least most _; do
	grep -qF ".BR $k \" ($default; $least to $most)\"" "$TMP/rdmashim.conf.5.text" ||
		fail "rdmashim.conf.5: $k is $default, from $least to $most"
	grep -qF "| \`$k\` | $default | $least | $most |" "$TMP/policy.md.text" ||
		fail "policy.md: $k is $default, from $least to $most"
	grep -q "^#$k $default" "$TMP/rdmashim.conf.text" ||
		fail "conf/rdmashim.conf: $k is $default"
done <"$TMP/keys"

# ---- completion
complete_it() {	# WORDS...: what bash offers for the last of them
	PATH=$D/opt/x/bin:$PATH within60 bash \
		--norc -c \
		'. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_${1##*/}"
			printf "%s\n" "${COMPREPLY[@]}"' \
		bash "$D/opt/x/share/bash-completion/completions/rdmastat" "$@"
}
offers() {	# WORD WORDS...
	local want=$1
	shift
	complete_it "$@" >"$TMP/offers"
	grep -qx -- "$want" "$TMP/offers" ||
		fail "completion of '$*' does not offer $want:" \
		"$(head -n 20 "$TMP/offers" | tr '\n' ' ')"
}
for c in $("$D/opt/x/bin/rdmastat" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
	offers "$c" rdmastat "${c:0:2}"
	grep -q "'$c:" "$D/opt/x/share/zsh/site-functions/_rdmastat" ||
		fail "completion in zsh lacks $c"
done
offers --columns rdmastat conn --
offers remedy rdmastat conn -o re
offers pid,peer rdmastat conn -o pid,pe
offers ring_size rdmastat policy set ri
offers off rdmastat policy set mode o
offers --stat rdmarun --s
[[ -z $(complete_it rdmastat link --sv) ]] || fail "completion offers what link does not take"
[[ -z $(complete_it rdmastat conn --co | sort | uniq -d) ]] || fail "bash offers an option twice"

# in zsh: it loads, and offers the same
complete_it() {
	PATH=$D/opt/x/bin:$PATH within60 zsh -f tests/scripts/complete.zsh \
		"$D/opt/x/share/zsh/site-functions" "$@" 2>&1
}
offers overview rdmastat ''
offers mr rdmastat ''
offers --columns rdmastat conn --
offers remedy rdmastat conn -o ''
offers ring_size rdmastat policy set ''
offers rdma_networks rdmastat policy set ''
offers off rdmastat policy set mode ''
offers --stat rdmarun --
offers 'other program: redis-server --p' rdmarun -p x redis-server --p
[[ -z $(complete_it rdmastat conn -- | sort | uniq -d) ]] || fail "zsh offers an option twice"
complete_it rdmastat link -- >"$TMP/offers"
grep -q svg "$TMP/offers" && fail "completion offers what link does not take"

# ---- files for others
if command -v systemd-analyze >/dev/null; then
	mkdir -p "$TMP/units/x.service.d"
	printf '[Service]\nExecStart=/bin/true\n' >"$TMP/units/x.service"
	cp conf/systemd/rdmashim.conf "$TMP/units/x.service.d/"
	SYSTEMD_UNIT_PATH=$TMP/units: within60 systemd-analyze verify --man=no \
		"$TMP/units/x.service" >"$TMP/out" 2>&1
	grep -q rdmashim.conf "$TMP/out" && fail "systemd: $(cat "$TMP/out")"
fi
kinds() {	# FILE KIND...: what it is made of
	python3 -c 'import sys, yaml
d = list(yaml.safe_load_all(open(sys.argv[1])))
assert [x.get("kind", "Compose") for x in d] == sys.argv[2:]' "$@" || fail "$1"
}
if python3 -c 'import yaml' 2>/dev/null; then
	kinds conf/kubernetes/pod.yaml Pod ConfigMap
	kinds conf/kubernetes/across.yaml ConfigMap Pod Service Pod
	kinds conf/docker/compose.yaml Compose
fi
within60 yamllint -d '{extends: relaxed, rules: {line-length: disable}}' \
	--strict conf/kubernetes/*.yaml conf/docker/*.yaml >"$TMP/out" || fail "$(cat "$TMP/out")"

# Slurm takes what the TaskProlog prints for the task's environment.
prolog() {
	(cd "$TMP" && env -i PATH="$D/opt/x/bin:$PATH" "$@" sh \
		"$D/opt/x/share/rdmashim/slurm/task_prolog.sh") >"$TMP/out" 2>&1 ||
		fail "task_prolog.sh: $(cat "$TMP/out")"
}
prolog RDMASHIM_LIB="$D/opt/x/lib/librdmashim.so"
[[ ! -s $TMP/out ]] || fail "a job that did not ask for the library gets it"
prolog RDMASHIM_JOB=1 RDMASHIM_LIB="$TMP/none"
[[ ! -s $TMP/out ]] || fail "a job gets a library that is not there"
mkdir "$TMP/job"
prolog RDMASHIM_JOB=1 RDMASHIM_LIB="$D/opt/x/lib/librdmashim.so" LD_PRELOAD=/x/other.so \
	SLURM_JOB_ID=7 SLURM_SUBMIT_DIR="$TMP/job"
grep -qx "export LD_PRELOAD=/x/other.so:$D/opt/x/lib/librdmashim.so" "$TMP/out" ||
	fail "$(cat "$TMP/out")"
prolog RDMASHIM_JOB=1 RDMASHIM_LIB="$D/opt/x/lib/librdmashim.so" SLURM_JOB_ID=7 \
	SLURM_SUBMIT_DIR="$TMP/job"
within60 env -i PATH="$PATH" RDMASHIM_STAT_DIR="$TMP/stat" bash -c '. "$1"; exec python3 -c "
import socket
l = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(l.getsockname())
a = l.accept()[0]
c.sendall(b\"x\"); a.recv(1)"' bash "$TMP/out" || fail "a task in the job's environment"
grep -q 'python3: left TCP: ' "$TMP/job/rdmashim.7" ||
	fail "no summary of the job: $(ls "$TMP/job")"
PATH=$D/opt/x/bin:$PATH sh "$D/opt/x/share/rdmashim/slurm/epilog.sh" || fail "epilog.sh"
[[ -z $(ls "$TMP/stat") ]] || fail "the epilog left counters of the dead"

# ---- the package names who runs with the library that is replaced, or taken away
cp "$SHIM" "$TMP/new.so"
rm -rf "${TMP:?}/lib"
mkdir "$TMP/lib"
cp "$SHIM" "$TMP/lib/librdmashim.so"
LD_PRELOAD=$TMP/lib/librdmashim.so sleep 100 &
running=$!
PIDS+=("$running")
within 10 grep -q librdmashim "/proc/$running/maps" || fail "it does not run with the library"
maintainer() {
	local text
	text=$(sed "s,/usr/share/rdmashim,$D/opt/x/share/rdmashim," \
		"tools/packaging/debian/rdmashim.$1")
	within60 sh -c "$text" "$@" >"$TMP/out" 2>&1 || fail "$1 $2: $(cat "$TMP/out")"
}
names_it() { grep -qx "  $running sleep" "$TMP/out"; }
maintainer postinst configure 0.1
names_it && fail "its library was not replaced: $(cat "$TMP/out")"
mv "$TMP/new.so" "$TMP/lib/librdmashim.so"
maintainer postinst configure 0.1
names_it || fail "after an upgrade: $(cat "$TMP/out")"
maintainer postinst configure ''
[[ ! -s $TMP/out ]] || fail "first installed: $(cat "$TMP/out")"
maintainer prerm upgrade 0.3
[[ ! -s $TMP/out ]] || fail "prerm upgrade: $(cat "$TMP/out")"
maintainer prerm remove
names_it || fail "before it is removed: $(cat "$TMP/out")"
kill "$running"

make -s uninstall DESTDIR="$D" PREFIX=/opt/x >"$TMP/make.log" 2>&1 || fail "make uninstall"
[[ -z $(find "$D" ! -type d) ]] || fail "left behind: $(find "$D" ! -type d)"
exit 0
