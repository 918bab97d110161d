#!/bin/bash
# newer-libc.sh SUITE DIR [PACKAGE...]: the libc of a newer Debian (trixie, sid) or an older one,
# unpacked in DIR from its package, with others if they are named; once. Prints nothing. Ends with
# 77 and a reason where it cannot be had.
suite=$1 dir=$2
packages=(libc6 "${@:3}")
[[ -n $suite && -n $dir ]] || { echo "usage: newer-libc.sh SUITE DIR" >&2; exit 2; }
[[ -e $dir/root/usr/lib/x86_64-linux-gnu/libc.so.6 ||
	-e $dir/root/lib/x86_64-linux-gnu/libc.so.6 ]] && exit 0
[[ $(uname -m) == x86_64 ]] && command -v apt-get dpkg >/dev/null ||
	{ echo "no Debian on x86-64"; exit 77; }
[[ -r /usr/share/keyrings/debian-archive-keyring.gpg ]] ||
	{ echo "no keys of Debian's archive"; exit 77; }
rm -rf "$dir"
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
dir=$(cd "$dir" && pwd)
sed "s/bookworm-backports/$suite/" "$(dirname "$0")/../vm/backports.sources" >"$dir/one.sources"
# a mirror may be behind
apt=(timeout 120 apt-get -q -o Acquire::Check-Valid-Until=false
	-o Dir::Etc::sourcelist="$dir/one.sources" -o Dir::Etc::sourceparts=/dev/null
	-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root)
{ "${apt[@]}" update && cd "$dir" && "${apt[@]}" download "${packages[@]/%//$suite}" &&
	for p in *.deb; do
		dpkg -x "$p" unpacked || exit
	done && mv unpacked root; } >"$dir/log" 2>&1 ||
	{ echo "the libc of $suite cannot be had: $(tail -n 1 "$dir/log")"; exit 77; }
rm -rf "$dir/lists" "$dir/cache" "$dir"/*.deb
