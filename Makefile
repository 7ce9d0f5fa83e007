PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types postgis bench goals

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: .venv/.installed
	$(BIN)/ploti-server demo

test:
	$(MAKE) --no-print-directory -j3 lint types postgis
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.installed
	$(BIN)/mypy

postgis:
	.ci/postgis

bench: .venv/.installed postgis
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m bench
	$(BIN)/python -m bench.targets
	$(BIN)/python -m bench.dirty
	$(BIN)/python -m bench.matching
	$(BIN)/python -m bench.service
	$(BIN)/python -m bench.gapless

goals: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m goals tests
