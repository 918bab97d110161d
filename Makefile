# rdmashim - build, test and install. `make help` lists the targets.
#
# Sources are found by wildcard: a new file in a folder of shim/ or rdma/, in policy/ or tests/ needs no change here.
# A test names the objects that it needs beside policy/*.c in a line of its head:
#	// LINK: shim/cut/cut.c rdma/shm/arena.c
#	// LIBS: -ldl
#	// TIMEOUT: 60

SHELL     := /bin/bash
PREFIX    ?= /usr/local
BINDIR    ?= $(PREFIX)/bin
LIBDIR    ?= $(PREFIX)/lib
DATADIR   ?= $(PREFIX)/share
CC        := gcc
CLANG     ?= clang
SAN       ?=
V         ?= 0

# Each sanitizer has a build directory of its own: their objects don't mix.
B := build$(if $(SAN),/$(SAN))
ifneq ($(filter-out address undefined thread,$(SAN)),)
$(error SAN=$(SAN): say address, undefined or thread)
endif

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' $(1) $(2);)

# An #include names the folder: "base/lock.h" is shim/base/lock.h, "ground/statfile.h" is tools/rdmastat/ground/statfile.h, "policy/log.h" and "rdma/shm/ring.h" are what they say.
# The library is also loaded into programs that use 32-bit off_t names: it must see the plain ones.
BASE_CFLAGS := -std=gnu11 -O2 -g -D_GNU_SOURCE -U_FILE_OFFSET_BITS -U_TIME_BITS -fPIC \
	-fvisibility=hidden -fno-semantic-interposition -Wall -Wextra -Werror -pthread -iquote shim -iquote . -iquote tools/rdmastat
