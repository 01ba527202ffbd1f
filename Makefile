# Two commands do everything: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install run test lint types check bench lock clean help

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "supmer needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

install: $(STAMP) ## make .venv with what is locked

run: $(STAMP) ## install what is locked, run the pipeline, say where the result is
	$(BIN)/supmer run

test: $(STAMP) lint types ## install what is locked, lint, check types, run the tests
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(STAMP) ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## mypy --strict on the packages
	$(BIN)/mypy

bench: $(STAMP) ## run every benchmark (minutes to an hour)
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

lock: ## resolve pyproject.toml anew into requirements.lock
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	{ echo "# Made by 'make lock' from pyproject.toml."; .lock-venv/bin/pip freeze --exclude-editable | sed 's/+cpu$$//'; } > requirements.lock
	rm -rf .lock-venv

clean: ## remove the environment and what running leaves; outputs and DVC's cache stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
