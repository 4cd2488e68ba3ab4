# make demo   set up, train on the data in the package, forecast, compare, draw
# make test   set up, then formatter, linter, types and tests
PYTHON ?= python3
BIN := .venv/bin
# One thread per process: on small models more threads than cores is ten times slower.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all format clean

setup: .venv/.ready

# torch goes first and pinned: an open range would fetch gigabytes of accelerator packages.
.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: .venv/.ready
	$(BIN)/primecast demo

test: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-all: .venv/.ready
	$(BIN)/pytest -n 2 --dist worksteal

format: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
