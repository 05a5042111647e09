# Everything you do with a checkout. Needs make and Python 3.11 or newer with its venv module; nothing else, but the
# tests need a Postgres and a RabbitMQ server. CONTRIBUTING.md says where they get them.
#
#   make run      set up .venv and run the example
#   make test     set up .venv and run every check, with private Postgres and RabbitMQ servers
#   make          list the targets

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The tiers of tests/, in the order `make test` runs them: cheap and telling first.
TIERS := unit property conformance replay simulation faults cli examples scenario chaos
STATIC := lint types contracts

# The first of these that is new enough; or say which: make PYTHON=/path/to/python3 test
CANDIDATES := python3 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in $(CANDIDATES); do \
	"$$python" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { command -v "$$python"; break; }; done)

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/installed
PYTEST := $(PY) -m pytest -q
UV_VERSION := 0.13.7
RESOLVE := build/lock/bin/uv pip compile --universal --python-version 3.11 --quiet --generate-hashes \
	--no-emit-index-url --no-annotate --no-header --no-config --no-cache --system-certs

# What a user's shell exports must not change what runs here.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTHONOPTIMIZE PYTHONSAFEPATH VIRTUAL_ENV
unexport PYTEST_ADDOPTS PYTEST_PLUGINS MYPYPATH COVERAGE_FILE PIP_USER PIP_TARGET PIP_PREFIX FORCE_COLOR COLUMNS
unexport TIDEWHEEL_STORE TIDEWHEEL_STORE_FILE TIDEWHEEL_BROKER TIDEWHEEL_BROKER_FILE TIDEWHEEL_NAMESPACE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore

# A checkout that was moved or copied has a .venv that points at the old place: make it again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name what; do \
		printf '  make %-10s %s\n' "$$name" "$$what"; done

.PHONY: run
run: $(STAMP)  ## set up, then run the example: an order, killed in the middle (ARGS=--interactive asks you)
	@$(PY) examples/story.py $(ARGS)

# Makes its targets one after the other, says how each went, and stops at the first that fails.
define in-turn
	for tier in $(1); do \
		printf '\n== %s\n' "$$tier"; tier_began=$$(date +%s); \
		goal=$$tier; [ "$$tier" != chaos ] || goal=chaos-short; \
		$(MAKE) --no-print-directory "$$goal" || { \
			printf '\nFAILED: %s, after %d s. Alone: make %s\n' "$$tier" $$(($$(date +%s) - tier_began)) "$$goal"; \
			exit 1; }; \
		printf '== %s passed in %d s\n' "$$tier" $$(($$(date +%s) - tier_began)); \
	done
endef

# The shell becomes the process that ends the servers, so that a signal to make reaches it. Were make itself named in
# the recipe, `make -n` would run that, and start servers.
RUN_TIERS := $(MAKE) --no-print-directory tiers
.PHONY: test
test: $(STAMP)  ## set up, then run every check, stopping at the first that fails
	@set -u; began=$$(date +%s); \
	$(call in-turn,$(STATIC)); \
	printf '\n== Postgres and RabbitMQ\n'; \
	BEGAN=$$began exec $(PY) -m tests.servers run -- $(RUN_TIERS)

.PHONY: tiers
tiers: $(STAMP)  ## every tier of tests/; a tier that is given no servers starts private ones
	@set -u; began=$${BEGAN:-$$(date +%s)}; \
	$(call in-turn,$(TIERS)); \
	printf '\nPASSED: %s, in %d s\n' "$(STATIC) $(TIERS)" $$(($$(date +%s) - began))

.PHONY: lint
lint: $(STAMP)  ## style and format, without changing anything
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

.PHONY: types
types: $(STAMP)  ## mypy, strict
	@$(PY) -m mypy

.PHONY: contracts
contracts: $(STAMP)  ## which folder may import what
	@$(VENV)/bin/lint-imports --no-logo --no-cache

.PHONY: unit
unit: $(STAMP)  ## tests of one part, pure and fast
	@$(PYTEST) -n 2 tests/unit $(ARGS)

.PHONY: property
property: $(STAMP)  ## rules over generated inputs
	@$(PYTEST) -n 2 tests/property $(ARGS)

.PHONY: conformance
conformance: $(STAMP)  ## one suite over every store, one over every broker
	@$(PYTEST) -n 2 tests/conformance $(ARGS)

.PHONY: simulation
simulation: $(STAMP)  ## the real parts on a simulated clock, with faults; seeded
	@$(PYTEST) -n 2 tests/simulation $(ARGS)

.PHONY: faults
faults: $(STAMP)  ## real processes, killed at every point
	@$(PYTEST) -n 2 tests/faults $(ARGS)

.PHONY: replay
replay: $(STAMP)  ## recorded journals, replayed by today's code
	@$(PYTEST) tests/replay $(ARGS)

.PHONY: cli
cli: $(STAMP)  ## the tidewheel command
	@$(PYTEST) -n 2 tests/cli $(ARGS)

.PHONY: examples
examples: $(STAMP)  ## every example runs and says what it should
	@$(PYTEST) -n 2 tests/examples $(ARGS)

.PHONY: scenario
scenario: $(STAMP)  ## the whole system, as installed
	@$(PYTEST) -n 2 --dist loadfile tests/scenario $(ARGS)

