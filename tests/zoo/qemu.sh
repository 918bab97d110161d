#!/bin/bash
# QEMU: guests that run (by TCG) moved from one process to another over TCP, plainly and by several
# channels; QMP over TCP; disks by NBD, copied, compared and written back by several processes.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
command -v qemu-img >/dev/null && command -v qemu-nbd >/dev/null || skip "no qemu-utils"
command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86"
make_file "$TMP/disk" 60000256
make_file "$TMP/data" 100000000
# A boot sector: counts in the words from 8000h to f000h for ever. cli; xor ax,ax; mov ds,ax;
# again: mov di,8000h; next: inc word [di]; add di,2; cmp di,f000h; jb next; jmp again
printf '\xfa\x31\xc0\x8e\xd8\xbf\x00\x80\xff\x05\x83\xc7\x02\x81\xff\x00\xf0\x72\xf5\xeb\xf0' \
	>"$TMP/boot"
truncate -s 510 "$TMP/boot"
printf '\x55\xaa' >>"$TMP/boot"
truncate -s 65536 "$TMP/boot"

# guest NAME ROLE QMP-PORT ARG...
guest() {
	local name=$1 role=$2 port=$3
	shift 3
	start "$role" "$TMP/$name.log" qemu-system-x86_64 -accel tcg -m 256 -nodefaults -display \
		none \
		-drive file="$TMP/boot",format=raw,if=ide,readonly=off,snapshot=on -boot c \
		-qmp "tcp:127.0.0.1:$port,server=on,wait=off" "$@"
	wait_port "$port"
}

move() {
	local from to first
	free_port from
	free_port to
	guest source server "$from" -device loader,file="$TMP/data",addr=0x2000000,force-raw=on
	first=$PID
	guest target client "$to" -incoming defer
	client timeout 60 /usr/bin/python3 "$TOP/tests/zoo/migrate.py" "$from" "$to" "$TMP" "$@" \
		>>"$OUT" 2>"$TMP/migrate.log" ||
		fail "migration $*:" \
		"$(tail -n 3 "$TMP/migrate.log" "$TMP/source.log" "$TMP/target.log")"
	finish "$first" 15 || fail "the source ended with $?: $(cat "$TMP/source.log")"
	finish "$PID" 15 || fail "the target ended with $?: $(cat "$TMP/target.log")"
}

img() { client timeout 30 qemu-img "$@"; }

disks() {
	local port u i
	cp "$TMP/disk" "$TMP/served"
	free_port port
	server qemu-nbd -t -e 8 -x zoo -f raw -b 127.0.0.1 -p "$port" "$TMP/served"
	wait_port "$port"
	u=nbd://127.0.0.1:$port/zoo
	for i in 1 2 3; do img convert -f raw -O raw "$u" "$TMP/got.$i" 2>&1 & copies[i]=$!; done
	for i in 1 2 3; do wait "${copies[i]}" || fail "qemu-img convert"; sum "$TMP/got.$i"; done
	img compare -f raw -F raw "$u" "$TMP/disk"
	dd if=/dev/zero of="$TMP/got.1" bs=1M seek=5 count=7 conv=notrunc status=none
	img convert -n -f raw -O raw "$TMP/got.1" "$u" && cmp "$TMP/got.1" "$TMP/served" &&
		sum "$TMP/served"
	img compare -f raw -F raw "$u" "$TMP/disk"
	img info "$u" | grep 'virtual size'
	stop "$SRV"
}

job() {
	local copies=()
	move
	move multifd
	disks >>"$OUT" 2>&1
}
zoo job "$(qemu-img --version | sed -n 's/^qemu-img version \([0-9.]*\).*/\1/p')" \
	"a running guest moved twice (once by multifd), three disks by NBD at once, QMP"
