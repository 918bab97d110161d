# path.mk - the library and rdmastat with a path of the tests' own: a row (mailbox.def) and a file
# (mailbox.c), nothing else differs.
path_obj = $(patsubst %.c,$(B)/path/o/%.o,$(1))
$(B)/path/o/%.o: %.c $(B)/.flags | $(B)/.deps-build
	$(call say,CC,'$< (path)')mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(CPPFLAGS) \
		-DPATHS_MORE='"tests/path/mailbox.def"' -DRDMASHIM_VERSION='"path"' -MMD -MP \
		-c -o $@ $<

$(B)/path/librdmashim.so: $(call path_obj,$(lib_src) tests/path/mailbox.c) $(B)/shim.map
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(LIB_LDFLAGS) \
		-Wl,--version-script=$(B)/shim.map -o $@.new $(filter %.o,$^) -ldl && mv $@.new $@
$(B)/path/rdmastat: $(call path_obj,$(stat_src))
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(stat_libs)

# They read the counter file, whose rows are longer.
path_snippets := $(patsubst tests/%.c,$(B)/path/%,$(wildcard tests/snippets/*.c))
$(path_snippets): $(B)/path/%: $(B)/path/o/tests/%.o
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ \
		$(call head_line,LIBS,tests/$*.c)

tests: $(B)/path/librdmashim.so $(B)/path/rdmastat $(path_snippets)
other_list += $(call script_list,tests/path/mailbox.sh)

-include $(patsubst %.o,%.d,$(call path_obj,$(sort $(lib_src) $(stat_src)) tests/path/mailbox.c \
	$(wildcard tests/snippets/*.c)))
