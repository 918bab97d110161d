"""Counter files of version 10 as a liar makes them: of processes of another pid namespace, which
nobody can find to be dead.

usage: stat_forge.py DIR FIRST_PID COUNT ROWS LIVE [rich] [names]
	rich: queue pairs and places that copy too; names: all names would steer a terminal
"""
import struct
import sys

ROW = struct.Struct("<IIHHHBB16s16sBBBBIII6QIIIIIIQQ")
LINK = struct.Struct("<IIBBBBHHIIIII16s16s16s16s64s")
SITE = struct.Struct("<IBB2x5Q96Q208s")
EVIL = b"a\x1b[31mb\nNL-c\x9bd\xc2\x9be\xff\x7ff\xe2\x80\xaeg" if "names" in sys.argv else b""
CALLS = 128 * 48 + 64 * 128 * 2 * 8
HEADER, HISTORY, MOVES, LINKS, SITES = 2568, 392, 256, 1024, 64


def header(pid, rows, live):
    head = struct.pack("<QIIIIIIQQ64s40s192sII", 0x5453444d48535331, 10, HEADER, ROW.size, rows,
                       pid, 1001, 1, 1, EVIL + b"liar" * 8, EVIL + b"0.2", EVIL + b"/none/" * 20, 1,
                       live)
    return (head + struct.pack("<64Q96Q", *[1 << 40] * 160)).ljust(HEADER, b"\0")


def row(i, pid):
    local = b"\xfd" + bytes(range(100, 111)) + struct.pack(">I", pid & 0xffffffff)
    peer = b"\xfe" + bytes(range(200, 211)) + struct.pack(">I", i)
    return ROW.pack(2, i, 10, 40000 + i % 20000, 50000 + i // 20000, 1, 5, local, peer, 0, 0, 1, 1,
                    7, 1 << 20, 1 << 20, *[1 << 40] * 6, 1, 0, 9, 9, 1 << 16, 1, 0, 0)


def call_names():
    return b"".join((EVIL + b"a_long_call_%d" % i).ljust(48, b"\0") for i in range(128))


def calls():
    return (call_names() + struct.pack("<256Q", *range(1, 257))).ljust(CALLS, b"\0")


def link(i):
    gid = struct.pack(">4I", 0xfe800000, 1, 2, i)
    return LINK.pack(2, 1, 1, 2, 1, 10, 40000, 50000, i + 1, i + 2, 4096, 3, 1000,
                     gid, gid, gid, gid, EVIL + b"device" * 5)


def site(i):
    why = [1 << 30] * 96
    return SITE.pack(2, i & 1, 0, i, i + 1, 1 << 20, 1 << 40, 1, *why,
                     EVIL + b"function+%d " % i * 12)


def make(path, pid, rows, live, rich, body):
    with open(path, "wb") as f:
        f.write(header(pid, rows, live))
        f.write(b"".join(row(i, pid) for i in range(live)) if live < 64 else body)
        f.seek(HEADER + rows * ROW.size)
        if rich:
            f.write(calls() + b"".join(site(i) for i in range(SITES)))
        f.seek(HEADER + rows * (ROW.size + HISTORY + MOVES) + CALLS + SITES * SITE.size + 16)
        f.write(struct.pack("<II", LINKS if rich else 0, 0))
        if rich:
            f.write(b"".join(link(i) for i in range(LINKS)))
        f.truncate(f.tell() if rich else f.tell() + LINKS * LINK.size)


def main():
    where, first, count, rows, live = sys.argv[1], *map(int, sys.argv[2:6])
    assert ROW.size == 152 and LINK.size == 164 and SITE.size == 1024
    body = b"".join(row(i, first) for i in range(live))
    for pid in range(first, first + count):
        make(f"{where}/{pid}", pid, rows, live, "rich" in sys.argv, body)


main()
