# `make demo` and `make test` each create .venv, install the versions in constraints.txt, and run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test install bench clean

help:
	@echo "make demo     search, explain, fine-tune and measure on the built-in corpus"
	@echo "make test     lint, types, tests"
	@echo "make install  only make $(VENV)"
	@echo "make bench    run the benchmarks, and renew docs/benchmarks.md: two hours"
	@echo "make clean    remove $(VENV), the demo's folder, caches and built files"

demo: $(STAMP)
	@$(BIN)/vocable demo

test: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal

install: $(STAMP)

bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf $(VENV) vocable-demo build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# pip -qq prints errors, but neither progress nor warnings.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make PYTHON=python3.11 ...")'
	@echo "Installing into $(VENV): a few minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
