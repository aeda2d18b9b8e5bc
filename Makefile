# make install | repro | test | test-slow | lint | docs | graph | bench | lock | clean
# make repro ARGS="report --profile shoes"      everything else: .venv/bin/polygrain --help
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1
unexport PYTHONDONTWRITEBYTECODE # each process of pytest compiles all sources with checks of shapes
# Processes of pytest at a time, each over its own folders: import and collection cost more than most tests.
JOBS ?= 2
export TEST_JOBS := $(JOBS)
IN_PARTS := $(MAKE) --no-print-directory -k -j$(JOBS) library pipeline stages
# Each line names its part and is shown as it comes.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
tested = python -u -m pytest -q -m '$(MARK)' $1 | sed -u 's/^/$@: /'
PAPERS := gsp mpcl tll
OF_PAPERS := $(foreach paper,$(PAPERS),tests/polygrain/$(paper) $(wildcard tests/test_$(paper)_*.py))
# What their tests read besides their own room.
SHARED := $(filter-out $(PAPERS:%=polygrain/%) polygrain/app polygrain/cli polygrain/findings polygrain/new,$(wildcard polygrain/*)) \
	stages pipeline profiles encoders tests/helpers tests/oracles tests/conftest.py tests/polygrain/conftest.py *.yaml \
	pyproject.toml .venv/ready
MARK ?= not slow

.PHONY: install repro test test-slow stages library pipeline $(PAPERS) lint docs graph bench lock clean
install: .venv/ready
.venv/ready: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "error: Python 3.11.4 or newer is needed; PYTHON=... names another")'
	$(PYTHON) -m venv .venv
	python -m pip install --quiet uv==0.13.8
	VIRTUAL_ENV=.venv uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	VIRTUAL_ENV=.venv uv pip install --quiet --no-deps --no-build-isolation --editable .
	python -m polygrain.config.site
	touch $@

repro: install
	python -m polygrain run --profile "" $(ARGS)
test: install
	$(IN_PARTS) $(PAPERS) MARK='not slow' WITHOUT='$(OF_PAPERS:%=--ignore=%)'
test-slow: install
	$(IN_PARTS) MARK=slow
library:
	@$(call tested,tests/polygrain $(WITHOUT))
pipeline:
	@$(call tested,tests/pipeline)
stages:
	@$(call tested,tests --ignore=tests/polygrain --ignore=tests/pipeline $(WITHOUT))
$(PAPERS): FILES = $(filter tests/polygrain/$@ tests/test_$@_%,$(OF_PAPERS))
$(PAPERS): PASSED = .work/tested/$@
$(PAPERS): install
	@mkdir -p .work/tested && touch $(PASSED).begun
	@if [ -e $(PASSED) ] && [ -z "$$(find $(SHARED) polygrain/$@ $(FILES) ! -path '*__pycache__*' -newer $(PASSED))" ]; \
	then echo 'skipped: the tests of $@, since nothing that they read has changed'; \
	else $(call tested,$(FILES)) && mv $(PASSED).begun $(PASSED); fi
lint: install
	ruff check .
	ruff format --check .
	mypy
docs: install
	python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
graph: install
	python -m pipeline.entries
bench: install
	python -m benchmarks
lock: install
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra cpu --extra lite --extra run --extra flow --extra share --extra export \
		--extra test --extra docs --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file requirements.lock
	python -m polygrain.config.versions
clean:
	rm -rf .work
