# make demo    set up, probe this machine, tune decode, recommend for n = 4096, look the answer up from Python
# make test    set up, run the tests
# make lint    ruff and mypy          make bench   every benchmark          make soak   the long faults tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   := ADVISOR_HOME=$(CURDIR)/.demo

.PHONY: demo test lint bench soak clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "this Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.ready-run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.ready-run

demo: $(VENV)/.ready-run
	@$(DEMO) $(BIN)/advisor probe
	@$(DEMO) $(BIN)/advisor tune --kernel decode --n 1024,4096,16384 --quick
	@$(DEMO) $(BIN)/advisor recommend --kernel decode --n 4096
	@$(DEMO) $(BIN)/python docs/examples/server.py

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m "not soak"

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-dev
	$(BIN)/python benchmarks/lookup.py
	$(BIN)/python benchmarks/judge.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/tune.py

soak: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m soak

clean:
	rm -rf $(VENV) .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
