# make demo    folds a protein in generations, draws the result          make test    checks, then all tests
# make check   lint, format, types, layers                               make bench   our figures on this machine
# make docs    the documentation, warnings are errors                    make soak    ten minutes of faults under load
# make clean   removes what make made                                    make quick   checks, then the quick tests
# PYTHON=python3.12 chooses another Python; with VENV=.venv-3.12 it has a virtual environment of its own

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The Python that .venv has, and the one that is asked for. Without PYTHON=... the one that .venv has will do.
HAS := $(shell sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' $(VENV)/pyvenv.cfg 2>/dev/null)
WANTED := $(or $(if $(filter file,$(origin PYTHON)),$(HAS)),$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null))
MADE := $(VENV)/.made-$(WANTED)
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
DEMO := examples/folding
# Some tests need PostgreSQL's programs, ip to cut links, SimGrid, BLAST+, HMMER, sshd, sshfs or CPython's own tests; without them they are
# skipped, and say so. CPython's tests have a package for each version; whether it is there or not, the rest is installed.
APT := DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2
PROGRAMS := postgresql iproute2 python3-simgrid ncbi-blast+ hmmer openssh-server sshfs slurm-wlm slurm-client munge gridengine-master gridengine-exec gridengine-client
HAVE := { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 && command -v ip >/dev/null && ls /usr/lib/python3/dist-packages/simgrid.*.so >/dev/null 2>&1 && command -v blastp >/dev/null && command -v hmmbuild >/dev/null && command -v sshfs >/dev/null && { command -v sshd || ls /usr/sbin/sshd; } >/dev/null 2>&1 && { command -v slurmctld || ls /usr/sbin/slurmctld; } >/dev/null 2>&1 && { command -v munged || ls /usr/sbin/munged; } >/dev/null 2>&1 && { command -v sge_qmaster || ls /usr/sbin/sge_qmaster; } >/dev/null 2>&1
HAVE_TESTS := ls /usr/lib/python3*/test/test_concurrent_futures* >/dev/null 2>&1
MAY := [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
define COMPONENTS
if { ! { $(HAVE); } || ! $(HAVE_TESTS); } && $(MAY); then \
    apt-get update --quiet=2 >/dev/null; \
    { $(HAVE); } || $(APT) $(PROGRAMS) >/dev/null; \
    $(HAVE_TESTS) || $(APT) $$(apt-cache search --names-only '^libpython3\.[0-9]+-testsuite$$' | cut -d' ' -f1) >/dev/null; \
fi; \
{ $(HAVE); } || echo "PostgreSQL, ip, SimGrid, BLAST+, HMMER, sshd, sshfs, Slurm or Grid Engine are not installed: the tests that need them will be skipped"; \
$(HAVE_TESTS) || echo "CPython's own tests are not installed: the tests that need them will be skipped"
endef

QUICK := session semantics executor sqlite_store groups fork_warning mixed_pythons

.NOTPARALLEL:
.PHONY: demo test quick check bench soak docs clean

demo: $(VENV)/.demo
	cd $(DEMO) && ../../$(BIN)/bough run workflow.py
	@echo "The picture is $(DEMO)/folding.png; run make demo again and see what is reused."

test: check
	$(BIN)/python tests/side_by_side.py

# What .ci/run does under every other Python that it finds: all of the code, and most of its ways, in a few minutes.
quick: check
	$(BIN)/python -m pytest tests/unit tests/contract $(QUICK:%=tests/integration/test_%.py)

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
	rm -rf $(VENV) .venv-3.* build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf $(DEMO)/.bough $(DEMO)/folds $(DEMO)/folding.png
	find src tests examples docs -name __pycache__ -prune -exec rm -rf {} +

# One stamp file for each set of packages: a second call installs nothing.
$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Bough needs Python 3.11 or newer: $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.12" >&2; exit 1; }
	@[ -z "$(filter-out $(WANTED),$(HAS))" ] \
	    || echo "$(VENV) has Python $(HAS): it is made anew with Python $(WANTED); VENV=.venv-$(WANTED) would keep both"
	@$(PYTHON) -m venv $(if $(filter-out $(WANTED),$(HAS)),--clear )$(VENV) \
	    || { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.demo: $(MADE) pyproject.toml
	@echo "installing Bough and what the demo needs into $(VENV)"
	@$(PIP) install --editable '.[examples]'
	@touch $@

$(VENV)/.test: $(MADE) pyproject.toml
	@echo "installing Bough and what the tests need into $(VENV)"
	@$(PIP) install --editable '.[test,check,examples]'
	@$(COMPONENTS)
	@touch $@

$(VENV)/.docs: $(MADE) pyproject.toml
	@echo "installing Bough and what the documentation needs into $(VENV)"
	@$(PIP) install --editable '.[docs]'
	@touch $@
