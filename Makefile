# `make demo`, `make check` and `make test` create .venv, install what they need in the versions of
# constraints.txt, and run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/vocable/indexes/_*.[ch])
TOYS := vocable-toys
PARALLEL := -n auto --maxprocesses 8 --dist worksteal
STUDIES := mlm_head_rescaling vocabulary_transfer wacky_weights esplade

# Python keeps what it compiles, whatever the environment says: otherwise each of many processes compiles PyTorch, half a minute.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check lint test toys $(STUDIES:%=toy-%) toy-two study wheel docs install bench clean

help:
	@echo "make demo     search, explain and measure on the documentation of Python, without PyTorch: a minute of processor time"
	@echo "make check    lint, types and the quick tests: ten minutes on two cores"
	@echo "make test     lint, types and all tests: 35 minutes on two cores"
	@echo "make toys     every table and figure of the papers on toys, one study in two processes, too: 12 minutes"
	@echo "make wheel    build an archive and a wheel in dist/, install it alone, and use it: each verb that needs no extra"
	@echo "make docs     the documentation as a site, in site/"
	@echo "make study NAME=esplade ARGS='--dry-run'  a study of a paper: ls studies"
	@echo "make install  only make $(VENV), with everything"
	@echo "make bench    run the benchmarks, and renew docs/benchmarks.md: an hour"
	@echo "make clean    remove $(VENV), the demo's folder, caches and built files"

demo: $(DEMO)
	@$(BIN)/vocable demo

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: lint
	$(BIN)/pytest $(PARALLEL) -m "not slow"

test: lint
	$(BIN)/pytest $(PARALLEL) --durations=30

# `make -j2 toys` is quicker.
toys: $(STUDIES:%=toy-%) toy-two
	@rm -rf $(TOYS)

$(STUDIES:%=toy-%): toy-%: $(STAMP)
	@rm -rf $(TOYS)/$*; mkdir -p $(TOYS)
	@$(BIN)/python -m studies.$* --toy -o $(TOYS)/$* >$(TOYS)/$*.txt || { cat $(TOYS)/$*.txt; exit 1; }

# The study that pre-trains, adapts and trains. Two processes give the results of one, but not to the last digit: sums
# have another order.
toy-two: toy-esplade
	@rm -rf $(TOYS)/two
	@$(BIN)/torchrun --standalone --nproc_per_node 2 -m studies.esplade --toy -o $(TOYS)/two >$(TOYS)/two.txt || { cat $(TOYS)/two.txt; exit 1; }
	@$(BIN)/python tests/studies/same.py $(TOYS)/esplade $(TOYS)/two

wheel:
	@$(PYTHON) tests/wheel.py

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

study: $(STAMP)
	$(BIN)/python -m studies.$(NAME) $(ARGS)

install: $(STAMP)

bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf $(VENV) vocable-demo $(TOYS) build dist site src/*.egg-info src/vocable/indexes/_kernels.*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks studies -name __pycache__ -type d -prune -exec rm -rf {} +

# pip -qq prints errors, but neither progress nor warnings. Python compiles what it imports when it imports it: half of pip's time.
define install_with
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make PYTHON=python3.11 ...")'
	@echo "Installing into $(VENV): a few minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt -e '.$(1)'
	@touch $@
endef

$(DEMO): $(SOURCES)
	$(call install_with,)

$(STAMP): $(SOURCES)
	$(call install_with,[dev])
	@touch $(DEMO)
