# shellcheck shell=bash
# golang.bash - sourced behind lib.sh by the tests of Go programs: they need a compiler of Go's, and
# of C for cgo.
command -v go >/dev/null || skip "no go (package golang-go)"
[[ $(go version) != *go1.1[0-7]* ]] || skip "$(go version), which is too old"
[[ $(go env GOARCH) == amd64 ]] || skip "no stubs of this processor are known"
[[ -z ${SAN-} ]] || skip "a sanitizer follows no stack of the library's own"
mkdir -p "$B/go"
# Nothing of the user's; what was compiled once is kept.
export GOCACHE=$B/go/cache GOPATH=$TMP/gopath GO111MODULE=off GOFLAGS='' GOTOOLCHAIN=local
export CGO_ENABLED=1 HOME=$TMP

# build_go OUT ARGUMENTS...
build_go() {
	nice go build -o "$@" >"$TMP/go.log" 2>&1 || fail "go build: $(tail -n 5 "$TMP/go.log")"
}
