# fuzz.mk - fuzz targets, by libFuzzer and AFL++.
# ---- fuzzing: tests/fuzz/NAME.c with the objects that its head names, by clang's libFuzzer. In
# its LINK line SHIM stands for the whole library but for its wrappers, its start and the
# background thread, which world.h takes in or makes up by itself.
fuzz_cflags := -D__SANITIZE_ADDRESS__ \
	$(filter-out -fPIC -fno-semantic-interposition,$(BASE_CFLAGS)) -O1 \
	-fsanitize=fuzzer-no-link,address,undefined \
	-fsanitize=float-cast-overflow -fno-sanitize=alignment \
	-fno-sanitize-recover=undefined,float-cast-overflow \
	-fno-omit-frame-pointer -ffunction-sections \
	-fno-sanitize=function	# tables of calls are of one type, and cast where they are called
fuzz_names  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
fuzz_obj     = $(patsubst %.c,$(B)/fuzz/o/%.o,$(1))
fuzz_link    = $(patsubst SHIM,$(shim_inside),$(call head_line,LINK,$(1)))
$(B)/fuzz/o/%.o: %.c | deps-fuzz
	$(call say,FUZZ,$<)mkdir -p $(@D) && $(CLANG) $(fuzz_cflags) -MMD -MP -c -o $@ $<
$(call fuzz_obj,tests/fuzz/completion.c): tools/completion/rdmastat.bash
define fuzz_rule
$(B)/fuzz/$(1): \
	$(call fuzz_obj,$(sort tests/fuzz/$(1).c $(policy_src) \
	$(filter-out \
	$(call head_line,UNLINK,tests/fuzz/$(1).c),$(call fuzz_link,tests/fuzz/$(1).c))))
	$$(call say,FUZZ,$$@)$(CLANG) $$(fuzz_cflags) -fsanitize=fuzzer -Wl,--gc-sections \
		$(call head_line,LIBS,tests/fuzz/$(1).c) -o $$@ $$^ -ldl
endef
$(foreach n,$(fuzz_names),$(eval $(call fuzz_rule,$(n))))
fuzz: $(if $(T),$(B)/fuzz/$(T))
	@$(if $(T),B=$(B) tests/fuzz/run $(T) $(SECS),echo \
		'make fuzz T=NAME SECS=60, with one of: $(fuzz_names)')

# The same under AFL++, of those targets that are a function of their input alone: no threads, no
# sockets, no process around them.
afl_names := cm device filter http import policy record report stat
afl_obj    = $(patsubst %.c,$(B)/afl/o/%.o,$(1))
$(B)/afl/o/%.o: %.c | deps-fuzz-afl
	$(call say,AFL,$<)mkdir -p $(@D) && AFL_QUIET=1 afl-clang-fast $(fuzz_cflags) -MMD -MP \
		-c -o $@ $<
define afl_rule
$(B)/afl/$(1): \
	$(call afl_obj,$(sort tests/fuzz/$(1).c $(policy_src) \
	$(filter-out \
	$(call head_line,UNLINK,tests/fuzz/$(1).c),$(call fuzz_link,tests/fuzz/$(1).c))))
	$$(call say,AFL,$$@)AFL_QUIET=1 afl-clang-fast $$(fuzz_cflags) -fsanitize=fuzzer \
		-Wl,--gc-sections $(call head_line,LIBS,tests/fuzz/$(1).c) -o $$@ $$^ -ldl
endef
$(foreach n,$(afl_names),$(eval $(call afl_rule,$(n))))
fuzz-afl: $(if $(T),$(B)/afl/$(T))
	@$(if $(T),B=$(B) tests/fuzz/afl $(T) $(SECS),echo \
		'make fuzz-afl T=NAME SECS=60, with one of: $(afl_names)')

# All targets in parallel, from a directory that may be copied to another machine:
# $(B)/fuzz-run/long.sh [SECS [JOBS]].
fuzz-run: $(fuzz_bins)
	$(Q)rm -rf $(B)/fuzz-run/lib && mkdir -p $(B)/fuzz-run/bin $(B)/fuzz-run/lib \
		$(B)/fuzz-run/seeds
	$(Q)install $(fuzz_bins) $(B)/fuzz-run/bin && install tests/fuzz/long.sh $(B)/fuzz-run && \
		cp tests/fuzz/*.dict $(B)/fuzz-run
	$(Q)cp -r tests/fuzz/corpus/* $(B)/fuzz-run/seeds
	$(Q)cp -L \
		$$(ldd $(fuzz_bins) | awk '/=> \// { print $$3 } \
		/^\t\/.*ld-linux/ { print $$1 }' | sort -u) $$(PATH=$$PATH:/sbin ldconfig -p | \
		awk '/libnettle.so.8 .*x86-64/ { print $$NF; exit }') $(B)/fuzz-run/lib
fuzz-long: fuzz-run
	@$(B)/fuzz-run/long.sh $(if $(findstring command,$(origin SECS)),$(SECS),3600) \
		$(or $(JOBS),$(shell nproc))
