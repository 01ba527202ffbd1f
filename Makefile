# Two commands do everything: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKS := requirements.lock requirements-torch-cpu.lock requirements-torch-cuda.lock
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-deps
# Two workers take whole files in the order of tests/conftest.py, the longest first.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: install run test lint types check bench bench-quick soak lock clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(STAMP): $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "supmer needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r requirements.lock
	$(INSTALL) --require-hashes -r requirements-torch-cpu.lock 2>/dev/null || { \
		echo "pip finds no CPU build of torch: taking the registry's build, with NVIDIA's libraries on Linux"; \
		$(INSTALL) --require-hashes -r requirements-torch-cuda.lock; }
	$(INSTALL) --no-build-isolation -e .
	@touch $@

install: $(STAMP) ## make .venv with what is locked

run: $(STAMP) ## install what is locked, run the pipeline, say where the result is
	$(BIN)/supmer run

check: $(STAMP) lint types ## lint, types and the fast tests: before every commit
	$(PYTEST) -m "not slow"

test: $(STAMP) lint types ## lint, types and all tests: before a pull request
	$(PYTEST)

lint: $(STAMP) ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## mypy --strict on the packages
	$(BIN)/mypy

bench: $(STAMP) ## run every benchmark (minutes to an hour); records and docs/results.md are written
	for file in $(filter-out benchmarks/bench_soak.py,$(wildcard benchmarks/bench_*.py)); do $(BIN)/python $$file || exit 1; done
	$(BIN)/python benchmarks/results_page.py

bench-quick: $(STAMP) ## the headline ratios in under ten minutes; records and docs/results.md are written
	for name in step_precision meta_step tuning predict cluster materialize; do $(BIN)/python benchmarks/bench_$$name.py --quick || exit 1; done
	$(BIN)/python benchmarks/results_page.py --headline

soak: $(STAMP) ## half an hour of kills, faults and fuzzed inputs (SOAK="--minutes 5 --seed 7"); record and docs/results.md are written
	$(BIN)/python benchmarks/bench_soak.py $(SOAK); code=$$?; $(BIN)/python benchmarks/results_page.py && exit $$code

lock: ## resolve pyproject.toml into the lock files, with hashes (UPGRADE=--upgrade; TORCH_BUILDS=wheels of CPU builds of torch)
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/pip install --quiet --disable-pip-version-check uv
	cat requirements.lock requirements-torch-cuda.lock | sed 's/ ; sys_platform == "linux"//' > .lock-venv/resolved.lock
	.lock-venv/bin/uv pip compile pyproject.toml --quiet --extra dev --generate-hashes --no-header --no-annotate --python-version 3.11 \
		$(UPGRADE) --output-file .lock-venv/resolved.lock
	$(PYTHON) .ci/split_lock.py .lock-venv/resolved.lock $(TORCH_BUILDS)
	rm -rf .lock-venv

clean: ## remove the environment and what running leaves; outputs and DVC's cache stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
