# make demo    folds a protein in generations, draws the result          make test    checks, then all tests
# make check   lint, format, types, layers                               make bench   our figures on this machine
# make docs    the documentation, warnings are errors                    make soak    ten minutes of faults under load
# make clean   removes what make made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
DEMO := examples/folding
# Some tests need PostgreSQL's programs, ip to cut links, BLAST+ or HMMER; without them they are skipped, and say so.
APT := DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 postgresql iproute2 ncbi-blast+ hmmer >/dev/null
COMPONENTS := { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 && command -v ip >/dev/null && command -v blastp >/dev/null && command -v hmmbuild >/dev/null \
    || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { $(APT) 2>/dev/null || { apt-get update --quiet=2 && $(APT); }; }; } \
    || echo "PostgreSQL, ip, BLAST+ or HMMER is not installed: the tests that need them will be skipped"

.NOTPARALLEL:
.PHONY: demo test check bench soak docs clean

demo: $(VENV)/.demo
	cd $(DEMO) && ../../$(BIN)/bough run workflow.py
	@echo "The picture is $(DEMO)/folding.png; run make demo again and see what is reused."

test: check
	$(BIN)/python -m pytest

check: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.test
	$(BIN)/python tests/bench/run.py

soak: $(VENV)/.test
	$(BIN)/python tests/e2e/soak.py

docs: $(VENV)/.docs
	$(BIN)/python docs/generate_states.py
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_map.py
	$(BIN)/python docs/generate_wire.py
	$(BIN)/sphinx-build -W -n -q docs docs/_build/html
	@echo "The pages are in docs/_build/html."

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf $(DEMO)/.bough $(DEMO)/folds $(DEMO)/folding.png
	find src tests examples docs -name __pycache__ -prune -exec rm -rf {} +

# One stamp file for each set of packages: a second call installs nothing.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Bough needs Python 3.11 or newer: $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	    || { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@echo "installing Bough and what the demo needs into $(VENV)"
	@$(PIP) install --editable '.[examples]'
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml
	@echo "installing Bough and what the tests need into $(VENV)"
	@$(PIP) install --editable '.[test,check,examples]'
	@$(COMPONENTS)
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@echo "installing Bough and what the documentation needs into $(VENV)"
	@$(PIP) install --editable '.[docs]'
	@touch $@
