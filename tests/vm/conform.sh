#!/bin/bash
# HOSTS: 1
# DEVICE: rxe siw
# TIMEOUT: 300
# What tests/nic takes for right of a device is what Soft-RoCE and siw do, too, but for what they
# are known for.
. "${TOP:?}/tests/vm/lib.sh"
[[ -x $B/nic/conform ]] || skip "no $B/nic/conform"
# shellcheck disable=SC2086
"$B/nic/conform" "$A4" ${VM_ARGS-} >"$TMP/out"
rc=$?
cat "$TMP/out"
exit $rc
