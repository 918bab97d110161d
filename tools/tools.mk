# tools.mk - the demo, generated documents, installation, the package.
# A newcomer waits for this one: built on all processors.
demo: deps deps-demo
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@B=$(B) SHIM=$(lib) tools/demo.sh

# ---- documents generated from the tables; tests/scripts/check-docs.sh says when they are stale
# tools/gen-NAME-doc.sh prints docs/NAME.md; tools/gen-parts.sh pages of which parts are generated.
docs: deps $(rdmastat)
	$(Q)for g in $(wildcard tools/gen-*-doc.sh); do d=$${g#tools/gen-}; \
		d=docs/$${d%-doc.sh}.md; \
		$$g > $$d.new && mv $$d.new $$d || exit 1; echo "  GEN     $$d"; done
	$(Q)$(if $(rdmastat),for d in $$(tools/gen-parts.sh); do B=$(B) tools/gen-parts.sh $$d > \
		$$d.new && mv $$d.new $$d || exit 1; echo "  GEN     parts of $$d"; done)

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
	$(Q)cd conf && find . -type f | while read -r f; do case $$f in *.sh) m=755;; *) m=644;; \
		esac; \
		install -D -m $$m "$$f" "$(DESTDIR)$(SYSDIR)/$${f#./}" || exit 1; done
	$(Q)for f in $(man_pages); do install -D -m 644 $$f \
		$(DESTDIR)$(DATADIR)/man/man$${f##*.}/$${f##*/} || exit 1; done
	$(Q)for f in README.md $(wildcard docs/*.md); do install -D -m 644 $$f \
		$(DESTDIR)$(DOCDIR)/$${f##*/} || exit 1; done
	$(call put,644,tools/completion/rdmastat.bash,$(BASHDIR)/rdmastat)
	$(Q)ln -sf rdmastat $(DESTDIR)$(BASHDIR)/rdmarun
	$(call put,644,tools/completion/_rdmastat,$(ZSHDIR)/_rdmastat)

uninstall:
	$(Q)rm -f $(DESTDIR)$(LIBDIR)/librdmashim.so $(DESTDIR)$(BINDIR)/rdmastat \
		$(DESTDIR)$(BINDIR)/rdmarun
	$(Q)rm -f $(DESTDIR)$(BASHDIR)/rdmastat $(DESTDIR)$(BASHDIR)/rdmarun \
		$(DESTDIR)$(ZSHDIR)/_rdmastat
	$(Q)rm -rf $(DESTDIR)$(SYSDIR) $(DESTDIR)$(DOCDIR)
	$(Q)for f in $(man_pages); do rm -f $(DESTDIR)$(DATADIR)/man/man$${f##*.}/$${f##*/}; done

# A Debian package, and one with its debugging symbols, in $(B)/deb. Built from a copy of the tree.
# deb-arm: by the cross compiler; what that needs is not installed but lies in a sysroot.
deb: deps-deb
	$(call deb_in,$(B)/deb,)
deb-arm: deps-deb deps-arm
	$(Q)mkdir -p $(B)/arm && tests/arm/sysroot.sh $(B)/arm/sysroot
	$(call deb_in,$(B)/deb-arm64,SYSROOT=$(abspath $(B)/arm/sysroot),-aarm64 -d)
define deb_in
$(Q)rm -rf $(1) && mkdir -p $(1)/rdmashim
$(Q)tar -c --exclude=./build --exclude=./.git --exclude='*.o' . | tar \
	-x -C $(1)/rdmashim && cp -r tools/packaging/debian $(1)/rdmashim/debian
$(Q)cd $(1)/rdmashim && env -u MAKEFLAGS -u MAKELEVEL $(2) dpkg-buildpackage $(3) -b -us -uc \
	>../build.log 2>&1 || { tail -n 30 ../build.log; exit 1; }
$(Q)rm -rf $(1)/rdmashim
$(Q)cd $(1) && lintian --fail-on error,warning --allow-root *.changes && ls *.deb
endef

# The sources of the last commit as a tar, always the same bytes.
dist_name := rdmashim-$(shell cat VERSION)
dist:
	$(Q)rm -rf $(B)/dist && mkdir -p $(B)/dist/$(dist_name)
	$(Q)git archive HEAD | tar -x -C $(B)/dist/$(dist_name)
	$(Q)git describe --always --abbrev=10 > $(B)/dist/$(dist_name)/COMMIT
	$(Q)tools/tar.sh $(B)/dist $(dist_name) $(B)/dist/$(dist_name).tar.gz && \
		rm -r $(B)/dist/$(dist_name)
	@echo $(B)/dist/$(dist_name).tar.gz

# An RPM of that, by rpmbuild, in $(B)/rpm.
rpm: dist deps-rpm
	@tools/packaging/rpm/build.sh $(B)
