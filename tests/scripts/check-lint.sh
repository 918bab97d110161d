#!/bin/bash
# The sources of library and tools are clean under cppcheck: what may be undefined, leak, or never
# be as it was meant. What it says wrongly has an inline suppression, with the reason; one kind is
# left out (ctuuninitvar): it does not see that a function, or the kernel, fills in its argument.
# Newer ones (2.17) say where they looked at part of a function only, and know neither a register's
# name nor __has_include in C11.
# What the library asks /proc it asks only below its first root directory (base/procfs.h).
# TIMEOUT: 120
cd "$(dirname "$0")/../.." || exit 1
trusting=$(grep -rl --include='*.c' '"/proc/' shim rdma policy |
	xargs grep -LE 'proc_is_ours\(\)|trust_proc\(\)')
[[ -z $trusting ]] || { echo "$trusting: asks /proc without proc_is_ours()"; exit 1; }
command -v cppcheck >/dev/null || { echo "no cppcheck"; exit 77; }
seen=${B:-build}/cppcheck
mkdir -p "$seen"
cppcheck --quiet -j 2 --cppcheck-build-dir="$seen" --error-exitcode=1 \
	--inline-suppr --std=c11 --enable=warning,portability \
	--suppress=missingIncludeSystem --suppress=ctuuninitvar \
	--suppress=normalCheckLevelMaxBranches '-Dasm(name)=' '-D__has_include(name)=0' \
	-I shim -I tools/rdmastat -I . -D_GNU_SOURCE -D__x86_64__ '-DElfW(type)=Elf64_##type' \
	--template='{file}:{line}: {id}: {message}' shim rdma policy tools
