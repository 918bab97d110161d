#!/bin/bash
# PostgreSQL's own regression tests, as its `make installcheck` runs them, over 127.0.0.1: on the
# kernel alone, and with server and clients preloaded, all connections cut over at once, at ease
# and with a cut and rewind every 5 ms. Each test must end as on the kernel alone. Part of `make
# check-suites`.
# The tests are in Debian's source package, the headers for their C functions in another package;
# both are unpacked, not installed, in $B/suites, for the server that is installed.
#	postgres.sh [TEST...]		only those, the first of which must be test_setup
# TIMEOUT: 2400
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library"
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
[[ -x $bin/initdb ]] || skip "no PostgreSQL"
major=$(basename "${bin%/bin}")
pg_regress=${bin%/bin}/lib/pgxs/src/test/regress/pg_regress
[[ -x $pg_regress ]] || skip "no pg_regress in $pg_regress"
version=$(dpkg-query -W -f '${Version}' "postgresql-$major") ||
	skip "PostgreSQL is not Debian's package"
HAVE=$B/suites/postgresql-$version
AS=()
user=$(id -un)
if ((EUID == 0)); then
	user=postgres
	id postgres >/dev/null 2>&1 || user=nobody
	AS=(runuser -u "$user" --)
fi

# The source package of that very version, by a source list of our own: many systems have none.
fetch() {
	local apt=$TMP/apt opts suite
	# shellcheck source=/dev/null
	suite=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	mkdir -p "$apt/lists/partial" "$HAVE"
	printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '\
'http://deb.debian.org/%s main\n' \
		"debian $suite" "debian $suite-updates" "debian-security $suite-security" \
		>"$apt/sources.list"
	opts=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- \
		-o "Dir::State::lists=$apt/lists" -o APT::Sandbox::User=root)
	apt-get "${opts[@]}" update &&
		(cd "$apt" && apt-get "${opts[@]}" --download-only source \
		"postgresql-$major=$version") || return 1
	(cd "$apt" && apt-get -q -o APT::Sandbox::User=root download \
		"postgresql-server-dev-$major=$version") || return 1
	tar -xf "$apt"/postgresql-*.orig.tar.* -C "$HAVE" --strip-components=1 \
		--wildcards '*/src/test/regress' || return 1
	dpkg-deb -x "$apt"/postgresql-server-dev-*.deb "$HAVE/dev" || return 1
	touch "$HAVE/.complete"
}
if [[ ! -e $HAVE/.complete ]]; then
	rm -rf "$HAVE"
	fetch >"$TMP/fetch.log" 2>&1 ||
		skip "no source of PostgreSQL $version: $(tail -n 1 "$TMP/fetch.log")"
fi
mkdir "$TMP/pg"
cp -r "$HAVE/src/test/regress" "$TMP/pg/regress"
gcc -w -O1 -fPIC -shared -I"$HAVE/dev/usr/include/postgresql/$major/server" \
	-I"/usr/include/postgresql/$major/server" -I/usr/include/postgresql \
	-o "$TMP/pg/regress.so" "$HAVE/src/test/regress/regress.c" ||
	fail "regress.so does not build"
cp "${bin%/bin}"/lib/{autoinc,refint}.so "$TMP/pg" || fail "no contrib modules"
((EUID)) || chown -R "$user" "$TMP/pg"
WHAT=(--schedule="$TMP/pg/regress/parallel_schedule" --max-connections=10)
least=200
(($#)) && WHAT=("$@") least=$#

server_up() {
	local env=()
	rm -rf "$TMP/pg/data"
	"${AS[@]}" "$bin/initdb" -D "$TMP/pg/data" -A trust -U postgres -E UTF8 --locale=C \
		--no-sync >"$TMP/initdb.log" 2>&1 || fail "initdb: $(cat "$TMP/initdb.log")"
	free_port port
	"${AS[@]}" mkdir -m 700 "$TMP/pg/stat.$run"
	SHIM_ENV=(NOTHING=)
	[[ $MODE == bare ]] || shim_env postgres
	env=("${SHIM_ENV[@]}" RDMASHIM_STAT_DIR="$TMP/pg/stat.$run" \
		RDMASHIM_LOG_FILE="$TMP/pg/shim.log")
	start none "$TMP/server.log" "${AS[@]}" env "${env[@]}" "$bin/postgres" -D "$TMP/pg/data" \
		-p "$port" -h 127.0.0.1 -k '' -c fsync=off
	SRV=$PID
	wait_port "$port"
	within 15 "$bin/pg_isready" -U postgres -q -h 127.0.0.1 -p "$port" || fail "not ready"
}

# installcheck RUN: what each test came to, in $TMP/RUN
installcheck() {
	local run=$1 out=$TMP/pg/out.$1 fast
	begin_mode "$MODE"
	server_up
	"${AS[@]}" mkdir "$out"
	(cd "$out" && timeout -k 10 700 "${AS[@]}" env "${SHIM_ENV[@]}" \
		RDMASHIM_STAT_DIR="$TMP/pg/stat.$run" RDMASHIM_LOG_FILE="$TMP/pg/shim.log" \
		"$pg_regress" --inputdir="$TMP/pg/regress" --outputdir="$out" --bindir="$bin" \
		--dlpath="$TMP/pg" \
		--host=127.0.0.1 --port="$port" --user=postgres "${WHAT[@]}" >"$TMP/$run.log" 2>&1)
	kill -INT "$(head -n 1 "$TMP/pg/data/postmaster.pid")"
	finish "$SRV" 60 || fail "postgres: $(tail "$TMP/server.log")"
	sed -n 's/^ *\(test \)\{0,1\} *\([a-z_0-9]*\) *\.\.\. \([a-zA-Z]*\).*/\2 \3/p' \
		"$TMP/$run.log" | sort >"$TMP/$run"
	[[ $(wc -l <"$TMP/$run") -ge $least ]] ||
		fail "$run: too few tests ran: $(tail -n 5 "$TMP/$run.log")"
	say "$run: $(grep -c ' ok$' "$TMP/$run") tests of $(wc -l <"$TMP/$run") ok"
	[[ $MODE == bare ]] && return
	if ! diff "$TMP/bare" "$TMP/$run"; then
		head -n 60 "$out/regression.diffs"
		fail "$run: not as on the kernel alone"
	fi
	fast=$("${AS[@]}" env RDMASHIM_STAT_DIR="$TMP/pg/stat.$run" "$TMP/rdmastat" --json --all |
		python3 -c \
		'import json, sys; t = json.load(sys.stdin)["total"]; print(t["connections"],
			t["bytes"]["shm"], t["counters"]["rewinds"])')
	say "$run: ends of connections, bytes on shared memory, rewinds: $fast"
	read -r _ fast _ <<<"$fast"
	((fast > 10000)) || fail "$run: only $fast bytes on a fast path"
}

MODE=bare
installcheck bare
MODE=both
policy 'earn_bytes 0' 'earn_rounds 0'
installcheck cut
policy 'earn_bytes 0' 'earn_rounds 0' 'force_cut_every 5ms'
installcheck forced
