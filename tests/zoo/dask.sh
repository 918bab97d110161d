#!/bin/bash
# dask: a scheduler, two workers that fetch from each other, and a client. All are preloaded.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
version=$(/usr/bin/python3 -c 'import distributed; print(distributed.__version__)' 2>/dev/null) ||
	skip "no python3-distributed"
export DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=30s
. "$TOP/tests/zoo/dask.bash"

job() {
	start_dask
	client timeout 60 "${DASK[@]}" client "$ADDRESS" >>"$OUT" 2>"$TMP/client.log" ||
		fail "client, status $?: $(tail -n 5 "$TMP/client.log")"
	end_dask
}
zoo job "${version%+*}" "scheduler, two workers that exchange blocks, client"
