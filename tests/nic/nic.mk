# nic.mk - the simulated RDMA device (tests/nic/README.md): $(B)/nic/nicd, and the libraries that
# programs load in the real ones' place.
nic_src   := tests/nic
nic_out   := $(B)/nic
nic_obj    = $(patsubst %,$(B)/o/$(nic_src)/%.o,$(1))
nic_names  = $(basename $(notdir $(wildcard $(nic_src)/$(1)*.c)))
nic_libs  := $(addprefix $(nic_out)/,libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1 \
	      libhns.so.1)
nic_progs := $(nic_out)/nicd $(nic_out)/conform $(nic_libs)
nic_tests := $(filter-out %/lib.sh %/bench.sh,$(wildcard $(nic_src)/*.sh))

$(nic_out)/nicd: $(call nic_obj,$(call nic_names,nicd))
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^

# $(call nic_lib,NAME.so.1,MAP,OBJECTS,WITH)
define nic_lib
$(nic_out)/$(1): $(3) $(nic_src)/$(2) $(4)
	$$(call say,LD,$$@)mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) -shared \
		-Wl,-soname,$(1) -Wl,--version-script=$(nic_src)/$(2) -o $$@ $(3) $(4)
endef
$(eval $(call nic_lib,libibverbs.so.1,ibverbs.map,$(call nic_obj,verbs post mem conn rest),))
$(eval $(call nic_lib,librdmacm.so.1,rdmacm.map,$(call nic_obj,rdmacm),$(nic_out)/libibverbs.so.1))
$(eval $(call nic_lib,libmlx5.so.1,mlx5.map,$(call nic_obj,provider),))
$(eval $(call nic_lib,libefa.so.1,efa.map,$(call nic_obj,provider),))
$(eval $(call nic_lib,libhns.so.1,hns.map,$(call nic_obj,provider),))

# Linked with the real libraries' names and versions: it runs on any device.
$(nic_out)/conform: $(call nic_obj,$(call nic_names,conform))
	$(call say,LD,$@)mkdir -p $(@D) && \
		$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -lrdmacm -libverbs

# The library, but for the version that it says at the discovery port (nic/versions).
next_src := shim/discovery/discovery_net.c shim/discovery/discovery_port.c \
	shim/discovery/net_proof.c
next_obj := $(patsubst %.c,$(nic_out)/o/%.o,$(next_src))
$(next_obj): $(nic_out)/o/%.o: %.c
	$(call say,CC,'$< (next)')mkdir -p $(@D) && \
		$(CC) $(ALL_CFLAGS) $(HARD) -DNET_VERSION=1000 -MMD -MP -c -o $@ $<
$(nic_out)/librdmashim-next.so: $(call obj,$(filter-out $(next_src),$(lib_src))) $(next_obj) \
		$(B)/shim.map
	$(call say,LD,$@)$(CC) $(LIB_LDFLAGS) -Wl,--version-script=$(B)/shim.map -o $@ \
		$(filter %.o,$^) -ldl

# Made and run by what makes and runs the others.
tests: $(nic_progs) $(nic_out)/librdmashim-next.so
other_list += $(call script_list,$(nic_tests))

.PHONY: bench-nic
bench-nic: tests
	@B=$(B) SHIM=$(lib) SAN=$(SAN) tests/nic/bench.sh $(N)

-include $(next_obj:.o=.d)
-include $(patsubst %.c,$(B)/o/%.d,$(wildcard $(nic_src)/*.c))
