# Two commands matter: `make demo` and `make test`. Everything lives in .venv in this folder.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PORT ?= 8080

.PHONY: help setup programs demo live test test-fast test-network fuzz check format bench pages wheel clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## create .venv with pinned dependencies

# torch first and by its exact version: any other spelling may pull gigabytes of CUDA libraries.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedapa needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1); say e.g. make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: setup  ## six simulated rooms, Local against FedAPA, a table and a page
	$(BIN)/fedapa demo

# The demo's run, or one that takes a minute; a port in use: make live PORT=8081
live: setup  ## simulated visitors, counted live on a page
	@test -e runs/demo/fedapa/summary.json || test -e runs/live/summary.json || \
	  { echo "Nothing is trained here yet: six SIMULATED rooms learn first, about a minute; the page comes then."; \
	    $(BIN)/fedapa run --preset quick --out runs/live --resume > /dev/null; }
	@$(BIN)/fedapa serve --source simulator --port $(PORT) --run \
	  $$(test -e runs/demo/fedapa/summary.json && echo runs/demo/fedapa || echo runs/live)

programs:  ## a browser and a broker, for the tests that drive them
	@bash tests/programs.sh

test: setup programs  ## every test but outages of minutes
	$(BIN)/python -m pytest -m "not (network and slow)"

test-network: setup  ## rooms on loopback, with outages of minutes
	$(BIN)/python -m pytest -m network

test-fast: setup  ## without the slow, network, browser and broker tests
	$(BIN)/python -m pytest -m "not slow and not network and not browser and not mqtt"

fuzz: setup  ## 100,000 mutated captures of every format through the readers, about 15 minutes
	$(BIN)/python -m tests.csi.mutations --inputs 100000

check: setup  ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## measure
	$(BIN)/python -m benchmarks

pages: setup  ## docs/algorithms.md, tables and figures of docs/results made anew; all as HTML and SVG in build/pages
	$(BIN)/python -m pages results algorithms html

wheel: setup  ## dist/fedapa-*.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

clean:  ## remove what the targets above made
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
