#!/bin/bash
# dask: a scheduler, two workers that fetch from each other, and a client. All are preloaded.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
version=$(/usr/bin/python3 -c 'import distributed; print(distributed.__version__)' 2>/dev/null) ||
	skip "no python3-distributed"
export HOME=$TMP DASK_DISTRIBUTED__ADMIN__LOG_FORMAT="%(message)s"
export DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=30s
DASK=(/usr/bin/python3 "$TOP/tests/zoo/dask_job.py")

job() {
	local port address w workers=()
	free_port port
	address=tcp://127.0.0.1:$port
	server "${DASK[@]}" scheduler "$address"
	wait_port "$port" 30
	for w in one two; do
		rm -rf "${TMP:?}/$w"
		mkdir "$TMP/$w"
		start server "$TMP/$w.log" "${DASK[@]}" worker "$address" $w "$TMP/$w"
		workers+=("$PID")
	done
	client timeout 60 "${DASK[@]}" client "$address" >>"$OUT" 2>"$TMP/client.log" ||
		fail "client, status $?: $(tail -n 5 "$TMP/client.log")"
	finish "$SRV" 20 || fail "the scheduler ended with $?: $(tail -n 5 "$TMP/server.log")"
	for w in "${workers[@]}"; do
		finish "$w" 20 ||
			fail "a worker ended with $?: $(tail -n 5 "$TMP/one.log" "$TMP/two.log")"
	done
}
zoo job "${version%+*}" "scheduler, two workers that exchange blocks, client"
