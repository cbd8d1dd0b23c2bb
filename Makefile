# make demo    set up, probe this machine, tune decode, recommend for n = 4096, look the answer up from Python
# make test    set up, run the tests
# make lint    ruff and mypy          make bench   every benchmark          make soak   the long faults tests
# make clean   remove what these made
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   := ADVISOR_HOME=.demo ADVISOR_CACHE=.demo/cache
SPACES ?= ../shared/spaces
# Modules are compiled when they are first imported: most of what is installed never is, and all of it takes as long to
# compile as to download.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile

# Compiled modules are kept: hundreds of short processes would else compile this package and all that it needs again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint bench soak clean

# A half-made environment is removed again: the next make would take it for a whole one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "this Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.ready-run: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV), once: packages are downloaded" >&2
	@$(PIP) --editable .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV) for development, once: packages are downloaded" >&2
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.ready-run

demo: $(VENV)/.ready-run
	@echo "== advisor probe: what this machine is"
	@$(DEMO) $(BIN)/advisor probe
	@echo; echo "== advisor tune --kernel decode --n 1024,4096,16384 --quick: measure, about 20 s"
	@$(DEMO) $(BIN)/advisor tune --kernel decode --n 1024,4096,16384 --quick
	@echo; echo "== advisor recommend --n 4096: what to run with"
	@$(DEMO) $(BIN)/advisor recommend --kernel decode --n 4096
	@echo; echo "== docs/examples/server.py: the same answer inside a Python program"
	@$(DEMO) $(BIN)/python docs/examples/server.py

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m "not soak and not serial" -n 2 --dist worksteal
	$(BIN)/python -m pytest -m "serial and not soak" $$(grep -rl --include="test_*.py" mark.serial tests)

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-dev
	$(BIN)/python benchmarks/lookup.py
	$(BIN)/python benchmarks/judge.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/tune.py
	$(BIN)/python benchmarks/repeat.py
	@test -d $(SPACES) || echo "benchmarks/spaces.py left out: SPACES=FOLDER names recorded spaces in the T4 format" >&2
	test ! -d $(SPACES) || $(BIN)/python benchmarks/spaces.py $(SPACES)

soak: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m soak

clean:
	rm -rf $(VENV) .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