# GCC warns that ThreadSanitizer does not see fences: what they order are atomics, which it does see.
SAN_undefined := -fno-sanitize-recover=undefined
SAN_thread    := -Wno-tsan
SAN_FLAGS   := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(SAN_$(SAN)))
# Of the products, not of tests; scripts/check-hardening looks for it. Not the strong stack protector: it would guard the frames of a message's way, which
# have no arrays, for 27 instructions a message.
HARD := $(if $(SAN),,-fstack-protector -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
HARD_LDFLAGS := -Wl,-z,relro,-z,now,-z,noexecstack
ALL_CFLAGS   = $(BASE_CFLAGS) $(SAN_FLAGS) $(HARD_CFLAGS) $(CFLAGS)
# nodelete: an application that dlcloses us must not unmap code that other threads are in.
LIB_LDFLAGS := -shared -pthread $(SAN_FLAGS) $(HARD_LDFLAGS) -Wl,-z,nodelete -Wl,-soname,librdmashim.so $(LDFLAGS)

lib_src    := $(wildcard shim/*/*.c rdma/*/*.c policy/*.c)
policy_src := $(wildcard policy/*.c)
stat_src   := $(wildcard tools/rdmastat/*/*.c) tools/findlib.c $(policy_src)
run_src    := $(if $(wildcard tools/rdmarun.c),tools/rdmarun.c tools/findlib.c tools/rdmastat/ground/rdmastat_text.c $(wildcard tools/rdmastat/ground/statfile*.c) $(policy_src))
unit_src   := $(wildcard tests/unit/test_*.c)
prog_src   := $(wildcard tests/apps/*.c tests/bench/*.c tests/hostile/*.c tests/snippets/*.c)
sim_src    := $(wildcard tests/sim/*.c)
map_gen    := $(wildcard tools/gen-map.sh)

obj     = $(patsubst %.c,$(B)/o/%.o,$(1))
# What a test names in its head: $(call head_line,KEY,FILE)
head_line = $(shell sed -n '1,40s,^.*[*/#] *$(1): *\([^*]*\).*,\1,p' $(2) | tr '\n' ' ')

lib      := $(if $(and $(map_gen),$(wildcard shim/*/*.c)),$(B)/librdmashim.so)
rdmastat := $(if $(stat_src),$(B)/rdmastat)
rdmarun  := $(if $(run_src),$(B)/rdmarun)
units    := $(patsubst tests/unit/%.c,$(B)/unit/%,$(unit_src))
progs    := $(patsubst tests/%.c,$(B)/%,$(prog_src))
sim      := $(if $(sim_src),$(B)/sim)
fuzz_bins := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/*.c))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all tests fuzz-bins demo check check-sim check-unit check-apps check-model check-scripts check-suites check-zoo check-mutants check-san random-cut
.PHONY: bench check-gpu bench-gpu gpu-run install uninstall docs clean help deb deps deps-demo deps-check deps-deb FORCE
.PHONY: check-races check-jobs deps-jobs bench-rdmastat bench-counters bench-snippets bench-validation deps-counters
.PHONY: attack check-vm vm-shell bench-vm fuzz fuzz-run fuzz-long fuzz-afl deps-fuzz deps-fuzz-afl soak crowd check-faults
.PHONY: deps-bench deps-bench-apps bench-apps bench-load deps-suites

help:
	@echo 'make              build $(B)/librdmashim.so, $(B)/rdmastat and $(B)/rdmarun'
	@echo 'make demo         redis-benchmark on plain TCP and under the shim, as a table (under 2 minutes)'
	@echo 'make check        all tests; the last line is "N passed, N failed, N skipped"'
	@echo '     check-unit check-sim check-model check-scripts check-apps    parts of it'
	@echo '     TESTS="unit/* apps/redis"    only those tests (shell patterns on their names)'
	@echo 'make check-vm     the tests of tests/vm in emulated guests with RDMA devices; T="NAME FILE" only those, HOSTS= DEVICE= only there'
	@echo 'make vm-shell     a shell in such a guest (HOSTS=1|2 DEVICE=rxe|siw|none)'
	@echo 'make bench-nic    TCP, raw verbs and the shim on a simulated RDMA device (tests/nic), side by side (N=5 rounds)'
	@echo 'make bench-vm     TCP, raw verbs, rsockets and the shim in the guests, side by side (N=3 runs)'
	@echo 'make fuzz         lists the fuzz targets; T=NAME SECS=60 runs one of them'
	@echo 'make fuzz-afl      the same by AFL++, of the targets that are a function of their input alone; T=NAME SECS=60'
	@echo 'make fuzz-long    all fuzz targets in parallel (SECS=3600 JOBS=); make fuzz-run only packs them in $(B)/fuzz-run for another machine'
	@echo 'make check-faults  every system call that the library makes fails, one use after the other (an hour)'
	@echo 'make soak          checked streams for an hour (SECS=) among cuts, forks, kills, policy changes, and losses of an RDMA device'
	@echo 'make attack       all attacks of tests/hostile again and again (SECS=600; T="peer stranger" only those)'
	@echo 'make crowd         10,000 connections to redis and nginx, a peer killed every second (SECS=300 CONNECTIONS=)'
	@echo 'make check-suites CPython'"'"'s own tests of sockets and what stands on them, Java channels and sockets, stress-ng, PostgreSQL'"'"'s installcheck (30 minutes)'
	@echo 'make check-zoo    15 programs that others wrote, by the default policy and under forced cuts, against bare: a table (10 minutes)'
	@echo 'make check-san    the tests that they can bear under three sanitizers, one after the other'
	@echo 'make random-cut   real programs for SECS=60 seconds each, cut over and rewound every 10 ms'
	@echo 'make bench        sockbench on TCP and under the shim, interleaved: table, floors, chart (N=5 rounds)'
	@echo 'make bench-load   1, 2 and 4 pairs of sockbench beside 0, 1 and 2 programs that compute, against TCP (N=3 rounds, 4 minutes)'
	@echo 'make check-gpu    the device lane on real GPUs; make bench-gpu measures it; make gpu-run packs both for a machine without a compiler'
	@echo 'make bench-rdmastat   how long rdmastat takes with 200 processes and 10,000 connections, and that none takes more than 200 ms'
	@echo 'make bench-counters  what share of the instructions of a message counts and traces'
	@echo 'make bench-validation  what it costs a message that a peer may lie, against a build that believes him'
	@echo 'make check-jobs   the samples in conf/ for Slurm and Kubernetes, in a Slurm and a pod of this machine alone (as root)'
	@echo 'make bench-snippets  which snippets take more than three times as long preloaded as on the kernel alone (N=5 rounds)'
	@echo 'make bench-apps   real programs, both ends or one preloaded, as a table (N=5 rounds, APPS="redis nginx")'
	@echo 'make docs         generate the reference pages from their tables'
	@echo 'make install      into PREFIX=$(PREFIX) (DESTDIR= too); make uninstall'
	@echo 'make deb          Debian packages in $(B)/deb, looked at by lintian'
	@echo 'make clean        remove build/'
	@echo 'SAN=address|undefined|thread builds and tests in build/SAN; V=1 shows the commands'

all: deps $(lib) $(rdmastat) $(rdmarun)

# ---- packages: looked at once, installed when root and missing
deps:       $(B)/.deps-build
deps-demo:  $(B)/.deps-demo
deps-check: $(B)/.deps-check
deps-deb:   $(B)/.deps-deb
deps-fuzz:  $(B)/.deps-fuzz
deps-fuzz-afl: $(B)/.deps-fuzz-afl
deps-jobs:  $(B)/.deps-jobs
deps-counters: $(B)/.deps-counters
deps-bench: $(B)/.deps-bench
deps-bench-apps: $(B)/.deps-bench-apps
$(B)/.deps-%: tests/scripts/deps.sh
	@mkdir -p $(@D)
	@tests/scripts/deps.sh $*
	@touch $@

# ---- objects. $(B)/.flags changes when the flags do.
$(B)/.flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(ALL_CFLAGS) $(HARD)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(HARD)' > $@

# The same for the commit, which one object knows.
version := $(shell cat VERSION)$(shell [ -e .git ] && d=$$(git describe --always --dirty --abbrev=10 2>/dev/null) && echo " ($$d)")
$(B)/.version: FORCE
	@mkdir -p $(@D); echo '$(version)' | cmp -s - $@ || echo '$(version)' > $@
$(B)/o/policy/version.o: $(B)/.version
$(B)/o/policy/version.o: private CPPFLAGS += -DRDMASHIM_VERSION='"$(version)"'

$(call obj,$(sort $(lib_src) $(stat_src) $(run_src))): private HARD_CFLAGS := $(HARD)

$(B)/o/%.o: %.c $(B)/.flags | $(B)/.deps-build
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(call obj,$(unit_src)): | $(B)/.deps-check

# The simulator has its own build of the cut machine: with -DCUT_SIM it can break rules on purpose.
$(B)/o/sim/%.o: %.c $(B)/.flags | $(B)/.deps-build
	$(call say,CC,'$< (sim)')mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -DCUT_SIM -MMD -MP -c -o $@ $<

# ---- products
$(B)/shim.map: $(map_gen) $(wildcard shim/*/*.def)
	$(call say,GEN,$@)mkdir -p $(@D) && tools/gen-map.sh > $@

# Renamed into place: programs that run with the old one keep it.
$(B)/librdmashim.so: $(call obj,$(lib_src)) $(B)/shim.map
	$(call say,LD,$@)$(CC) $(LIB_LDFLAGS) -Wl,--version-script=$(B)/shim.map -o $@.new $(filter %.o,$^) -ldl && mv $@.new $@

stat_libs := -ljson-c -lncursesw -ltinfo -lm -lunwind-ptrace -lunwind-generic -lunwind
$(B)/rdmastat: $(call obj,$(stat_src))
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(HARD_LDFLAGS) $(LDFLAGS) -o $@ $^ $(stat_libs)

$(B)/rdmarun: $(call obj,$(run_src))
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(HARD_LDFLAGS) $(LDFLAGS) -o $@ $^

$(B)/sim: $(patsubst %.c,$(B)/o/sim/%.o,$(sim_src) shim/cut/cut.c)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^

# $(call test_rule,SOURCE,PROGRAM,LIBRARIES,OBJECTS)
define test_rule
$(2): $(call obj,$(sort $(1) $(4) $(call head_line,LINK,$(1))))
	$$(call say,LD,$(2))mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $$(LDFLAGS) -o $$@ $$^ $(3) $(call head_line,LIBS,$(1))
endef
check_libs := -lcheck -lsubunit -lm -lrt
$(foreach s,$(unit_src),$(eval $(call test_rule,$(s),$(patsubst tests/unit/%.c,$(B)/unit/%,$(s)),$(check_libs),$(policy_src))))
$(foreach s,$(prog_src),$(eval $(call test_rule,$(s),$(patsubst tests/%.c,$(B)/%,$(s)),,)))

# ---- GPU tests: a stand-in for the CUDA driver; programs linked with it run on the real one too
gpu_src   := $(filter-out %/standin.c %/drv.c,$(wildcard tests/gpu/*.c))
gpu_progs := $(patsubst tests/%.c,$(B)/%,$(gpu_src))
standin   := $(if $(gpu_src),$(B)/gpu/libcuda.so.1)

# What its cuGetProcAddress may answer: its own exports.
$(B)/gpu/symbols.c: $(B)/o/tests/gpu/standin.o
	$(call say,GEN,$@)mkdir -p $(@D) && { echo '#include <string.h>'; echo '#include "standin.h"'; \
		nm --defined-only $< | sed -n 's/.* T \(cu[A-Za-z0-9_]*\)$$/extern int \1(void);/p'; \
		echo 'static const struct { const char *name; void *p; } all[] = {'; \
		nm --defined-only $< | sed -n 's/.* T \(cu[A-Za-z0-9_]*\)$$/	{ "\1", (void *)\1 },/p'; \
		echo '};'; echo 'void *standin_symbol(const char *name)'; echo '{'; \
		echo '	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)'; \
		echo '		if (!strcmp(all[i].name, name))'; echo '			return all[i].p;'; \
		echo '	return 0;'; echo '}'; } > $@
$(B)/gpu/libcuda.so.1: $(B)/o/tests/gpu/standin.o $(B)/gpu/symbols.c
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -Itests/gpu -o $@ $^
$(gpu_progs): $(B)/gpu/%: $(B)/o/tests/gpu/%.o $(B)/o/tests/gpu/drv.o $(standin)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,--no-as-needed -o $@ $(filter %.o,$^) $(standin) -ldl

# ---- tests: NAME[@SECONDS]=COMMAND, run by tests/scripts/run-tests.sh one after the other
timeout_of   = $(addprefix @,$(firstword $(call head_line,TIMEOUT,$(1))))
unit_list    = $(foreach s,$(unit_src),'$(patsubst tests/%.c,%,$(s))$(call timeout_of,$(s))=$(patsubst tests/%.c,$(B)/%,$(s))')
script_list  = $(foreach s,$(1),'$(patsubst tests/%.sh,%,$(s))$(call timeout_of,$(s))=$(s)')
app_src     := $(filter-out tests/apps/lib.sh,$(wildcard tests/apps/*.sh))
# The simulator: random schedules, all small ones, lying peers, and that each rule of the machine is needed (from a seed near which all are found soon).
sim_list     = $(if $(sim),'sim/random@300=$(sim) --random 100000' 'sim/exhaustive@300=$(sim) --exhaustive' \
	'sim/hostile@300=$(sim) --hostile 100000' 'sim/rules@300=$(sim) --rules --seed 1')
model_list   = $(if $(wildcard tests/sim/check-model.sh),'sim/model@1200=tests/sim/check-model.sh $(sim)')
other_list   = $(call script_list,$(wildcard tests/unit/test_*.sh tests/scripts/check-*.sh tests/hostile/*.sh tests/snippets/*.sh))
app_list     = $(call script_list,$(app_src))
gpu_list     = $(call script_list,$(filter-out tests/gpu/lib.sh,$(wildcard tests/gpu/*.sh)))
# Those in emulated guests share the guests: one command runs them all.
# One guest, in part, is what `make check` has time for; make check-vm runs all of them.
vm_some      = verbs.rxe.1host tcp.1host rdma-basic.rxe.1host rdma-basic.siw.1host rdma-forked.rxe strict
vm_list      = 'vm=+tests/vm/run$(if $(TESTS),, $(vm_some))'
run_tests    = B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/run-tests.sh

# Without the fuzz targets: they want clang, and only two of those who need this run them.
tests: all deps-check $(units) $(progs) $(sim) $(standin) $(gpu_progs)
fuzz-bins: $(if $(SAN),,$(fuzz_bins))
check:
	@$(MAKE) --no-print-directory -j$$(nproc) tests fuzz-bins
	@$(run_tests) $(vm_list) $(unit_list) $(sim_list) $(model_list) $(other_list) $(app_list) $(gpu_list)	# the longest first
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

include tests/nic/nic.mk

# Other projects' tests, all of them; check-apps runs a short set.
deps-suites:
	@tests/scripts/deps.sh suites
check-suites: tests deps-suites
	@$(run_tests) 'suites/python@1500=tests/apps/python-suite.sh all' 'suites/java@400=tests/suites/java.sh' 'suites/stress@600=tests/suites/stress.sh' \
		'suites/postgres@2400=tests/suites/postgres.sh'

# Programs that others wrote. What cannot be installed is skipped.
zoo_list     = $(call script_list,$(filter-out tests/zoo/lib.sh tests/zoo/table.sh,$(wildcard tests/zoo/*.sh)))
check-zoo: all
	@tests/scripts/deps.sh zoo || true
	@rm -rf $(B)/zoo; $(run_tests) $(zoo_list) | tests/zoo/table.sh $(B)

# ---- fuzzing: tests/fuzz/NAME.c with the objects that its head names, by clang's libFuzzer. In its LINK line SHIM stands for
# the whole library but for its wrappers, its start and the background thread, which world.h takes in or makes up by itself.
fuzz_cflags := -D__SANITIZE_ADDRESS__ $(filter-out -fPIC -fno-semantic-interposition,$(BASE_CFLAGS)) -O1 -fsanitize=fuzzer-no-link,address,undefined \
	-fsanitize=float-cast-overflow -fno-sanitize=alignment -fno-sanitize-recover=undefined,float-cast-overflow \
	-fno-omit-frame-pointer -ffunction-sections \
	-fno-sanitize=function	# tables of calls are of one type, and cast where they are called
fuzz_names  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
fuzz_shim   := $(filter-out shim/wrap/wrap_%.c shim/main/init.c shim/libc/libc.c shim/main/bg.c shim/base/loop.c shim/base/shim.c shim/conn/counters.c policy/%.c,$(lib_src))
fuzz_obj     = $(patsubst %.c,$(B)/fuzz/o/%.o,$(1))
fuzz_link    = $(patsubst SHIM,$(fuzz_shim),$(call head_line,LINK,$(1)))
$(B)/fuzz/o/%.o: %.c | deps-fuzz
	$(call say,FUZZ,$<)mkdir -p $(@D) && $(CLANG) $(fuzz_cflags) -MMD -MP -c -o $@ $<
$(call fuzz_obj,tests/fuzz/completion.c): tools/completion/rdmastat.bash
define fuzz_rule
$(B)/fuzz/$(1): $(call fuzz_obj,$(sort tests/fuzz/$(1).c $(policy_src) $(filter-out $(call head_line,UNLINK,tests/fuzz/$(1).c),$(call fuzz_link,tests/fuzz/$(1).c))))
	$$(call say,FUZZ,$$@)$(CLANG) $$(fuzz_cflags) -fsanitize=fuzzer -Wl,--gc-sections $(call head_line,LIBS,tests/fuzz/$(1).c) -o $$@ $$^ -ldl
endef
$(foreach n,$(fuzz_names),$(eval $(call fuzz_rule,$(n))))
fuzz: $(if $(T),$(B)/fuzz/$(T))
	@$(if $(T),B=$(B) tests/fuzz/run $(T) $(SECS),echo 'make fuzz T=NAME SECS=60, with one of: $(fuzz_names)')

# The same under AFL++, of those targets that are a function of their input alone: no threads, no sockets, no process around them.
afl_names := cm device filter http import policy record report stat
afl_obj    = $(patsubst %.c,$(B)/afl/o/%.o,$(1))
$(B)/afl/o/%.o: %.c | deps-fuzz-afl
	$(call say,AFL,$<)mkdir -p $(@D) && AFL_QUIET=1 afl-clang-fast $(fuzz_cflags) -MMD -MP -c -o $@ $<
define afl_rule
$(B)/afl/$(1): $(call afl_obj,$(sort tests/fuzz/$(1).c $(policy_src) $(filter-out $(call head_line,UNLINK,tests/fuzz/$(1).c),$(call fuzz_link,tests/fuzz/$(1).c))))
	$$(call say,AFL,$$@)AFL_QUIET=1 afl-clang-fast $$(fuzz_cflags) -fsanitize=fuzzer -Wl,--gc-sections $(call head_line,LIBS,tests/fuzz/$(1).c) -o $$@ $$^ -ldl
endef
$(foreach n,$(afl_names),$(eval $(call afl_rule,$(n))))
fuzz-afl: $(if $(T),$(B)/afl/$(T))
	@$(if $(T),B=$(B) tests/fuzz/afl $(T) $(SECS),echo 'make fuzz-afl T=NAME SECS=60, with one of: $(afl_names)')

# All targets in parallel, from a directory that may be copied to another machine: $(B)/fuzz-run/long.sh [SECS [JOBS]].
fuzz-run: $(fuzz_bins)
	$(Q)rm -rf $(B)/fuzz-run/lib && mkdir -p $(B)/fuzz-run/bin $(B)/fuzz-run/lib $(B)/fuzz-run/seeds
	$(Q)install $(fuzz_bins) $(B)/fuzz-run/bin && install tests/fuzz/long.sh $(B)/fuzz-run && cp tests/fuzz/*.dict $(B)/fuzz-run
	$(Q)cp -r tests/fuzz/corpus/* $(B)/fuzz-run/seeds
	$(Q)cp -L $$(ldd $(fuzz_bins) | awk '/=> \// { print $$3 } /^\t\/.*ld-linux/ { print $$1 }' | sort -u) $$(PATH=$$PATH:/sbin ldconfig -p | awk '/libnettle.so.8 .*x86-64/ { print $$NF; exit }') $(B)/fuzz-run/lib
fuzz-long: fuzz-run
	@$(B)/fuzz-run/long.sh $(if $(findstring command,$(origin SECS)),$(SECS),3600) $(or $(JOBS),$(shell nproc))

# What each sanitizer's runtime can bear (longer than check); TESTS= and SAN= narrow it.
check-san:
	@MAKE="$(MAKE)" SAN="$(SAN)" TESTS="$(TESTS)" tests/scripts/sanitizers.sh

# Every snippet under ThreadSanitizer: make SAN=thread check-races. check-san does.
check-races: tests
	@$(run_tests) 'snippets/races@1800=tests/scripts/snippet-races.sh'

# Takes each rule that the simulator does not model out of a copy of the sources and wants a test to fail (10 minutes).
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
	@$(run_tests) 'hostile/fault-table@5400=tests/hostile/faults.sh --table' 'gpu/fault-table@1200=tests/gpu/faults.sh --table'

soak: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/soak.sh $(if $(findstring command,$(origin SECS)),$(SECS),3600)

# What a hostile process, user or file may try, for as long as asked; T="NAME..." only those.
attack: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/attack.sh $(if $(findstring command,$(origin SECS)),$(SECS),600) $(T)

# Many connections of real servers, and a peer killed every second.
crowd: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/scripts/crowd.sh $(if $(findstring command,$(origin SECS)),$(SECS),300) $(CONNECTIONS)

random-cut: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/apps/random-cut.sh $(SECS)

N ?= 5
bench: tests deps-bench
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/bench.sh $(N)

bench-load: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/load.sh $(N)

bench-apps: tests deps-bench deps-bench-apps
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/bench/apps.sh $(N) $(APPS)

# rdmastat itself, on many processes and connections.
bench-rdmastat: tests
	@B=$(B) SHIM=$(lib) tests/bench/rdmastat.py

# What counting costs, in instructions of a message.
bench-counters: tests deps-counters
	@B=$(B) SHIM=$(lib) tests/bench/counters.py

# Which snippets take more than three times as long preloaded as on the kernel alone.
bench-snippets: tests
	@B=$(B) SHIM=$(lib) tests/snippets/slow.py -n $(if $(findstring command,$(origin N)),$(N),5)

# What it costs a message that a peer may lie: against a build that believes him, made for this only.
bench-validation: tests deps-counters
	@B=$(B) SHIM=$(lib) tests/bench/validation.py $(if $(findstring command,$(origin N)),$(N),20)

bench-vm: tests
	@VM_ARGS="$(N)" $(run_vm) --output tests/bench/vm.sh

# A newcomer waits for this one: built on all processors.
demo: deps deps-demo
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@B=$(B) SHIM=$(lib) tools/demo.sh

# ---- documents generated from the tables; tests/scripts/check-docs.sh says when they are stale
# tools/gen-NAME-doc.sh prints docs/NAME.md.
docs: deps
	$(Q)for g in $(wildcard tools/gen-*-doc.sh); do d=$${g#tools/gen-}; d=docs/$${d%-doc.sh}.md; \
		$$g > $$d.new && mv $$d.new $$d || exit 1; echo "  GEN     $$d"; done

# What goes where: FILES:MODE:DIRECTORY. Directories below conf/ keep their names.
SYSDIR ?= $(DATADIR)/rdmashim
DOCDIR ?= $(DATADIR)/doc/rdmashim
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR ?= $(DATADIR)/zsh/site-functions
man_pages := $(wildcard docs/*.1 docs/*.5 docs/*.7)
put = $(Q)install -D -m $(1) $(2) $(DESTDIR)$(3)

install: all
	$(if $(lib),$(call put,644,$(lib),$(LIBDIR)/librdmashim.so))
	$(if $(rdmastat),$(call put,755,$(rdmastat),$(BINDIR)/rdmastat))
	$(if $(rdmarun),$(call put,755,$(rdmarun),$(BINDIR)/rdmarun))
	$(Q)cd conf && find . -type f | while read -r f; do case $$f in *.sh) m=755;; *) m=644;; esac; \
		install -D -m $$m "$$f" "$(DESTDIR)$(SYSDIR)/$${f#./}" || exit 1; done
	$(Q)for f in $(man_pages); do install -D -m 644 $$f $(DESTDIR)$(DATADIR)/man/man$${f##*.}/$${f##*/} || exit 1; done
	$(Q)for f in README.md $(wildcard docs/*.md); do install -D -m 644 $$f $(DESTDIR)$(DOCDIR)/$${f##*/} || exit 1; done
	$(call put,644,tools/completion/rdmastat.bash,$(BASHDIR)/rdmastat)
	$(Q)ln -sf rdmastat $(DESTDIR)$(BASHDIR)/rdmarun
	$(call put,644,tools/completion/_rdmastat,$(ZSHDIR)/_rdmastat)

uninstall:
	$(Q)rm -f $(DESTDIR)$(LIBDIR)/librdmashim.so $(DESTDIR)$(BINDIR)/rdmastat $(DESTDIR)$(BINDIR)/rdmarun
	$(Q)rm -f $(DESTDIR)$(BASHDIR)/rdmastat $(DESTDIR)$(BASHDIR)/rdmarun $(DESTDIR)$(ZSHDIR)/_rdmastat
	$(Q)rm -rf $(DESTDIR)$(SYSDIR) $(DESTDIR)$(DOCDIR)
	$(Q)for f in $(man_pages); do rm -f $(DESTDIR)$(DATADIR)/man/man$${f##*.}/$${f##*/}; done

# A Debian package, and one with its debugging symbols, in $(B)/deb. Built from a copy of the tree.
deb: deps-deb
	$(Q)rm -rf $(B)/deb && mkdir -p $(B)/deb/rdmashim
	$(Q)tar -c --exclude=./build --exclude=./.git --exclude='*.o' . | tar -x -C $(B)/deb/rdmashim && cp -r tools/packaging/debian $(B)/deb/rdmashim/debian
	$(Q)cd $(B)/deb/rdmashim && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -b -us -uc >../build.log 2>&1 || { tail -n 30 ../build.log; exit 1; }
	$(Q)rm -rf $(B)/deb/rdmashim
	$(Q)cd $(B)/deb && lintian --fail-on error,warning --allow-root *.changes && ls *.deb

# The samples for clusters, in a real Slurm of one node and in a real pod; both private to the test. As root.
check-jobs: tests deps-jobs
	@$(run_tests) $(call script_list,$(wildcard tests/jobs/*.sh))

# On a machine with GPUs; tests/gpu/*.sh run everywhere, on the stand-in.
check-gpu: all $(gpu_progs)
	@B=$(B) SHIM=$(lib) tests/gpu/real/check.sh
bench-gpu: all $(gpu_progs) $(B)/bench/allreduce $(B)/bench/chunks
	@B=$(B) SHIM=$(lib) tests/gpu/real/bench.sh

# The same for a machine that cannot build: copy $(B)/gpu-run there, then in it: B=. bash tests/real/check.sh, bench.sh.
gpu-run: all $(gpu_progs) $(B)/bench/allreduce $(B)/bench/chunks
	$(Q)rm -rf $(B)/gpu-run && mkdir -p $(B)/gpu-run/gpu $(B)/gpu-run/lib $(B)/gpu-run/tests $(B)/gpu-run/bench
	$(Q)cp $(lib) $(rdmastat) $(B)/gpu-run && cp $(filter-out %/scenes,$(gpu_progs)) $(B)/gpu-run/gpu
	$(Q)cp $(B)/bench/allreduce $(B)/bench/chunks $(B)/gpu-run/bench
	$(Q)cp -L $$(ldd $(rdmastat) | awk '/json-c|ncursesw|tinfo|unwind|lzma/ { print $$3 }') $(B)/gpu-run/lib
	$(Q)cp -r tests/gpu/real tests/gpu/gloo.py $(B)/gpu-run/tests

clean:
	$(Q)rm -rf build

-include $(patsubst %.o,%.d,$(call obj,$(sort $(lib_src) $(stat_src) $(run_src) $(unit_src) $(prog_src) $(wildcard tests/gpu/*.c))))
-include $(patsubst %.c,$(B)/o/sim/%.d,$(sim_src) shim/cut/cut.c)
-include $(patsubst %.o,%.d,$(call fuzz_obj,$(sort $(wildcard tests/fuzz/*.c) $(lib_src) $(wildcard tools/rdmastat/*/*.c))))
