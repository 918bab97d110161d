# gpu.mk - the GPU path's tests: on a stand-in for the driver, and on real GPUs.
# ---- GPU tests: a stand-in for the CUDA driver; programs linked with it run on the real one too
gpu_src   := $(filter-out %/standin.c %/drv.c,$(wildcard tests/gpu/*.c))
gpu_progs := $(patsubst tests/%.c,$(B)/%,$(gpu_src))
standin   := $(if $(gpu_src),$(B)/gpu/libcuda.so.1)

# What its cuGetProcAddress may answer: its own exports.
$(B)/gpu/symbols.c: $(B)/o/tests/gpu/standin.o
	$(call say,GEN,$@)mkdir -p $(@D) && { echo '#include <string.h>'; \
		echo '#include "standin.h"'; \
		nm --defined-only $< | sed \
		-n 's/.* T \(cu[A-Za-z0-9_]*\)$$/extern int \1(void);/p'; \
		echo 'static const struct { const char *name; void *p; } all[] = {'; \
		nm --defined-only $< | sed \
		-n 's/.* T \(cu[A-Za-z0-9_]*\)$$/	{ "\1", (void *)\1 },/p'; \
		echo '};'; echo 'void *standin_symbol(const char *name)'; echo '{'; \
		echo '	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)'; \
		echo '		if (!strcmp(all[i].name, name))'; \
		echo '			return all[i].p;'; \
		echo '	return 0;'; echo '}'; } > $@
$(B)/gpu/libcuda.so.1: $(B)/o/tests/gpu/standin.o $(B)/gpu/symbols.c
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 \
		-Itests/gpu -o $@ $^
$(gpu_progs): $(B)/gpu/%: $(B)/o/tests/gpu/%.o $(B)/o/tests/gpu/drv.o $(standin)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,--no-as-needed -o $@ $(filter %.o,$^) \
		$(standin) -ldl

# On a machine with GPUs; tests/gpu/*.sh run everywhere, on the stand-in.
check-gpu: all $(gpu_progs)
	@B=$(B) SHIM=$(lib) tests/gpu/real/check.sh
bench-gpu: all $(gpu_progs) $(B)/bench/allreduce $(B)/bench/chunks
	@B=$(B) SHIM=$(lib) tests/gpu/real/bench.sh

# The same for a machine that cannot build: copy $(B)/gpu-run there, then in it: B=. bash
# tests/real/check.sh, bench.sh.
gpu-run: all $(gpu_progs) $(B)/bench/allreduce $(B)/bench/chunks
	$(Q)rm -rf $(B)/gpu-run && mkdir -p $(B)/gpu-run/gpu $(B)/gpu-run/lib $(B)/gpu-run/tests \
		$(B)/gpu-run/bench
	$(Q)cp $(lib) $(rdmastat) $(B)/gpu-run && cp $(filter-out %/scenes,$(gpu_progs)) \
		$(B)/gpu-run/gpu
	$(Q)cp $(B)/bench/allreduce $(B)/bench/chunks $(B)/gpu-run/bench
	$(Q)cp -L $$(ldd $(rdmastat) | awk '/json-c|ncursesw|tinfo|unwind|lzma/ { print $$3 }') \
		$(B)/gpu-run/lib
	$(Q)cp -r tests/gpu/real tests/gpu/gloo.py $(B)/gpu-run/tests
