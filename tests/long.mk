# long.mk - tests that are not part of make check: sanitizers, mutants, guests, hours of work.
# What each sanitizer's runtime can bear (longer than check); TESTS= and SAN= narrow it.
check-san:
	@MAKE="$(MAKE)" SAN="$(SAN)" TESTS="$(TESTS)" tests/scripts/sanitizers.sh

# Every snippet under ThreadSanitizer: make SAN=thread check-races. check-san does.
check-races: tests
	@$(run_tests) 'snippets/races@1800=tests/scripts/snippet-races.sh'

# Takes each rule that the simulator does not model out of a copy of the sources and wants a test
# to fail (10 minutes).
check-mutants: deps deps-check
	@tests/mutants/run.py $(M)

# Emulated guests: tests/vm/run prints a line per test, as run-tests.sh does.
run_vm = B=$(B) SHIM=$(lib) SAN=$(SAN) tests/vm/run
check-vm: tests
	@HOSTS="$(HOSTS)" DEVICE="$(DEVICE)" $(run_vm) $(T)
vm-shell: tests
	@HOSTS=$(or $(HOSTS),1) DEVICE=$(or $(DEVICE),rxe) $(run_vm) --shell

SECS ?= 60
# Every system call that the library makes fails, one use after the other.
check-faults: tests
	@$(run_tests) 'hostile/fault-table@5400=tests/hostile/faults.sh --table' \
		'gpu/fault-table@1200=tests/gpu/faults.sh --table'

soak: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/soak.sh \
		$(if $(findstring command,$(origin SECS)),$(SECS),3600)

# What a hostile process, user or file may try, for as long as asked; T="NAME..." only those.
attack: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/attack.sh \
		$(if $(findstring command,$(origin SECS)),$(SECS),600) $(T)

# Many connections of real servers, and a peer killed every second.
crowd: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/crowd.sh \
		$(if $(findstring command,$(origin SECS)),$(SECS),300) $(CONNECTIONS)

random-cut: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/apps/random-cut.sh $(SECS)
