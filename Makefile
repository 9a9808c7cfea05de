# Two commands matter: `make demo` and `make test`. Everything lives in .venv in this folder.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PORT ?= 8080

.PHONY: help setup programs demo live test test-fast test-network fuzz soak check format bench pages wheel audit lock clean

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

# Interrupted, the same command goes on. A part of it: make fuzz FUZZ='--kind stores --inputs 5000'
FUZZ ?=
fuzz: setup  ## 100,000 mutated inputs of every kind that is read, for hours
	$(BIN)/python -m tests.fuzz $(FUZZ)

# Shorter: make soak MINUTES=5
MINUTES ?= 20
soak: setup  ## kills, cuts and lies for 20 minutes on 12 rooms, then 50 kills of a run
	$(BIN)/python -m tests.federation.network.soak --minutes $(MINUTES)
	$(BIN)/python -m tests.federation.kills --moments 50

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

wheel: setup  ## dist/fedapa-*.whl, the same bytes each time, and what it runs with (SBOM)
	$(BIN)/python -m deploy.wheel dist

audit: setup  ## known vulnerabilities in what deployments install, where a database can be had
	$(BIN)/python -m deploy.audit

# uv looks where UV_INDEX, UV_FIND_LINKS and the like say, not where pip does.
LOCKED := count flower mqtt privacy serve train
lock: setup  ## deploy/requirements.txt: every package of a deployment, with hashes
	@set -o pipefail; { sed '/^#/!d' deploy/requirements.txt; $(BIN)/uv pip compile pyproject.toml --quiet \
	  $(LOCKED:%=--extra %) -c constraints.txt --python-version 3.11 \
	  --python-platform x86_64-manylinux_2_28 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links | sed 's/^torch==2.13.0+cpu /torch==2.13.0 /'; } \
	  > deploy/requirements.new && mv deploy/requirements.new deploy/requirements.txt

clean:  ## remove what the targets above made
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
