# netns.bash - network namespaces of a test, each kept by a process. Sourced after apps/lib.sh.
# shellcheck shell=bash

# Is that process in another network namespace? (Quoted: the brackets of "net:[N]" are a pattern
# otherwise.)
elsewhere() {
	local ns
	ns=$(readlink "/proc/$1/ns/net") && [[ $ns != "$(readlink /proc/self/ns/net)" ]]
}
# place VAR: a network namespace, and a process that keeps it
place() {
	unshare -n sleep 1000 3>&- &
	PIDS+=($!)
	within 10 elsewhere $! || fail "no network namespace"
	printf -v "$1" %s $!
}
# listens PID: does somebody listen on $port in the namespace of that process?
listens() { [[ -n $(nsenter -t "$1" -n ss -Hltn "sport = :$port") ]]; }
