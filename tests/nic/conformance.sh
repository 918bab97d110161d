#!/bin/bash
# TIMEOUT: 120
# The simulated device does what the verbs' manual pages and InfiniBand's transport say, in each
# profile.
. "$(dirname "$0")/lib.sh"
export NICD=$NIC/nicd
for profile in ${PROFILES:-mlx5 iwarp rxe}; do
	device "profile=$profile"
	if ! on a "$NIC/conform" 127.0.0.1 "$@" >"$TMP/out"; then
		cat "$TMP/out"
		fail "profile $profile"
	fi
	say "$profile: $(tail -n 1 "$TMP/out")"
	no_device
done
