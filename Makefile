# make repro [PROFILE=name] [TARGETS="stage ..."]   the whole graph, or what these need; a second call runs nothing
# make flow [PROFILE=] [JOBS=4] [TARGETS="..."]   the same, branches side by side, to watch in a browser
# make ui [PORT=4200]         the pages to watch runs on; make serve [CRON="0 2 * * *"]: start runs from there
# make share | fetch [REMOTE=/folder, ssh://user@host/path or s3://bucket/prefix]   results to and from the team
# make worker [REMOTE=...]    this clone runs stages for others (`make flow WORKERS=1`)
# make compose [PROFILE=name] profiles/NAME/params.yaml from values.yaml there; all that run something do so themselves
# make test | test-slow       the quick suite | the end-to-end promises: cache, kill, same bytes
# make lint | bench           style | one line of JSON per claim
# make docs                   the site, offline: docs/_build/html/index.html
PYTHON ?= python3
UV_VERSION := 0.13.8
VENV := $(CURDIR)/.venv
READY := $(VENV)/ready
GRAPH := $(if $(PROFILE),profiles/$(PROFILE)/dvc.yaml,dvc.yaml)
# Composes a profile's params.yaml first.
CHECK = cd $(dir $(GRAPH)) && PYTHONPATH=$(CURDIR) python -m stages.core.runner.command params.yaml
# In the place of the recipe's shell, and told who make is: what runs ends with a make that is killed.
ALONE = exec env POLYGRAIN_STARTER=$$PPID

export PATH := $(VENV)/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: install compose repro flow ui serve share fetch worker test test-slow lint bench docs lock clean

install: $(READY)

$(READY): requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "error: Python 3.11.4 or newer is needed; PYTHON=... names another")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet uv==$(UV_VERSION)
	VIRTUAL_ENV=$(VENV) $(VENV)/bin/uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	touch $@

# The profiles that ship are linked to the graph when they are first wanted: a plain `dvc status` lists every graph it finds.
profiles/%/dvc.yaml:
	test -f $(dir $@)values.yaml || test -f $(dir $@)params.yaml || \
		{ echo "error: there is no profile $*; known here: $(notdir $(patsubst %/,%,$(wildcard profiles/*/)))" >&2; exit 1; }
	ln -s ../../dvc.yaml $@

compose: $(READY)
	python -m stages.core.runner.compose $(if $(PROFILE),profiles/$(PROFILE))

repro: $(READY) $(GRAPH)
	$(CHECK)
	exec python -m pipeline.guard $$PPID 20 dvc --wait-for-lock repro $(if $(TARGETS),$(addprefix $(GRAPH):,$(TARGETS)),$(GRAPH))

flow: $(READY) $(GRAPH)
	$(CHECK)
	$(ALONE) python -m pipeline.flows $(if $(PROFILE),--profile $(PROFILE)) $(if $(TARGETS),--targets $(TARGETS)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(WORKERS),--workers)

ui: $(READY)
	$(ALONE) python -m pipeline.server $(if $(PORT),--port $(PORT))

serve: $(READY)
	$(ALONE) python -m pipeline.deployment $(if $(PROFILE),--profile $(PROFILE)) $(if $(TARGETS),--targets $(TARGETS)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(CRON),--cron "$(CRON)")

share: $(READY)
	python -m pipeline.share push $(if $(PROFILE),--profile $(PROFILE)) $(if $(REMOTE),--remote $(REMOTE))

fetch: $(READY)
	python -m pipeline.share fetch $(if $(PROFILE),--profile $(PROFILE)) $(if $(REMOTE),--remote $(REMOTE)) \
		$(if $(TARGETS),--targets $(TARGETS))

worker: $(READY)
	$(ALONE) python -m pipeline.worker $(if $(REMOTE),--remote $(REMOTE))

test: $(READY)
	python -m pytest -q -m 'not slow'

test-slow: $(READY)
	python -m pytest -q -m slow

lint: $(READY)
	ruff check .
	ruff format --check .

bench: $(READY)
	python -m benchmarks

docs: $(READY)
	python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html

lock: $(READY)
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra cpu --extra flow --extra share --extra test \
		--extra docs --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file requirements.lock

clean:
	rm -rf .work
