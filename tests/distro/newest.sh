#!/bin/bash
# newest.sh FILE: the newest version of glibc of which FILE wants a symbol.
objdump -T "$1" | grep -F '*UND*' | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV |
	tail -n 1
