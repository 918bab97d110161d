# shellcheck shell=bash
# mpi.bash - sourced by the tests of an MPI: mpi.c by RANKS ranks, RUNS times. The launcher is
# preloaded, too.

# mpi_zoo COMPILER VERSION COMMAND...: COMMAND starts the ranks of what follows it
mpi_zoo() {
	local cc=$1 version=$2
	shift 2
	MPI=("$@")
	command -v "$cc" >/dev/null && command -v "$1" >/dev/null || skip "no $1 or no $cc"
	"$cc" -O2 -w -o "$TMP/mpi" "$TOP/tests/zoo/mpi.c" >"$TMP/cc.log" 2>&1 ||
		fail "$cc: $(cat "$TMP/cc.log")"
	export TMPDIR=$TMP
	zoo mpi_job "$version" "$RANKS ranks over TCP: ring, all to all, sums, crossing sends"
}

mpi_job() {
	local i
	for ((i = 1; i <= RUNS; i++)); do
		client timeout 50 "${MPI[@]}" "$TMP/mpi" >>"$OUT" 2>"$TMP/mpi.log" ||
			fail "run $i, status $?: $(tail -n 5 "$TMP/mpi.log")"
	done
}
