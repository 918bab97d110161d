#!/bin/sh
# gen-map.sh - the linker's export map from shim/libc/calls.def and the vendors' tables of entries
# (shim/VENDOR/VENDOR_calls.def, which say for GPU_EXPORTS what has a hook), to stdout: what has a
# wrapper is global, all else local. Usage, from the top of the tree:
# tools/gen-map.sh > build/shim.map
set -eu
top=$(dirname "$0")/..

tables() {
	cat <<'END'
#define CALL(ret, name, params, args, where, doc) EXPORT name
#define CALLV(name, params, args, where, doc) EXPORT name
#define VCALL(ret, name, params, last, args, where, doc) EXPORT name
#define OWN(ret, name, params, where, doc) EXPORT name
#define ALIAS(alias, name, where) EXPORT alias
#include "libc/calls.def"
EXPORT dlmopen
EXPORT dlopen
EXPORT dlsym
EXPORT dlvsym
END
	(cd "$top/shim" && printf '#include "%s"\n' */*_calls.def)
}

echo "{"
echo "global:"
tables | ${CC:-cc} -E -P -x c -DGPU_EXPORTS -I "$top/shim" - |
	grep -o 'EXPORT [A-Za-z0-9_]*' | sed 's/EXPORT \(.*\)/\t\1;/' | LC_ALL=C sort
echo "local:"
printf '\t*;\n};\n'
