# Everything a checkout needs; `make` alone lists it.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-dev.lock
DATA ?= data
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run format check sizes test test-all soak bench screenshots sequences migration grpc-descriptors lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "The venv module is needed (Debian: apt-get install python3-venv)."; exit 1; }

$(VENV)/.run: pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "Installing the broker and what it needs into $(VENV); this takes a minute or two, once …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "Installing the broker and what its tests need into $(VENV); this takes a few minutes, once …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[dev]'
	@touch $@ $(VENV)/.run

setup: $(VENV)/.dev ## install everything for development

run: $(VENV)/.run ## serve on http://127.0.0.1:8085, data in ./data (ARGS="--port 9000" …)
	@$(BIN)/broker serve --data-dir $(DATA) $(ARGS)

format: $(VENV)/.dev ## format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(VENV)/.dev ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sizes: ## list long files and functions, and the largest folders
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) -m tests.architecture.sizes

# Tests start many processes: the first one compiles for all, whatever the shell says.
test test-all: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.dev ## the tests, on a real PostgreSQL
	$(BIN)/pytest -n 3 -m "not slow" $(ARGS)

test-all: $(VENV)/.dev ## the tests, with the slow ones, and random examples
	$(BIN)/pytest -n 3 --hypothesis-profile=explore $(ARGS)

soak: $(VENV)/.dev ## faults under load for hours (ARGS="--minutes 240 --seed 1 --report soak.json")
	$(BIN)/python -m tests.faults --minutes 60 $(ARGS)

bench: $(VENV)/.dev ## measure, against Google's emulator where it is installed
	$(BIN)/python -m benchmarks $(ARGS)

screenshots: $(VENV)/.dev ## pictures of the console, in Chromium (ARGS="--only overview --look dark" …)
	$(BIN)/python -m tests.console.screenshots screenshots $(ARGS)

sequences: $(VENV)/.dev ## the pictures of docs/console-jobs.md, in Chromium (ARGS="--only redrive" …)
	@$(BIN)/python -m tests.console.sequences docs/images/console-jobs $(ARGS)

migration: $(VENV)/.dev ## a new migration: make migration revision=0002_min_0001 name=what_it_adds
	@echo "$(revision)" | grep -qE '^[0-9]{4}_min_[0-9]{4}$$' || { echo "revision=NNNN_min_MMMM is needed."; exit 1; }
	@test -n "$(name)" || { echo "name=what_it_adds is needed."; exit 1; }
	DATABASE_URL=unused $(BIN)/alembic revision --rev-id "$(revision)" -m "$(name)"

grpc-descriptors: $(VENV)/.dev ## take the gRPC definitions anew from the installed google-cloud-pubsub
	$(BIN)/python api_spec/make_grpc_descriptors.py

# By the oldest Python that is supported: what installs there installs on the others.
lock: ## pin the newest versions that pyproject.toml allows; then `make test`
	@command -v python3.11 >/dev/null || { echo "python3.11 is needed: pins are made by the oldest Python."; exit 1; }
	@python3.11 -m venv --clear $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@grep '^#' $(LOCK) >$(VENV)/lock/pins
	@$(VENV)/lock/bin/python -m pip freeze --disable-pip-version-check --exclude-editable >>$(VENV)/lock/pins
	@mv $(VENV)/lock/pins $(LOCK)
	@rm -rf $(VENV)/lock

clean: ## remove what setup made
	rm -rf $(VENV)
