# rdmashim - build, test and install. `make help` lists the targets. What belongs to one part lies
# beside it: tests/tests.mk, tools/tools.mk and others, included below.
#
# Sources are found by wildcard: a new file in a folder of shim/ or rdma/, in policy/ or tests/
# needs no change here. A test names the objects that it needs beside policy/*.c in a line of its
# head:
#	// LINK: shim/cut/cut.c rdma/shm/segment.c
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
DEFERRED  ?= yes
V         ?= 0

# Each sanitizer has a build directory of its own: their objects don't mix.
B := build$(if $(SAN),/$(SAN))
ifneq ($(filter-out address undefined thread,$(SAN)),)
$(error SAN=$(SAN): say address, undefined or thread)
endif

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' $(1) $(2);)

# An #include names the folder: "base/lock.h" is shim/base/lock.h, "ground/statfile.h" is
# tools/rdmastat/ground/statfile.h, "policy/log.h" and "rdma/shm/ring.h" are what they say. The
# library is also loaded into programs that use 32-bit off_t names: it must see the plain ones.
BASE_CFLAGS := -std=gnu11 -O2 -g -D_GNU_SOURCE -U_FILE_OFFSET_BITS -U_TIME_BITS -fPIC \
	-fvisibility=hidden -fno-semantic-interposition -Wall -Wextra -Werror -pthread -iquote \
		shim -iquote . -iquote tools/rdmastat
# GCC warns that ThreadSanitizer does not see fences: what they order are atomics, which it does
# see.
SAN_undefined := -fno-sanitize-recover=undefined
SAN_thread    := -Wno-tsan
SAN_FLAGS   := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(SAN_$(SAN)))
# Of the products, not of tests; scripts/check-hardening looks for it. Not the strong stack
# protector: it would guard the frames of a message's way, which have no arrays, for 27
# instructions a message.
HARD := $(if $(SAN),,-fstack-protector -fstack-clash-protection -U_FORTIFY_SOURCE \
	-D_FORTIFY_SOURCE=2)
HARD_LDFLAGS := -Wl,-z,relro,-z,now,-z,noexecstack
ALL_CFLAGS   = $(BASE_CFLAGS) $(SAN_FLAGS) $(HARD_CFLAGS) $(CFLAGS)
# nodelete: an application that dlcloses us must not unmap code that other threads are in.
LIB_LDFLAGS := -shared -pthread $(SAN_FLAGS) $(HARD_LDFLAGS) -Wl,-z,nodelete \
	-Wl,-soname,librdmashim.so $(LDFLAGS)

lib_src    := $(wildcard shim/*/*.c rdma/*/*.c policy/*.c)
policy_src := $(wildcard policy/*.c)
stat_src   := $(wildcard tools/rdmastat/*/*.c) tools/findlib.c $(policy_src)
run_src    := $(if $(wildcard tools/rdmarun.c),tools/rdmarun.c tools/findlib.c tools/interp.c \
	tools/rdmastat/ground/rdmastat_text.c $(wildcard tools/rdmastat/ground/statfile*.c) \
	$(policy_src))
