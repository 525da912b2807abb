# Every target makes its own virtual environment; Python 3.11+ and make are all it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
.DEFAULT_GOAL := help
.PHONY: help demo test lint types contracts gate ci bench quality clean

help:
	@echo "make demo      the whole product on this machine, with an injected fault"
	@echo "make test      every test"
	@echo "make ci        lint, types, import contracts, tests"
	@echo "make bench     speed and memory"
	@echo "make quality   detection quality of every detector (hours; goes on where it stopped)"
	@echo "make gate      detection quality of a small part against the stored baseline"

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,postgresql,apprise,lstm]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/weaklink demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

gate: $(STAMP)
	$(BIN)/python -m replay.quality --subset ci --gate $(ARGS)

ci: lint types contracts test gate

bench: $(STAMP)
	$(BIN)/python -m tests.bench $(ARGS)

quality: $(STAMP)
	$(BIN)/python -m replay.quality --rates --page $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist
