# make install | repro | test | test-slow | lint | docs | bench | lock | clean
# make repro ARGS="report --profile shoes"      everything else: .venv/bin/polygrain --help
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1
unexport PYTHONDONTWRITEBYTECODE # each process of pytest compiles all sources with checks of shapes
TESTED := python -m pytest -q --numprocesses auto --maxprocesses 8 --dist loadfile

.PHONY: install repro test test-slow lint docs bench lock clean
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
	$(TESTED) -m 'not slow'
test-slow: install
	$(TESTED) -m slow
lint: install
	ruff check .
	ruff format --check .
	mypy
docs: install
	python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
bench: install
	python -m benchmarks
lock: install
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra cpu --extra lite --extra run --extra flow --extra share --extra export \
		--extra test --extra docs --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file requirements.lock
	python -m polygrain.config.versions
clean:
	rm -rf .work