unit_src   := $(wildcard tests/unit/test_*.c)
prog_src   := $(wildcard tests/apps/*.c tests/bench/*.c tests/hostile/*.c tests/snippets/*.c)
sim_src    := $(wildcard tests/sim/*.c)
cut_src    := $(wildcard shim/cut/*.c)
map_gen    := $(wildcard tools/gen-map.sh)

obj     = $(patsubst %.c,$(B)/o/%.o,$(1))
# What a test names in its head: $(call head_line,KEY,FILE)
head_line = $(shell sed -n '1,40s,^.*[*/#] *$(1): *\([^*]*\).*,\1,p' $(2) | tr '\n' ' ')

# DEFERRED=no leaves the lazy GPU path out (docs/gpu.md). The objects are the same.
lib_part := $(if $(filter no,$(DEFERRED)),no-deferred/)
lib      := $(if $(and $(map_gen),$(wildcard shim/*/*.c)),$(B)/$(lib_part)librdmashim.so)
ifneq ($(filter-out clean help,$(or $(MAKECMDGOALS),all)),)
-include $(B)/.deps-build
endif
rdmastat := $(if $(filter rdmastat,$(left_out)),,$(if $(stat_src),$(B)/rdmastat))
rdmarun  := $(if $(run_src),$(B)/rdmarun)
units    := $(patsubst tests/unit/%.c,$(B)/unit/%,$(unit_src))
progs    := $(patsubst tests/%.c,$(B)/%,$(prog_src))
sim      := $(if $(sim_src),$(B)/sim)
fuzz_bins := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/*.c))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all tests fuzz-bins demo check check-fast check-sim check-unit check-apps check-model \
	check-scripts check-suites check-zoo check-mutants check-san random-cut
.PHONY: bench check-gpu bench-gpu gpu-run install uninstall docs clean help deb deps deps-demo \
	deps-check deps-deb FORCE
.PHONY: check-races check-jobs deps-jobs bench-rdmastat bench-counters bench-snippets \
	bench-validation deps-counters
.PHONY: attack check-vm vm-shell bench-vm fuzz fuzz-run fuzz-long fuzz-afl deps-fuzz deps-fuzz-afl \
	soak crowd check-faults
.PHONY: dist rpm deps-rpm deb-arm
.PHONY: deps-bench deps-bench-apps bench-apps bench-load bench-hits bench-requests bench-ns
.PHONY: deps-suites
.PHONY: bench-go deps-go

help:
	@echo 'make              build $(B)/librdmashim.so, $(B)/rdmastat and $(B)/rdmarun'
	@echo 'make demo         redis-benchmark on TCP and with the library, as a table (2' \
		'minutes)'
	@echo 'make check-fast   unit tests, simulator, structure: for the loop of work (90 s)'
	@echo 'make check        all tests; the last line is "N passed, N failed, N skipped"'
	@echo '     check-unit check-sim check-model check-scripts check-apps    parts of it'
	@echo '     TESTS="unit/* apps/redis"    only those tests (shell patterns on their names)'
	@echo 'make install      into PREFIX=$(PREFIX) (DESTDIR= too); make uninstall'
	@echo 'make deb, rpm     packages, deb-arm too; make dist: the sources'
	@echo 'make release      one binary for glibc 2.28 and later, run on four Debians (as root)'
	@echo 'make docs         generate the reference pages from their tables; make clean'
	@echo
	@echo 'Longer tests      (SECS= says how long, T="NAME..." which)'
	@echo '  check-vm        emulated guests with RDMA devices (HOSTS= DEVICE=);' \
		'vm-shell: a shell there'
	@echo '  check-san       three sanitizers; check-races: the snippets under ThreadSanitizer'
	@echo '  check-faults    each system call fails, one use after the other'
	@echo '  check-mutants   rules taken out of the sources must be missed by a test'
	@echo '  check-suites    tests of CPython, Java, stress-ng, PostgreSQL;' \
		'check-zoo: 16 programs'
	@echo '  check-arm       64-bit ARM: cross build, unit tests under qemu-user'
	@echo '  check-distro    Debian 11 to sid in roots of their own (T="trixie ..."), as root'
	@echo '  check-jobs      the samples for Slurm and Kubernetes, as root'
	@echo '  check-gpu       on real GPUs; gpu-run packs it for a machine without a compiler'
	@echo '  fuzz fuzz-afl   one target (T=NAME); fuzz-long: all (JOBS=); fuzz-run packs them'
	@echo '  soak attack crowd random-cut    for as long as asked'
	@echo
	@echo 'Measurements      (N= rounds; floors and limits fail)'
	@echo '  bench           sockbench: table, floors, chart; bench-load, bench-apps (APPS=),' \
		'bench-vm'
	@echo '  bench-ns        between network namespaces, against TCP over the same bridge'
	@echo '  bench-requests  connections of 1 to 300 requests: processor time for each'
	@echo '  bench-hits      bulk answers: which bytes leave TCP, is it slower (PROGRAMS=)'
	@echo '  bench-counters bench-validation    instructions of a message'
	@echo '  bench-rdmastat bench-snippets bench-gpu    how long they take'
	@echo '  bench-go        programs of Go, with `go on`'
	@echo '  bench-nic       TCP, raw verbs, the library on a simulated RDMA device'
	@echo
	@echo 'SAN=address|undefined|thread builds and tests in build/SAN; V=1 shows the commands;'
	@echo 'DEFERRED=no leaves the lazy GPU path out'

all: deps $(lib) $(rdmastat) $(rdmarun)

# ---- packages: looked at once, installed when root and missing
deps:       $(B)/.deps-build
deps-demo:  $(B)/.deps-demo
deps-check: $(B)/.deps-check
deps-deb:   $(B)/.deps-deb
deps-rpm:   $(B)/.deps-rpm
deps-fuzz:  $(B)/.deps-fuzz
deps-fuzz-afl: $(B)/.deps-fuzz-afl
deps-jobs:  $(B)/.deps-jobs
deps-counters: $(B)/.deps-counters
deps-bench: $(B)/.deps-bench
deps-go: $(B)/.deps-go
deps-bench-apps: $(B)/.deps-bench-apps
$(B)/.deps-%: tests/scripts/deps.sh
	@mkdir -p $(@D)
	@tests/scripts/deps.sh $*
	@touch $@
# Says what is left out for want of an optional package, each time while something is.
$(B)/.deps-build: tests/scripts/deps.sh $(if $(left_out),$(if $(MAKE_RESTARTS),,FORCE))
	@mkdir -p $(@D)
	@CC='$(CC)' tests/scripts/deps.sh build
	@CC='$(CC)' tests/scripts/deps.sh left-out >$@.new && \
		if cmp -s $@.new $@ && [ ! $< -nt $@ ]; then rm $@.new; else mv $@.new $@; fi

# ---- objects. $(B)/.flags changes when the flags do.
$(B)/.flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(ALL_CFLAGS) $(HARD)' | cmp -s - $@ || \
		echo '$(CC) $(ALL_CFLAGS) $(HARD)' > $@

# The same for the commit, which one object knows.
# A tar of make dist has the commit in a file.
commit := $(shell [ -e .git ] && git describe --always --dirty --abbrev=10 2>/dev/null || \
	cat COMMIT 2>/dev/null)
version := $(shell cat VERSION)$(if $(commit), ($(commit)))
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
	$(call say,CC,'$< (sim)')mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -DCUT_SIM -MMD -MP -c -o $@ \
		$<

# ---- products
$(B)/shim.map: $(map_gen) $(wildcard shim/*/*.def)
	$(call say,GEN,$@)mkdir -p $(@D) && tools/gen-map.sh > $@

# Renamed into place: programs that run with the old one keep it.
$(B)/librdmashim.so: $(call obj,$(lib_src)) $(B)/shim.map
$(B)/no-deferred/librdmashim.so: $(call obj,$(filter-out shim/deferred/%,$(lib_src))) $(B)/shim.map
$(B)/librdmashim.so $(B)/no-deferred/librdmashim.so:
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(LIB_LDFLAGS) -Wl,--version-script=$(B)/shim.map \
		-o $@.new $(filter %.o,$^) -ldl && mv $@.new $@

stat_libs := -ljson-c -lncursesw -ltinfo -lm -lunwind-ptrace -lunwind-generic -lunwind -ldl
$(B)/rdmastat: $(call obj,$(stat_src))
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(HARD_LDFLAGS) $(LDFLAGS) -o $@ $^ $(stat_libs)

$(B)/rdmarun: $(call obj,$(run_src))
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(HARD_LDFLAGS) $(LDFLAGS) -o $@ $^

$(B)/sim: $(patsubst %.c,$(B)/o/sim/%.o,$(sim_src) $(cut_src))
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^

# $(call test_rule,SOURCE,PROGRAM,LIBRARIES,OBJECTS). In a LINK line SHIM stands for the whole
# library but for its wrappers, its start and the background thread: tests/fuzz/world.h.
shim_inside := $(filter-out shim/wrap/%.c shim/main/init.c shim/libc/libc.c shim/main/bg.c \
	shim/base/loop.c shim/base/shim.c shim/conn/counters.c shim/golang/%.c policy/%.c,\
	$(lib_src))
define test_rule
$(2): $(call obj,$(sort $(1) $(4) $(patsubst SHIM,$(shim_inside),$(call head_line,LINK,$(1)))))
	$$(call say,LD,$(2))mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $$(LDFLAGS) -o $$@ $$^ $(3) \
		$(call head_line,LIBS,$(1))
endef
check_libs := -lcheck -lsubunit -lm -lrt -ldl
$(foreach \
	s,$(unit_src),$(eval \
	$(call test_rule,$(s),$(patsubst \
	tests/unit/%.c,$(B)/unit/%,$(s)),$(check_libs),$(policy_src))))
$(foreach s,$(prog_src),$(eval $(call test_rule,$(s),$(patsubst tests/%.c,$(B)/%,$(s)),,)))

# ---- the other concerns, each beside what it is about
include tests/gpu/gpu.mk
include tests/tests.mk
include tests/nic/nic.mk
include tests/path/path.mk
include tests/arm/arm.mk
include tests/distro/distro.mk
include tests/fuzz/fuzz.mk
include tests/long.mk
include tests/bench/bench.mk
include tools/tools.mk

clean:
	$(Q)rm -rf build

-include $(patsubst \
	%.o,%.d,$(call obj,$(sort $(lib_src) $(stat_src) $(run_src) $(unit_src) $(prog_src) \
	$(wildcard tests/gpu/*.c))))
-include $(patsubst %.c,$(B)/o/sim/%.d,$(sim_src) $(cut_src))
-include $(patsubst \
	%.o,%.d,$(call fuzz_obj,$(sort $(wildcard tests/fuzz/*.c) $(lib_src) \
	$(wildcard tools/rdmastat/*/*.c))))
