# bench.mk - what is measured.
N ?= 5
bench: tests deps-bench
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/bench.sh $(N)

bench-load: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/load.sh $(N)

bench-apps: tests deps-bench deps-bench-apps
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/apps.sh $(N) $(APPS)

# Of the bytes of bulk answers, how many leave TCP, alone and beside programs that compute.
# PROGRAMS="curl bulk_page": some of them only.
bench-hits: tests deps-bench
	@B=$(B) SHIM=$(lib) tests/bench/hits.sh $(N) $(PROGRAMS)

# Between two network namespaces, over a bridge and by NAT. As root.
bench-ns: tests
	@B=$(B) SHIM=$(lib) tests/bench/ns.sh $(N)

# Connections of 1 to 300 requests: what does it cost those that are too short to gain?
bench-requests: tests deps-bench
	@B=$(B) SHIM=$(lib) tests/bench/requests.sh $(N)

# Programs of Go, with `go on`.
bench-go: tests deps-go
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/go.sh $(N)

# rdmastat itself, on many processes and connections.
bench-rdmastat: tests
	@B=$(B) SHIM=$(lib) tests/bench/rdmastat.py

# What counting costs, in instructions of a message.
bench-counters: tests deps-counters
	@B=$(B) SHIM=$(lib) tests/bench/counters.py

# Which snippets take more than three times as long preloaded as on the kernel alone.
bench-snippets: tests
	@B=$(B) SHIM=$(lib) tests/snippets/slow.py -n $(if $(findstring command,$(origin N)),$(N),5)

# What it costs a message that a peer may lie: against a build that believes him, made for this
# only.
bench-validation: tests deps-counters
	@B=$(B) SHIM=$(lib) tests/bench/validation.py \
		$(if $(findstring command,$(origin N)),$(N),20)

bench-vm: tests
	@VM_ARGS="$(N)" $(run_vm) --output tests/bench/vm.sh
