# Every target sets up what it needs, once. Nothing is needed beforehand but python3 (3.11 or
# newer, with venv) and Java 17 or newer; tools/ finds them, or says in a line what to install.
.DEFAULT_GOAL := help
.PHONY: help setup demo test stress bench lint lock clean
.SUFFIXES:
MAKEFLAGS += --no-print-directory

PYTHON_IN_VENV := .venv/bin/python
# Spark takes JAVA_HOME before the path, so a good one is always set.
WITH_JAVA = JAVA_HOME="$$(tools/java.sh)" && export JAVA_HOME &&
# For example: make test PYTEST_ARGS="-k commit -x"
PYTEST_ARGS ?=
PYTEST = $(WITH_JAVA) $(PYTHON_IN_VENV) -m pytest --durations=10
# Three processes share the tests, each with a Spark of its own; PYTEST_ARGS=-n0 is one that does all.
SHARED = -n 3
# For example: make lock LOCK_FLAGS=--upgrade
LOCK_FLAGS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Create .venv with pinned versions, and find or install Java
	@tools/install.sh run
	@tools/java.sh >/dev/null

demo: setup ## Show a small shop with live changes, and views and indexes that follow them
	@$(WITH_JAVA) $(PYTHON_IN_VENV) -m tailrace.demo

test: lint ## Lint, types, and all tests but the long ones
	@tools/postgres.sh >/dev/null
	@$(PYTEST) $(SHARED) $(PYTEST_ARGS)

stress: ## The long tests, under load
	@tools/install.sh test
	@tools/postgres.sh >/dev/null
	@$(PYTEST) -m stress $(PYTEST_ARGS)
	@TAILRACE_ROUNDS=3 && export TAILRACE_ROUNDS && $(PYTEST) $(SHARED) tests/oracle/test_tpch.py tests/oracle/test_nexmark.py

bench: ## Measure against Spark and other formats, and print one table
	@tools/install.sh bench
	@tools/postgres.sh >/dev/null
	@$(WITH_JAVA) $(PYTHON_IN_VENV) -m bench

lint: ## Check style, format and types
	@tools/install.sh test
	@$(PYTHON_IN_VENV) -m ruff check
	@$(PYTHON_IN_VENV) -m ruff format --check
	@$(PYTHON_IN_VENV) -m mypy

lock: ## Resolve the dependencies again into requirements/
	@tools/install.sh all
	@tools/lock.sh $(LOCK_FLAGS)

clean: ## Remove .venv, caches and what runs left behind
	rm -rf .venv .hypothesis .mypy_cache .ruff_cache artifacts build dist spark-warehouse
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
