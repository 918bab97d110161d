# arm.mk - 64-bit ARM by a cross compiler and qemu-user. T="test_cut ...": only those unit tests.
.PHONY: check-arm deps-arm
deps-arm: $(B)/.deps-arm
check-arm: deps deps-arm
	@tests/arm/check.sh $(B) $(T)
