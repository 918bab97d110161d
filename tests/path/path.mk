# path.mk - the library with a path of the tests' own in the row `shm`: nothing else is compiled.
$(B)/path/librdmashim.so: $(call obj,$(filter-out shim/link/path_shm.c,$(lib_src)) \
		tests/path/mailbox.c) $(B)/shim.map
	$(call say,LD,$@)mkdir -p $(@D) && $(CC) $(LIB_LDFLAGS) \
		-Wl,--version-script=$(B)/shim.map -o $@.new $(filter %.o,$^) -ldl && mv $@.new $@

tests: $(B)/path/librdmashim.so
other_list += $(call script_list,tests/path/mailbox.sh)

-include $(B)/o/tests/path/mailbox.d
