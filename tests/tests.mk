# tests.mk - the tests of make check, and parts of it.
# ---- tests: NAME[@SECONDS]=COMMAND, run by tests/scripts/run-tests.sh one after the other
timeout_of   = $(addprefix @,$(firstword $(call head_line,TIMEOUT,$(1))))
unit_list    = \
	$(foreach s,$(unit_src),'$(patsubst tests/%.c,%,$(s))$(call timeout_of,$(s))=$(patsubst \
	tests/%.c,$(B)/%,$(s))')
script_list  = $(foreach s,$(1),'$(patsubst tests/%.sh,%,$(s))$(call timeout_of,$(s))=$(s)')
app_src     := $(filter-out tests/apps/lib.sh,$(wildcard tests/apps/*.sh))
# The simulator: random schedules, all small ones, lying peers, and that each rule of the machine
# is needed (from a seed near which all are found soon).
sim_list     = $(if $(sim),'sim/random@300=$(sim) --random 100000' 'sim/exhaustive@300=$(sim) \
	--exhaustive' \
	'sim/hostile@300=$(sim) --hostile 100000' 'sim/rules@300=$(sim) --rules --seed 1')
model_list   = $(if $(wildcard tests/sim/check-model.sh),'sim/model@1200=tests/sim/check-model.sh \
	$(sim)')
other_list   = \
	$(call script_list,$(wildcard tests/unit/test_*.sh tests/scripts/check-*.sh \
	tests/hostile/*.sh tests/snippets/*.sh))
app_list     = $(call script_list,$(app_src))
gpu_list     = $(call script_list,$(filter-out tests/gpu/lib.sh,$(wildcard tests/gpu/*.sh)))
# Those in emulated guests share the guests: one command runs them all.
# One guest, in part, is what `make check` has time for; make check-vm runs all of them.
vm_some      = verbs.rxe.1host tcp.1host rdma-basic.rxe.1host rdma-basic.siw.1host rdma-forked.rxe \
	strict
vm_list      = 'vm=+tests/vm/run$(if $(TESTS),, $(vm_some))'
run_tests    = B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/run-tests.sh

# Without the fuzz targets: they want clang, and only two of those who need this run them.
tests: all $(B)/no-deferred/librdmashim.so deps-check $(units) $(progs) $(sim) $(standin) \
	$(gpu_progs)
fuzz-bins: $(if $(SAN),,$(fuzz_bins))
check:
	@$(MAKE) --no-print-directory -j$$(nproc) tests fuzz-bins
# the longest first
	@$(run_tests) $(vm_list) $(unit_list) $(sim_list) $(model_list) $(other_list) $(app_list) \
		$(gpu_list)
# What is quick: the parts one by one, the machine, and what the tree says of itself.
fast_list    = 'sim/random@120=$(sim) --random 20000' 'sim/hostile@120=$(sim) --hostile 20000' \
	$(call script_list,$(patsubst %,tests/scripts/check-%.sh,arrows docs lint promised \
	sizes text))
check-fast: all deps-check $(units) $(sim)
	@$(run_tests) $(unit_list) $(fast_list)
check-unit: deps deps-check $(units)
	@$(run_tests) $(unit_list)
check-sim: deps $(sim)
	@$(run_tests) $(sim_list)
check-model: deps deps-check $(sim)
	@$(run_tests) $(model_list)
check-scripts: tests fuzz-bins
	@$(run_tests) $(other_list)
check-apps: tests
	@$(run_tests) $(app_list)

# Other projects' tests, all of them; check-apps runs a short set.
deps-suites:
	@tests/scripts/deps.sh suites
check-suites: tests deps-suites
	@$(run_tests) 'suites/python@1500=tests/apps/python-suite.sh all' \
		'suites/java@400=tests/suites/java.sh' 'suites/stress@600=tests/suites/stress.sh' \
		'suites/postgres@2400=tests/suites/postgres.sh'

# Programs that others wrote. What cannot be installed is skipped.
zoo_list     = \
	$(call script_list,$(filter-out tests/zoo/lib.sh \
	tests/zoo/table.sh,$(wildcard tests/zoo/*.sh)))
check-zoo: all
	@tests/scripts/deps.sh zoo || true
	@rm -rf $(B)/zoo; $(run_tests) $(zoo_list) | tests/zoo/table.sh $(B)

# The samples for clusters, in a real Slurm of one node and in a real pod; both private to the
# test. As root.
check-jobs: tests deps-jobs
	@$(run_tests) $(call script_list,$(wildcard tests/jobs/*.sh))
