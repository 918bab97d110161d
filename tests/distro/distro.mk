# distro.mk - other Debians, in roots of their own: the tree, and what is released. As root.
.PHONY: check-distro release deps-distro
deps-distro: $(B)/.deps-distro
check-distro: deps-distro
	@tests/distro/check.sh $(B) $(T)
release: deps-distro
	@tools/release.sh $(B) $(T)
