#!/bin/bash
# tar.sh DIRECTORY NAME FILE: packs DIRECTORY/NAME into FILE, the same bytes each time: names in
# order, of no user, with the time of the last commit (SOURCE_DATE_EPOCH says another).
set -euo pipefail
export LC_ALL=C
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$(dirname "$0")" log -1 --format=%ct 2>/dev/null || echo 0)}
tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$epoch" \
	--mode='u+rw,go=rX' -C "$1" -cf - "$2" | gzip -9n >"$3"