.PHONY: chaos-short
chaos-short: $(STAMP)  ## workers, Postgres and RabbitMQ killed while runs go on; three minutes
	@$(PYTEST) -n 2 --dist loadfile tests/chaos $(ARGS)

.PHONY: fuzz
fuzz: $(STAMP)  ## the fuzz tests with a million inputs each
	@TIDEWHEEL_FUZZ_INPUTS=1000000 $(PYTEST) -n 2 --timeout=0 tests/property -k fuzz $(ARGS)

.PHONY: simulate
simulate: $(STAMP)  ## the simulation with millions of steps
	@$(PY) -m tests.simulation --steps 5000000 --jobs 2 $(ARGS)

.PHONY: crashes
crashes: $(STAMP)  ## the embedded default, killed at every point every time it is passed
	@TIDEWHEEL_CRASH_POINTS=all $(PYTEST) -n 2 --timeout=0 tests/faults $(ARGS)

.PHONY: chaos
chaos: $(STAMP)  ## the fleet and its event bus under thousands of faults, then single faults; 45 minutes (ARGS=--seed=N)
	@$(PY) -m tests.chaos $(ARGS)
	@$(PY) -m tests.chaos.bus_main $(ARGS)
	@TIDEWHEEL_CHAOS=long $(PYTEST) -n 2 --dist loadfile --timeout=0 tests/chaos --ignore=tests/chaos/test_storm.py

.PHONY: coverage
coverage: $(STAMP)  ## which lines unit and property tests leave out
	@$(PY) -m coverage run -m pytest -q tests/unit tests/property $(ARGS)
	@$(PY) -m coverage report

.PHONY: bench
bench: $(STAMP)  ## Tidewheel next to its peers, in one run (ARGS=--quick: a few minutes)
	@$(PY) -m benchmarks $(ARGS)

.PHONY: bench-parts
bench-parts: $(STAMP)  ## the parts by themselves: replay, the broker's driver, the embedded default, scaling
	@set -e; for bench in benchmarks/bench_*.py; do printf '== %s\n' "$$bench"; $(PY) "$$bench"; done

.PHONY: docs
docs: $(STAMP)  ## write the generated pages again
	@mkdir -p build
	@$(PY) -m tidewheel.journal.document > build/journal.md && mv build/journal.md docs/journal.md
	@$(PY) -m tidewheel.sdk.settings_page tidewheel.workers.config:WorkerConfig \
		tidewheel.workers.write_budget:StateStoreConfig \
		tidewheel.workers.config:KeeperConfig tidewheel.workers.config:ProcessConfig \
		tidewheel.workers.config:EventLoopConfig tidewheel.outbox.config:RelayConfig \
		tidewheel.projector.config:ProjectorConfig > build/configuration.md
	@mv build/configuration.md docs/configuration.md
	@$(PY) -m tests.unit.broker.asyncapi_document

.PHONY: format
format: $(STAMP)  ## fix what ruff can fix, then format
	@$(PY) -m ruff check --fix
	@$(PY) -m ruff format

.PHONY: wheel
wheel: $(STAMP)  ## build the sdist and the wheel into dist/
	@$(PY) -m build --no-isolation --outdir dist

.PHONY: lock
lock:  ## pin all dependencies again (requirements/): to develop, to run, to build a wheel
	@echo "Resolving the dependencies of pyproject.toml"
	@rm -rf build/lock && "$(PYTHON)" -m venv build/lock
	@build/lock/bin/python -m pip install --quiet uv==$(UV_VERSION)
	@$(RESOLVE) pyproject.toml --extra otel --group dev --upgrade --output-file build/lock/dev.lock
	@$(RESOLVE) pyproject.toml --extra otel --constraint build/lock/dev.lock --output-file build/lock/runtime.lock
	@$(RESOLVE) --group build --constraint build/lock/dev.lock --output-file build/lock/build.lock
	@for name in dev runtime build; do \
		{ head -n 1 requirements/$$name.lock; cat build/lock/$$name.lock; } > build/lock/headed.lock && \
		mv build/lock/headed.lock requirements/$$name.lock || exit 1; done
	@rm -rf build/lock

.PHONY: clean
clean:  ## remove .venv, caches and build results
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements/dev.lock
	@[ -n "$(PYTHON)" ] || { echo "Tidewheel needs Python 3.11 or newer: none of $(CANDIDATES) is."; \
		echo "On Debian 12 or Ubuntu 24.04: apt install python3 python3-venv"; exit 1; }
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' || { echo "Tidewheel needs Python 3.11 or newer; $(PYTHON) is not."; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		version=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "$(PYTHON) has no working venv module."; \
		echo "On Debian or Ubuntu: apt install python$$version-venv"; exit 1; }
	@echo "Creating .venv with $$("$(PYTHON)" --version) ($(PYTHON))"
	@rm -rf $(VENV) && "$(PYTHON)" -m venv $(VENV)
	@echo "Installing the packages pinned in requirements/dev.lock"
	@$(PY) -m pip install --quiet --require-hashes -r requirements/dev.lock || { \
		echo "The packages could not be installed: this needs a Python package index that pip can reach."; exit 1; }
	@echo "Installing Tidewheel itself, editable"
	@$(PY) -m pip install --quiet --no-build-isolation --no-deps --no-index --editable .
	@echo "$(CURDIR)" > $(STAMP)
