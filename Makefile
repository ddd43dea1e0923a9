# Everything a developer does. `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export ORT_DISABLE_TELEMETRY := 1
PACKAGES := api cli shared workers migrations tests benchmarks examples scripts

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint format docs bench bench-peers bench-fleet audit lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Build .venv with everything (idempotent)

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh
	@touch $(STAMP)

demo: setup ## Start the fleet, run 20 documents through it, print results and addresses
	@sh scripts/demo.sh "$(BIN)"

test: setup ## Run every test, on the real servers and the real model
	$(BIN)/pytest

test-fast: setup ## Run the tests that need neither servers nor model (under a minute)
	$(BIN)/pytest -q -m "not model and not servers"

lint: setup ## Check style, types, import contracts and the lock file
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_docs.py --check
	sh -n scripts/*.sh

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff check --fix $(PACKAGES)
	$(BIN)/ruff format $(PACKAGES)

bench: setup ## Measure the engine beside onnxruntime-genai (idle machine, 10 minutes; BENCH_ARGS=--quick: 1)
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

bench-peers: setup ## The same beside OpenVINO GenAI, installed outside the tree (25 minutes; BENCH_ARGS=--quick: 3)
	$(BIN)/python -m benchmarks.run --peers $(BENCH_ARGS)

bench-fleet: setup ## Measure the whole fleet beside the engine alone, two workers, memory (40 minutes)
	$(BIN)/python -m benchmarks.fleet_throughput $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.memory

docs: setup ## Write the generated pages of docs/ anew
	$(BIN)/python scripts/generate_docs.py

lock: setup ## Write constraints.txt anew from what is installed
	$(BIN)/pip freeze --exclude-editable > constraints.txt

clean: ## Stop the fleet and remove .venv, the state directory and caches of tools
	@[ ! -x $(BIN)/tokenmill ] || $(BIN)/tokenmill down --purge --yes || true
	rm -rf $(VENV) .tokenmill .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
