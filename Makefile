# What can be done here. Every target makes the virtual environment it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One mark for each group of packages that is installed.
READY  := $(VENV)/.ready
DEV    := $(VENV)/.dev
PEERS  := $(VENV)/.peers

.DEFAULT_GOAL := help
.PHONY: help demo test lint format type bench build clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY)  ## make a small workspace in kbeval-demo/ and score it
	@$(BIN)/kbeval demo
	@echo "(kbeval is in $(BIN) here: run 'source $(BIN)/activate' first)"

test: $(PEERS) lint type  ## run every check: ruff, mypy, pytest
	$(BIN)/pytest -n auto

lint: $(DEV)  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV)  ## write the formatting that lint wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(DEV)  ## mypy, strict
	$(BIN)/mypy

bench: $(PEERS)  ## measure kbeval against a plain Python scorer and its peers
	$(BIN)/python -m tests.bench

build: $(DEV)  ## build the wheel and the source archive into dist/
	$(BIN)/python -m build

clean:  ## remove everything that was made here
	rm -rf $(VENV) build dist kbeval-demo bench-data *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kbeval needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -qq --editable .
	@touch $@

$(DEV): $(READY)
	$(BIN)/python -m pip install -qq --group dev
	@touch $@

$(PEERS): $(DEV)
	$(BIN)/python -m pip install -qq --group peers
	@touch $@
