# Development tasks. Every target creates the virtual environment that it needs.

PYTHON ?= python3
VENV   := .venv
# Where Python is told not to write bytecode, every process would compile all of kbeval again: a quarter of a second each.
unexport PYTHONDONTWRITEBYTECODE
BIN    := $(VENV)/bin
# One marker file per installed dependency group.
READY  := $(VENV)/.ready
DEV    := $(VENV)/.dev
PEERS  := $(VENV)/.peers
# The same for Chromium, which some tests need.
BROWSER := $(VENV)/.browser
# The same for Spark, which `make test-spark` and `make bench-large` need.
SPARK := $(VENV)/.spark

# Use all processors; an idle worker takes tests from another one.
PARALLEL := -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo check test test-spark lint format type bench bench-large docs build clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY)  ## create a small workspace in kbeval-demo/ and score it
	@$(BIN)/kbeval demo
	@echo "(kbeval is installed in $(BIN): run 'source $(BIN)/activate' first)"

check: $(PEERS) $(BROWSER) lint type  ## the quick checks, in about 90 seconds on two processors: ruff, mypy, pytest without slow tests
	$(BIN)/pytest $(PARALLEL) -m "not slow"

test: $(PEERS) $(BROWSER) lint type  ## run every check: ruff, mypy, pytest
	$(BIN)/pytest $(PARALLEL)

test-spark: $(PEERS) $(SPARK)  ## score on a real Spark cluster on this machine: master, two workers, Connect server; 4 GB
	@command -v java > /dev/null || { echo "there is no Java: install a JRE, 17 or newer (Debian: apt-get install default-jre-headless)"; exit 1; }
	KBEVAL_SPARK_HOME=$(CURDIR)/$(VENV)/spark/pyspark $(BIN)/pytest tests/spark

lint: $(DEV)  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV)  ## fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(PEERS)  ## mypy, strict (tests import the peers)
	$(BIN)/mypy

bench: $(PEERS)  ## benchmark kbeval against a plain Python scorer and its peers
	$(BIN)/python -m tests.bench

bench-large: $(PEERS) $(SPARK)  ## one machine, shards, Sail and Spark side by side, at two sizes
	$(BIN)/python -m tests.bench --large

docs: $(DEV)  ## write the command reference in docs/commands.md from the help texts
	$(BIN)/python -m tests.support.command_reference

build: $(DEV)  ## build the wheel and the source archive into dist/
	$(BIN)/python -m build

clean:  ## remove all generated files
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

# Spark itself, in a folder of its own: it cannot be installed together with its thin client. Java is installed if that is possible.
$(SPARK): $(DEV)
	$(BIN)/python -m pip install -qq --no-deps --target $(VENV)/spark "pyspark>=4.1"
	@command -v java > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends default-jre-headless > /dev/null; } || true
	@touch $@

# The system's own Chromium, which is installed if it is missing and that is possible.
$(BROWSER): $(DEV)
	@$(BIN)/python -m tests.support.browser || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core > /dev/null; } || true
	@$(BIN)/python -m tests.support.browser && touch $@ || echo "there is no Chromium: tests in a browser are skipped, and fail under CI=true"
