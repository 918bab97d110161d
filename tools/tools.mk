# tools.mk - the demo, generated documents, installation, the package.
# A newcomer waits for this one: built on all processors.
demo: deps deps-demo
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@B=$(B) SHIM=$(lib) tools/demo.sh

# ---- documents generated from the tables; tests/scripts/check-docs.sh says when they are stale
# tools/gen-NAME-doc.sh prints docs/NAME.md.
docs: deps
	$(Q)for g in $(wildcard tools/gen-*-doc.sh); do d=$${g#tools/gen-}; \
		d=docs/$${d%-doc.sh}.md; \
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
deb: deps-deb
	$(Q)rm -rf $(B)/deb && mkdir -p $(B)/deb/rdmashim
	$(Q)tar -c --exclude=./build --exclude=./.git --exclude='*.o' . | tar \
		-x -C $(B)/deb/rdmashim && cp -r tools/packaging/debian $(B)/deb/rdmashim/debian
	$(Q)cd $(B)/deb/rdmashim && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -b -us -uc \
		>../build.log 2>&1 || { tail -n 30 ../build.log; exit 1; }
	$(Q)rm -rf $(B)/deb/rdmashim
	$(Q)cd $(B)/deb && lintian --fail-on error,warning --allow-root *.changes && ls *.deb

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
