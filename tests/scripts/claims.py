#!/usr/bin/python3
"""claims.py BUILD: what the documents say of the tree is so. Links and their sections, names of
files, tests, targets of make, commands of rdmastat, models. Prints what is wrong; 1 if anything
is."""
import fnmatch
import glob
import os
import re
import subprocess
import sys

DOCS = ["README.md"] + sorted(glob.glob("docs/*.md") + glob.glob("*/*/README.md"))
wrong = []


def bad(doc, what):
    wrong.append(f"{doc}: {what}")


def text_of(doc):
    """Without blocks of code."""
    return re.sub(r"(?ms)^[ \t]*```.*?^[ \t]*```", "", open(doc).read())


def sections(doc):
    """The anchors of a page, as its readers on the web get them."""
    out = set()
    for head in re.findall(r"(?m)^#+ (.*)$", text_of(doc)):
        out.add(re.sub(r"[^a-z0-9 _-]", "", head.lower()).replace(" ", "-"))
    return out


def tree():
    names = set()
    for top in ("shim", "rdma", "policy", "tools", "tests", "conf", "docs"):
        for where, _, files in os.walk(top):
            names.update(files)
            names.update(os.path.join(where, f) for f in files)
            names.update(os.path.join(os.path.basename(where), f) for f in files)
            names.add(where)
    return names | set(os.listdir("."))


def tests():
    """What make check and its kin call their tests."""
    names = set()
    for f in glob.glob("tests/*/*"):
        stem, end = os.path.splitext(f[len("tests/"):])
        if end in (".c", ".sh", ".py", ".cs") or os.access(f, os.X_OK):
            names.add(stem)
    return names | {"sim/random", "sim/exhaustive", "sim/hostile", "sim/rules", "sim/model",
                    "suites/python", "snippets/races"}


def targets():
    return set(re.findall(r"(?m)^([a-z][a-z-]*)\b[^:=\n]*:(?!=)", "\n".join(
        open(f).read() for f in ["Makefile", *glob.glob("*/**/*.mk", recursive=True)])))


def commands(build):
    """The words that rdmastat takes, from its own text."""
    said = subprocess.run([f"{build}/rdmastat", "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"(?m)^  ([a-z]+)\b", said)) | {"help"}


NAME = r"(?<![\w/.*<~-])((?:[\w-]+/)*[\w-]+\.(?:[chs]|def|sh|py|pml|md|mk))(?![\w/*<])"
FOLDERS = "unit|apps|hostile|scripts|snippets|gpu|sim|suites|zoo|vm|bench|fuzz|jobs|mutants"
# Files that a build, a user, or another project has.
FOREIGN = {"libvma.conf", "tests/real/bench.sh", "tests/real/check.sh"}
FOREIGN_TARGETS = {"installcheck"}


def look(build):
    files, test_names, make, stat = tree(), tests(), targets(), commands(build)
    for doc in DOCS:
        text = text_of(doc)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, section = target.partition("#")
            page = os.path.normpath(os.path.join(os.path.dirname(doc), path)) if path else doc
            if not os.path.exists(page):
                bad(doc, f"a link to {target}: there is no {page}")
            elif section and section not in sections(page):
                bad(doc, f"a link to {target}: {page} has no such section")
        for code in re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", text):
            code = " ".join(code.split())
            for name in re.findall(NAME, code):
                if name not in files | FOREIGN and not re.search("build/|NAME", name) \
                        and "docs/" + name not in files:
                    bad(doc, f"`{code}`: there is no {name}")
            for name in re.findall(rf"^((?:{FOLDERS})/[\w-]+)$", code):
                if name not in test_names and "tests/" + name not in files:
                    bad(doc, f"`{code}`: there is no such test")
            for word in re.findall(r"\bmake (?:[A-Z]+=\S+ )*([a-z][a-z-]*)", code):
                if word not in make | FOREIGN_TARGETS:
                    bad(doc, f"`{code}`: make has no target {word}")
            for word in re.findall(r"\brdmastat ([a-z]+)\b", code):
                if word not in stat:
                    bad(doc, f"`{code}`: rdmastat has no {word}")
        for block in re.findall(r"(?ms)^[ \t]*```\n(.*?)^[ \t]*```", open(doc).read()):    # figures
            for name in re.findall(r"(?<![\w/.*-])([\w-]+\*?\.(?:c|h|def))\b", block):
                if not fnmatch.filter(files, name):
                    bad(doc, f"a figure names {name}, which is not there")
    models = text_of("docs/cut.md")
    for model in glob.glob("tests/sim/*.pml"):
        if f"`{os.path.basename(model)}`" not in models:
            bad("docs/cut.md", f"does not name {model}")


look(sys.argv[1])
print("\n".join(wrong) if wrong else f"{len(DOCS)} pages keep what they say")
sys.exit(1 if wrong else 0)
