# make demo   set up, train on the data in the package, forecast, compare, draw
# make test   set up, then formatter, linter, types and tests
# make fuzz   set up, then FUZZ drawn inputs (2,500) for each test in tests/fuzz; counts by outcome
# make kills  set up, then SIGKILLs of training, save and sweeps: counts, and what was lost; goes on where it was stopped
# make said   set up, then what is said of bad input: every case of the tests with its sentence
# make test-min     set up, then the tests with the oldest versions that pyproject.toml allows, but torch
# make test-sdist   set up, then build the sdist, install it from itself elsewhere and run its tests from itself
# make test-python  set up, then types and what needs no torch with Python 3.12 and 3.13
# make docs   set up, then build the documentation site into site/; a warning is an error
# make bench  set up, then speed and memory on a reduced grid, in under 10 minutes; bench-full: everything, with peers
PYTHON ?= python3
BIN := .venv/bin
# One thread per process: on small models more threads than cores is ten times slower.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all test-min test-sdist test-python fuzz kills said docs bench bench-full format clean

setup: .venv/.ready

# torch goes first and pinned: an open range would fetch gigabytes of accelerator packages.
.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,docs]"
	touch $@

demo: .venv/.ready
	$(BIN)/primecast demo --force

test: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# NO_MKDOCS_2_WARNING: the theme's announcement of its successor is no warning about our pages.
docs: .venv/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The integrations each in an environment of its own under .envs: what they need does not fit together.
test-all: .venv/.ready
	$(BIN)/pytest -n 2 --dist worksteal
	$(BIN)/python tools/integrations.py

test-min: .venv/.ready
	$(BIN)/python tools/versions.py minimum

test-sdist: .venv/.ready
	$(BIN)/python tools/sdist.py

# torch has no build for these Pythons where the index has none: see the workflow for the whole suite.
test-python: .venv/.ready
	$(BIN)/mypy --python-version 3.12
	$(BIN)/mypy --python-version 3.13
	$(BIN)/python tools/versions.py pythons

FUZZ ?= 2500
fuzz: .venv/.ready
	PRIMECAST_FUZZ=$(FUZZ) $(BIN)/pytest tests/fuzz -q -o addopts=

kills: .venv/.ready
	$(BIN)/python tools/kills.py

said: .venv/.ready
	$(BIN)/python tools/said.py

bench: .venv/.ready
	$(BIN)/python benchmarks/attention.py --quick
	$(BIN)/python benchmarks/training.py --quick
	$(BIN)/python benchmarks/install.py --quick
	$(BIN)/python benchmarks/summary.py --quick

# On an idle machine. BENCH=--resume goes on where it was stopped, and measures again what was disturbed.
bench-full: .venv/.ready
	$(BIN)/python benchmarks/install.py --prepare
	$(BIN)/python benchmarks/attention.py $(BENCH)
	$(BIN)/python benchmarks/training.py $(BENCH)
	$(BIN)/python benchmarks/install.py $(BENCH)
	$(BIN)/python benchmarks/summary.py

format: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .envs .kills .mypy_cache .pytest_cache .ruff_cache .hypothesis
