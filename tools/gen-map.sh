#!/bin/sh
# gen-map.sh - the linker's export map from shim/libc/calls.def and shim/cuda/cuda_calls.def, to
# stdout: what has a wrapper is global, all else local. Usage, from the top of the tree:
# tools/gen-map.sh > build/shim.map
set -eu
top=$(dirname "$0")/..

echo "{"
echo "global:"
${CC:-cc} -E -P -x c - -I "$top/shim" \
	<<'END' | grep -o 'EXPORT [A-Za-z0-9_]*' | sed 's/EXPORT \(.*\)/\t\1;/' | LC_ALL=C sort
#define CALL(ret, name, params, args, where, doc) EXPORT name
#define CALLV(name, params, args, where, doc) EXPORT name
#define VCALL(ret, name, params, last, args, where, doc) EXPORT name
#define OWN(ret, name, params, where, doc) EXPORT name
#define ALIAS(alias, name, where) EXPORT alias
#include "libc/calls.def"
#define CUDA(name, base, flavour, params, args) EXPORT name
#define CUDA_WRITER(name, base) EXPORT name
#include "cuda/cuda_calls.def"
EXPORT dlmopen
EXPORT dlopen
EXPORT dlsym
EXPORT dlvsym
END
echo "local:"
printf '\t*;\n};\n'
