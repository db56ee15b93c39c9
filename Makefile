# Two commands do all the set-up: `make train` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SERVICES := $(VENV)/.services

.PHONY: help train generate results test test-slow test-gpu lint lint-quick format docs fuzz mutants peers clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Clients of other services, which only the slow tests need.
$(SERVICES): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mlflow,ray,wandb]' 'psycopg[binary]' pymysql selenium rliable
	@touch $@

train: $(INSTALLED)  ## Install everything, then train SAC on Pendulum
	$(BIN)/rl-training train --config sac/pendulum $(ARGS)

generate: $(INSTALLED)  ## Write what is derived from the learner classes (catalog, stubs, tables)
	$(BIN)/python -m tools.generate

results: $(INSTALLED)  ## Write docs/results.md and its plots from the records in benchmarks/results
	$(BIN)/python -m benchmarks.report

# Types are checked beside the tests: without a cache that takes half a minute. A third process uses the
# time in which the others wait for disks and child processes.
test: $(INSTALLED) lint-quick  ## Lint, types, import contracts and the test suite (under ten minutes)
	@types=$$(mktemp); $(BIN)/mypy >$$types 2>&1 & mypy=$$!; \
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS); failed=$$?; \
	wait $$mypy || failed=1; cat $$types; rm $$types; exit $$failed

lint: $(INSTALLED) lint-quick  ## ruff, mypy --strict, import contracts
	$(BIN)/mypy

format: $(INSTALLED)  ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint-quick: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

test-slow: $(SERVICES)  ## The long fault and learning suites
	$(BIN)/python -m pytest -m slow --timeout 3600 $(ARGS)

test-gpu: $(INSTALLED)  ## What needs a CUDA device
	$(BIN)/python -m pytest -m gpu $(ARGS)

docs: $(INSTALLED)  ## Build the documentation site strictly, into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -n -q docs docs/_build/html

fuzz: $(INSTALLED)  ## Mutate the input of every parser, for an hour (FUZZ_SECONDS, FUZZ_SEED)
	$(BIN)/python -m tests.fuzz $(ARGS)

mutants: $(INSTALLED)  ## Show that a test kills each trap's mutant
	$(BIN)/python -m tests.mutants

peers: $(INSTALLED)  ## Make the environments of the libraries that benchmarks compare with
	$(BIN)/python -m benchmarks.peering

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build .fuzz docs/_build
