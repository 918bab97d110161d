#!/bin/bash
# make dist packs the same bytes each time; what it packed builds, and an RPM of it has the library
# in lib64, where rdmarun of that tree finds it. Before it goes, what still names it is told.
# TIMEOUT: 600
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
[[ -z ${SAN-} ]] || skip "packages have no sanitizer"
cd "$TOP" || exit 1
unset MAKEFLAGS MAKELEVEL LD_PRELOAD

# ---- who still names it
R=$TMP/root
units=$R/etc/systemd/system/redis.service.d mine=$R/home/me/.config/systemd/user
mkdir -p "$units" "$mine" "$R/etc/profile.d"
conf/still-named.sh "$R" >"$TMP/said" || fail "still-named.sh"
[[ ! -s $TMP/said ]] || fail "nobody names it, and: $(<"$TMP/said")"
echo "Environment=LD_PRELOAD=/usr/lib/librdmashim.so" >"$units/fast.conf"
echo "ExecStart=/usr/bin/rdmarun /usr/bin/thing" >"$mine/thing.service"
echo "export PATH=/usr/share/rdmashim" >"$R/etc/profile.d/other.sh"
echo "/usr/lib/librdmashim.so" >"$R/etc/ld.so.preload"
conf/still-named.sh "$R" >"$TMP/said" || fail "still-named.sh"
for f in "$units/fast.conf" "$mine/thing.service"; do
	grep -qxF "  $f" "$TMP/said" || fail "$f is not told: $(<"$TMP/said")"
done
grep -q "ld.so.preload names the library" "$TMP/said" || fail "ld.so.preload is not told"
! grep -q other.sh "$TMP/said" || fail "other.sh does not name it"

# ---- one version everywhere
[[ $(<VERSION) =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "VERSION is not MAJOR.MINOR.PATCH"
grep -q "^rdmashim ($(<VERSION)) " <(head -n 1 tools/packaging/debian/changelog) ||
	fail "debian/changelog does not begin with $(<VERSION)"

# ---- the same bytes
git rev-parse HEAD >/dev/null 2>&1 || skip "not a checkout: there is no commit to pack"
make -s B="$TMP/one" dist >"$TMP/log" 2>&1 || fail "make dist: $(tail -n 5 "$TMP/log")"
(umask 077 && TZ=Asia/Tokyo make -s B="$TMP/two" dist) >"$TMP/log" 2>&1 || fail "make dist, again"
cmp "$TMP"/one/dist/*.tar.gz "$TMP"/two/dist/*.tar.gz || fail "not the same bytes twice"
tar -tzf "$TMP"/one/dist/*.tar.gz | grep '/arch/arch.h$' >/dev/null || fail "arch.h is not in it"

# ---- an RPM of it
nice tools/packaging/rpm/build.sh "$TMP/one" >"$TMP/log" 2>&1 ||
	fail "rpmbuild: $(tail -n 5 "$TMP/log")"
rpm=$(tail -n 1 "$TMP/log")
mkdir "$TMP/to" && (cd "$TMP/to" && rpm2cpio "$rpm" | cpio -idm --quiet) || fail "rpm2cpio"
for f in usr/lib64/librdmashim.so usr/bin/rdmastat etc/rdmashim.conf \
	usr/share/man/man1/rdmastat.1; do
	# a newer rpm packs manuals
	[[ -s $TMP/to/$f || -s $TMP/to/$f.gz ]] || fail "the RPM lacks $f"
done
said=$(RDMASHIM_CONF=/nowhere "$TMP/to/usr/bin/rdmarun" sh -c 'echo $LD_PRELOAD')
[[ $said == "$(realpath "$TMP/to")/usr/lib64/librdmashim.so" ]] || fail "rdmarun: '$said'"
commit=$(git describe --always --abbrev=10)
[[ $("$TMP/to/usr/bin/rdmastat" --version) == *"$commit"* ]] || fail "no commit in what was built"

# ---- installed in a root of RPM's, as it should be, and removed: nothing stays
((!EUID)) && busybox sh -c : 2>/dev/null || { say "no root, no busybox: not installed"; exit 0; }
R=$TMP/with-rpm
mkdir -p "$R/bin" "$R/etc/profile.d"
cp "$(command -v busybox)" "$R/bin/"
for c in sh grep sort sed tr cat; do ln -s busybox "$R/bin/$c"; done
at_root() { rpm --root "$R" --dbpath /var/lib/rpm "$@"; }
at_root --nodeps -i "$rpm" >"$TMP/log" 2>&1 || fail "rpm -i: $(<"$TMP/log")"
at_root -V --nodeps rdmashim >"$TMP/log" 2>&1 || fail "rpm -V: $(<"$TMP/log")"
[[ -s $R/usr/lib64/librdmashim.so ]] || fail "no library in lib64"
at_root -qp --requires "$rpm" >"$TMP/wants" 2>/dev/null
grep -q '^libjson-c\.so' "$TMP/wants" || fail "it does not say what it needs: $(<"$TMP/wants")"
echo "export LD_PRELOAD=/usr/lib64/librdmashim.so" >"$R/etc/profile.d/fast.sh"
at_root -e rdmashim >"$TMP/log" 2>&1 || fail "rpm -e: $(<"$TMP/log")"
grep -q '/etc/profile.d/fast.sh' "$TMP/log" ||
	fail "rpm -e does not say who names it: $(<"$TMP/log")"
left=$(find "$R" -name '*rdma*' ! -path '*/var/lib/rpm*')
[[ -z $left ]] || fail "rpm -e leaves: $left"
