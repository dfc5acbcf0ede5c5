# Everything here works in a virtual environment of its own; a machine needs Python 3.10 or newer, pip and make.
#
#   make demo      a rollout streamed, cut in the middle, resumed, and compared token by token
#   make test      all tests
#   make help      the rest

PYTHON ?= python3
VENV ?= .venv
MINUTES ?= 60
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.DEFAULT_GOAL := help
# One virtual environment: two pips in it at once would break it.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help fuzz conformance demo test coverage test-all live lint format types docs bench build check venv links clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: $(VENV)/.stamp-demo links ## a rollout streamed, cut, resumed and compared
	$(BIN)/ssefold demo

test: $(VENV)/.stamp-test links ## all tests (ARGS="-k name" for some; COVERAGE=1 notes which lines they reach)
	$(BIN)/python $(if $(COVERAGE),-m coverage run) -m pytest $(ARGS)

coverage: ## what `make test COVERAGE=1` has reached: fails below all of core/, or 95 % of the whole
	$(BIN)/coverage report --include='core/*' --fail-under=100
	$(BIN)/coverage report --fail-under=95

test-all: ## all tests on every Python 3.10 to 3.13 that this machine has
	@set -e; pythons=$$($(PYTHON) .ci/pythons.py); \
	echo "$$pythons" | while read -r version python; do \
	  echo "== Python $$version ($$python)"; \
	  $(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON="$$python" </dev/null || exit 1; \
	done

live: $(VENV)/.stamp-test links ## the transports against a real SGLang server (SSEFOLD_LIVE=DIR; tests/live/README.md)
	@test -n "$$SSEFOLD_LIVE" || { echo "set SSEFOLD_LIVE: see tests/live/README.md" >&2; exit 2; }
	$(BIN)/python -m pytest tests/live $(ARGS)

lint: $(VENV)/.stamp-check ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.stamp-check ## let ruff set the format and repair what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

types: $(VENV)/.stamp-check links ## mypy --strict, pyright, and whether the public names are all typed
	$(BIN)/mypy --strict
	$(BIN)/pyright --pythonpath $(BIN)/python
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright --verifytypes ssefold --ignoreexternal

docs: $(VENV)/.stamp-docs links ## the documentation site, built strictly into .site/html
	$(PYTHON) .ci/site_pages.py
	PYTHONPATH=.ci $(BIN)/zensical build --strict --config-file .site/mkdocs.yml
	@echo "open .site/html/index.html"

fuzz: $(VENV)/.stamp-check links ## a fuzzing campaign over all targets (MINUTES=60)
	$(BIN)/python -m tests.fuzz.campaign $$(( $(MINUTES) * 60 ))

bench: $(VENV)/.stamp-bench links ## speed and memory, ours and others', into docs/benchmarks.md (some minutes)
	$(BIN)/python -m tests.benchmarks

conformance: $(VENV)/.stamp-bench links ## what we and others make of the same bytes, into docs/conformance.md (a minute)
	$(BIN)/python -m tests.conformance

build: $(VENV)/.stamp-test ## an sdist, and the wheel that is made from it, into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python .ci/check_dist.py dist

check: ## every gate of .ci/run: tests, coverage, lint, types, docs, fuzz, build, demo
	.ci/run

venv: $(VENV)/.stamp-test $(VENV)/.stamp-check links ## the environment, with all tools for development

links: ## show the editable install the files that were added to core/ or removed from it
	@$(PYTHON) .ci/links.py

clean: ## remove environments, links, builds and caches
	rm -rf .venv .venv-* .links .site dist .hypothesis .mypy_cache .pytest_cache .ruff_cache htmlcov .coverage*

# Stamps: a run installs only when pyproject.toml or the build hook has changed since the last one.

INSTALLED_FROM := pyproject.toml .ci/hatch_build.py

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "ssefold needs Python 3.10 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	@# --group came with pip 25.1; the one that Python brings may be older.
	$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.stamp-demo: $(INSTALLED_FROM) | $(VENV)/.stamp-venv
	$(PIP) install -e '.[cli,httpx,fast]'
	@touch $@

$(VENV)/.stamp-test: $(INSTALLED_FROM) | $(VENV)/.stamp-venv
	$(PIP) install -e '.[all]' --group test --group scale
	@# The demo's extras are among these.
	@touch $@ $(VENV)/.stamp-demo

$(VENV)/.stamp-check: $(INSTALLED_FROM) $(VENV)/.stamp-test
	$(PIP) install --group types --group lint --group fuzz
	@# pyright runs on node, and this extra brings one where there is none.
	@command -v node >/dev/null || $(PIP) install 'pyright[nodejs]'
	@touch $@

$(VENV)/.stamp-bench: $(INSTALLED_FROM) $(VENV)/.stamp-test
	$(PIP) install --group bench
	@touch $@

# The site reads the source and does not import it.
$(VENV)/.stamp-docs: $(INSTALLED_FROM) | $(VENV)/.stamp-venv
	$(PIP) install --group docs
	@touch $@
