# shellcheck shell=bash
# dask.bash - sourced: a scheduler and two workers that fetch from each other.
export HOME=$TMP DASK_DISTRIBUTED__ADMIN__LOG_FORMAT="%(message)s"
DASK=(/usr/bin/python3 "$TOP/tests/zoo/dask_job.py")

# Sets ADDRESS; all are the server's end, and log to $TMP/{server,one,two}.log.
start_dask() {
	local port w
	WORKERS=()
	free_port port
	ADDRESS=tcp://127.0.0.1:$port
	server "${DASK[@]}" scheduler "$ADDRESS"
	wait_port "$port" 30
	for w in one two; do
		rm -rf "${TMP:?}/$w"
		mkdir "$TMP/$w"
		start server "$TMP/$w.log" "${DASK[@]}" worker "$ADDRESS" $w "$TMP/$w"
		WORKERS+=("$PID")
	done
}
# The client has told them to.
end_dask() {
	local w
	finish "$SRV" 20 || fail "the scheduler ended with $?: $(tail -n 5 "$TMP/server.log")"
	for w in "${WORKERS[@]}"; do
		finish "$w" 20 ||
			fail "a worker ended with $?: $(tail -n 5 "$TMP/one.log" "$TMP/two.log")"
	done
}
